package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/vault"
)

// issued returns an issued card of the token's account.
func (d *deployment) issued(t *testing.T, token string) uuid.UUID {
	t.Helper()
	c := d.client(t, token)
	made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
	need(t, err)
	paid, err := c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
	need(t, err)
	if paid.Status != client.CardStatusGenerated {
		t.Fatalf("card %s is %s", made.UUID, paid.Status)
	}
	return made.UUID
}

// audited returns the audit lines since the last call, without fields that
// vary.
func (d *deployment) audited(t *testing.T) (all []string) {
	t.Helper()
	for _, e := range d.log.entries(t)[d.seen:] {
		d.seen++
		if e["msg"] != "audit" {
			continue
		}
		if actor, _ := e["actor"].(string); e["level"] != "INFO" || e["action"] != "credentials_shown" ||
			e["request_id"] == "" || !strings.HasPrefix(actor, "token:") || e["account"] == "" {
			t.Errorf("audited %v", e)
		}
		if e["list"] != nil {
			all = append(all, fmt.Sprintf("%s %s from %s", e["operation"], e["list"], e["newest"]))
		} else if e["card"] != nil {
			all = append(all, fmt.Sprintf("%s %s", e["operation"], e["card"]))
		} else {
			all = append(all, fmt.Sprintf("%s %v from %s to %s", e["operation"], e["cards"], e["newest"], e["oldest"]))
		}
	}
	return all
}

var masked = regexp.MustCompile(
	`"credentials":{"card_number":"\*{12}[0-9]{4}","expiration_date":"[0-9]{2}/[0-9]{2}","security_code":"\*\*\*","url":"https://[^"]+","url_password":"\*{8}"}`)

func TestMask_OnlyRevealCardDiscloses(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, limits: func(c *order.Config) { c.MaskCredentials = true }})
		token := d.token(t)
		id, waiting := d.issued(t, token), ""
		var made struct{ UUID string }
		need(t, json.Unmarshal([]byte(d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).body), &made))
		waiting = made.UUID
		db := rig.OpenSQL(t, d.database)
		reveal := func() client.Credentials {
			t.Helper()
			c, err := d.client(t, token).RevealCard(t.Context(), id)
			need(t, err)
			return c.Credentials
		}
		whole := reveal()
		if len(whole.CardNumber) != 16 || len(whole.SecurityCode) != 3 ||
			strings.Contains(whole.URLPassword+whole.CardNumber, "*") {
			t.Errorf("revealed a number of %d and a code of %d characters", len(whole.CardNumber), len(whole.SecurityCode))
		}
		equal(t, "audit", d.audited(t), []string{"revealCard " + id.String()})
		for _, older := range []bool{false, true} {
			if older { // stored by a version without the last digits
				_, err := db.Exec("UPDATE credentials SET last_four = NULL")
				need(t, err)
			}
			for _, path := range []string{"/api/cards/" + id.String(), "/api/cards?status=generated",
				"/api/cards?status=generated&limit=5"} {
				a := d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK)
				if !masked.MatchString(a.body) || !strings.Contains(a.body, "************"+whole.CardNumber[12:]) ||
					strings.Contains(a.body, whole.CardNumber) || strings.Contains(a.body, whole.URLPassword) {
					t.Errorf("%s: %s", path, a.body)
				}
			}
			if a := d.send(t, http.MethodPost, "/api/sandbox/cards/"+id.String()+"/payments", token,
				""); !masked.MatchString(a.body) {
				t.Errorf("simulatePayment: %s", a.body)
			}
		}
		equal(t, "audit", d.audited(t), nil)

		a := d.send(t, http.MethodPost, "/api/cards/"+id.String()+"/reveal", token, "").want(t, http.StatusOK)
		equal(t, "Cache-Control", a.header.Get("Cache-Control"), "no-store")
		a = d.send(t, http.MethodPost, "/api/cards/"+waiting+"/reveal", token, "").want(t, http.StatusOK)
		if !strings.Contains(a.body, noCredentials) {
			t.Errorf("revealed a card that is not issued: %s", a.body)
		}
		d.send(t, http.MethodPost, "/api/cards/"+id.String()+"/reveal", d.token(t), "").refused(t, http.StatusNotFound,
			"not_found")
		equal(t, "audit", d.audited(t), []string{"revealCard " + id.String()})

		// Masked fields are not decrypted.
		_, err := db.Exec(
			"UPDATE credentials SET last_four = '0000', card_number = url, security_code = url, url_password = url")
		need(t, err)
		if a := d.send(t, http.MethodGet, "/api/cards/"+id.String(), token, "").want(t,
			http.StatusOK); !strings.Contains(a.body, "************0000") {
			t.Errorf("%s", a.body)
		}
		d.send(t, http.MethodPost, "/api/cards/"+id.String()+"/reveal", token, "").refused(t, http.StatusInternalServerError,
			"internal")
		if text := d.log.String(); strings.Contains(text, whole.CardNumber) || strings.Contains(text, whole.URLPassword) {
			t.Error("the log contains credentials")
		}
	})
}

// Without masks, each response with credentials logs one line, regardless of
// the number of cards.
func TestAudit_OneLinePerDisclosure(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	older, newer := d.issued(t, token), d.issued(t, token)
	equal(t, "audit", d.audited(t), []string{"simulatePayment " + older.String(), "simulatePayment " + newer.String()})
	d.send(t, http.MethodGet, "/api/cards/"+older.String(), token, "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/api/cards?limit=1", token, "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/api/cards?limit=9", token, "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/api/cards?status=awaiting_payment", token, "").want(t, http.StatusOK)
	both := fmt.Sprintf("listCards 2 from %s to %s", newer, older)
	equal(t, "audit", d.audited(t),
		[]string{"getCard " + older.String(), "listCards begun from " + newer.String(), both, "listCards " + newer.String(),
			both})
}

func TestCards_Purged_HaveTimeOfPurge(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		id := d.issued(t, token)
		purged, err := d.store.PurgeCard(t.Context(),
			keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: id, Note: "n", Operator: "o"})
		if need(t, err); !purged {
			t.Fatal("not purged")
		}
		d.audited(t)
		for method, paths := range map[string][]string{
			http.MethodGet:  {"/api/cards/" + id.String(), "/api/cards", "/api/cards?limit=3"},
			http.MethodPost: {"/api/cards/" + id.String() + "/reveal"}} {
			for _, path := range paths {
				a := d.send(t, method, path, token, "").want(t, http.StatusOK)
				if !regexp.MustCompile(`"status":"generated".*` + regexp.QuoteMeta(noCredentials) +
					`,"credentials_purged_at":"20[0-9T:.-]{17,20}\.[0-9]{3}Z"`).MatchString(a.body) {
					t.Errorf("%s: %s", path, a.body)
				}
			}
		}
		c, err := d.client(t, token).GetCard(t.Context(), id)
		need(t, err)
		if c.CredentialsPurgedAt == nil || c.Credentials != (client.Credentials{}) {
			t.Errorf("purged at %v", c.CredentialsPurgedAt)
		}
		equal(t, "audit", d.audited(t), nil)
	})
}

// A process without a key responds with 503: clients retry, and find the card
// once the key file has the key. Lists do not omit the card.
func TestCards_KeyMissing_IsUnavailable(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	old := d.issued(t, token)
	text, err := os.ReadFile(d.keys)
	need(t, err)
	ahead := filepath.Join(t.TempDir(), "ahead.keys")
	need(t, os.WriteFile(ahead, text, 0o600))
	added, err := vault.AddKey(ahead)
	need(t, err)
	need(t, vault.PromoteKey(ahead, added))
	s := d.setup
	s.sandbox, s.keys = nil, ahead
	d.stop()
	other := deploy(t, s)
	id := other.issued(t, token)
	other.stop()
	s.keys = d.keys
	d = deploy(t, s)

	paths := []string{"/api/cards/" + id.String(), "/api/cards", "/api/cards?limit=3"}
	for _, path := range paths {
		a := d.send(t, http.MethodGet, path, token, "")
		a.refused(t, http.StatusServiceUnavailable, "unavailable")
		if a.header.Get("Retry-After") == "" || strings.Contains(a.body, added.String()) {
			t.Errorf("%s: %v %s", path, a.header, a.body)
		}
	}
	d.send(t, http.MethodGet, "/api/cards/"+old.String(), token, "").want(t, http.StatusOK)
	text, err = os.ReadFile(ahead)
	need(t, err)
	need(t, os.WriteFile(d.keys, text, 0o600))
	for since := time.Now(); d.send(t, http.MethodGet, paths[0], token, "").status != http.StatusOK &&
		time.Since(since) < 10*time.Second; {
		time.Sleep(50 * time.Millisecond) // the file is read at most once a second
	}
	for _, path := range paths {
		d.send(t, http.MethodGet, path, token, "").want(t, http.StatusOK)
	}
}
