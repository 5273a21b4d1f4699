package acceptance_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

// flood sends many requests concurrently and counts the responses.
type flood struct {
	all    sync.WaitGroup
	mu     sync.Mutex
	status map[string]int // responses by method and status
}

// send sends n requests concurrently.
func (f *flood) send(t *testing.T, n int, method, url, token, body string) {
	for range n {
		f.all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			f.mu.Lock()
			defer f.mu.Unlock()
			f.status[fmt.Sprint(method, " ", res.StatusCode)]++
		})
	}
}

// A flood occupies every slot and every database connection of the API for the
// whole test. The worker uses separate connections: it must still detect a
// payment and issue its card.
func TestOverload_FloodedAPI_CardsAreStillIssued(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := rig.Postgres(t)
	p := newProgram(t, url)
	token := p.account(t)
	others := p.createTokens(t, 16) // as many as the API has connections
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--coins", "monero", "--address-pool", "1000",
		"--reconcile-every", "0")
	shop := newClient(t, s.url, token)
	ordered, err := shop.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(100), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := shop.GetCard(t.Context(), ordered.UUID); err != nil { // caches the token
		t.Fatal(err)
	}

	// Only the API uses the locked table. Each lookup of a token that is not
	// cached blocks a connection, until none is left.
	db := rig.OpenSQL(t, url)
	lock, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.Exec("LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	f := &flood{status: map[string]int{}}
	for _, other := range others {
		f.send(t, 1, http.MethodGet, s.url+"/api/currencies", other, "")
	}
	held := func() (connections int) {
		if err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tokens'::regclass").Scan(
			&connections); err != nil {
			t.Fatal(err)
		}
		return connections
	}
	for end := time.Now().Add(10 * time.Second); held() < len(others); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("lookups block %d of the API's %d connections", held(), len(others))
		}
	}
	f.send(t, 600, http.MethodPost, s.url+"/api/cards", token, `{"usd_amount":100,"currency":"monero"}`)
	f.send(t, 600, http.MethodGet, s.url+"/api/cards/"+ordered.UUID.String(), token, "")
	f.send(t, 100, http.MethodPatch, s.url+"/api/webhooks/"+ordered.UUID.String(), token, `{"description":"none"}`)
	for _, kind := range []string{"create", "read", "manage"} {
		s.awaitShed(t, kind, "authenticate") // if the cached token has expired
	}

	if _, err := db.Exec(
		"INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) SELECT 'monero', $1, address, amount, h.height + 1, $2 FROM cards, simulated_chains h WHERE uuid = $3",
		strings.Repeat("ab", 32), time.Now().UnixMilli(), ordered.UUID); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE simulated_chains SET height = height + 20"); err != nil {
		t.Fatal(err)
	}
	// Requests time out after 17 seconds, which ends the flood.
	for end := time.Now().Add(12 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var status string
		if err := db.QueryRow("SELECT status FROM cards WHERE uuid = $1", ordered.UUID).Scan(&status); err != nil {
			t.Fatal(err)
		}
		if status == "generated" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the card is %s", status)
		}
	}
	if n := held(); n != len(others) {
		t.Errorf("%d connections of the API are blocked: the flood has ended too early", n)
	}
	res, err := http.Get(s.url + "/livez")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("livez: %v, %v", res, err)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.all.Wait()
	var cards int
	if err := db.QueryRow("SELECT count(*) FROM cards").Scan(&cards); err != nil {
		t.Fatal(err)
	}
	// Every order either created a card or was refused with 503.
	if n := f.status["POST 201"]; n == 0 || n != cards-1 || n+f.status["POST 503"] != 600 {
		t.Errorf("%d cards, responses %v", cards, f.status)
	}
	if f.status["GET 503"] == 0 || f.status["GET 200"]+f.status["GET 503"] != 600+len(others) ||
		f.status["PATCH 404"]+f.status["PATCH 503"] != 100 {
		t.Errorf("responses: %v", f.status)
	}
}

// createTokens creates tokens of the account, without starting a command for
// each.
func (p *program) createTokens(t *testing.T, n int) (all []string) {
	t.Helper()
	v, err := vault.Open(p.setting("CARDMINT_KEYS"))
	must(t, err)
	db, err := store.Open(t.Context(), p.setting("CARDMINT_DATABASE_URL"), 1, chain.Currencies())
	must(t, err)
	defer func() { _ = db.Close() }()
	accounts, err := account.New(db, v, account.Config{Mode: card.TestMode})
	must(t, err)
	for i := range n {
		_, text, err := accounts.CreateToken(t.Context(), "shop",
			account.TokenRequest{Name: fmt.Sprint("flood ", i), Scopes: account.AllScopes})
		must(t, err)
		all = append(all, text.Reveal())
	}
	return all
}

// awaitShed waits until a request of one of the kinds was refused because all
// slots of the kind are occupied.
func (s *server) awaitShed(t *testing.T, kinds ...string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		scraped := s.scrape(t)
		for _, kind := range kinds {
			if metricValue(scraped, `cardmint_requests_shed_total{kind="`+kind+`"}`) != "0" {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no request of the kinds %v was refused", kinds)
		}
	}
}
