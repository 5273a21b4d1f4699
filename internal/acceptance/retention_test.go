package acceptance_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// With default settings, a worker deletes old events and unpaid cards, but no
// card that received money. Retention times that look like typos are refused.
func TestRetention_ExpiredCard_IsDeleted(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	for _, flag := range []string{"--retain-expired", "--retain-events"} {
		if _, stderr, code := p.run("serve", "--simulated", flag, "24h"); code == 0 ||
			!strings.Contains(stderr, "hint: --retain-expired and --retain-events take a duration of 168h or more") {
			t.Errorf("%s: exit code %d, %s", flag, code, stderr)
		}
	}
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	c := newClient(t, s.url, token)
	sold := sellCard(t, c)
	forgotten, err := c.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(50), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	db := rig.OpenSQL(t, url)
	const old = "01800000-0000-7000-8000-000000000001" // of April 2022
	for _, statement := range []string{
		"UPDATE cards SET uuid = '" + old + "', expires_at = 1649000000000, payment_state = 'expired' WHERE uuid = '" +
			forgotten.UUID.String() + "'",
		"UPDATE events SET created_at = 1649000000000",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	s = p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	s.awaitOutput(t, 30*time.Second, "deleted old events and unpaid cards")
	wantOutput(t, s.Output(), "loop=retain", "expired_cards=1")
	if cards := p.must(t, "card", "list"); strings.Contains(cards, old) || !strings.Contains(cards, sold.UUID.String()) {
		t.Errorf("cards:\n%s", cards)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	if strings.Count(text, `"seq"`) != 1 || !strings.Contains(text, `"type":"feed.reset"`) {
		t.Errorf("events: %s", text)
	}
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")
}
