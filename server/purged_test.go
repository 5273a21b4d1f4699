package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

const noCredentials = `"credentials":{"card_number":null,"expiration_date":null,"security_code":null,"url":null,"url_password":null}`

// Credentials can be purged. The card is still returned.
func TestCards_CredentialsPurged_IsReturned(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		var made struct{ UUID string }
		need(t, json.Unmarshal(
			[]byte(d.send(t, http.MethodPost, "/api/cards", token, `{"usd_amount": "50", "currency": "monero"}`).body), &made))
		d.send(t, http.MethodPost, "/api/sandbox/cards/"+made.UUID+"/payments", token, "").want(t, http.StatusOK)
		paths := []string{"/api/cards/" + made.UUID, "/api/cards", "/api/cards?status=generated"}
		for _, path := range paths {
			if a := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK); strings.Contains(a.body, noCredentials) {
				t.Errorf("%s: %s", path, a.body)
			}
		}
		_, err := rig.OpenSQL(t, d.database).Exec("DELETE FROM credentials")
		need(t, err)
		for _, path := range paths {
			a := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK)
			if !strings.Contains(a.body, noCredentials) || !strings.Contains(a.body, `"status":"generated"`) {
				t.Errorf("%s: %s", path, a.body)
			}
		}
	})
}
