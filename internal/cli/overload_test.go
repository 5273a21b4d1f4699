package cli_test

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
	"github.com/cardmint/cardmint/internal/rig"
)

// flood is requests that are sent at the same time.
type flood struct {
	all    sync.WaitGroup
	mu     sync.Mutex
	status map[string]int // how often a method was answered with a status
}

// send sends n requests at the same time.
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

// A flood has taken every place and every connection of the API, none of which comes free. The worker has its own: a payment is seen and its
// card issued meanwhile.
func TestOverload_AFloodedAPIHindersNeitherWatcherNorIssuer(t *testing.T) {
	patience(t)
	t.Parallel()
	url := rig.Postgres(t)
	p := newProgram(t, url)
	token := p.account(t)
	others := []string{p.must(t, "token", "create", "shop"), p.must(t, "token", "create", "shop")}
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--coins", "monero", "--address-pool", "1000", "--reconcile-every", "0")
	shop := newClient(t, s.url, token)
	ordered, err := shop.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: decimal.NewFromInt(100), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := shop.GetCard(t.Context(), ordered.UUID); err != nil { // so that its token is known for a while
		t.Fatal(err)
	}

	// What only the API uses is locked: the statements of createCard, and those that look up tokens, keep their connections.
	db := rig.OpenSQL(t, url)
	lock, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.Exec("LOCK TABLE replies, tokens IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	f := &flood{status: map[string]int{}}
	const body = `{"usd_amount":100,"currency":"monero"}`
	f.send(t, 600, http.MethodPost, s.url+"/api/cards", token, body)
	for _, other := range others {
		f.send(t, 1, http.MethodGet, s.url+"/api/currencies", other, "")
	}
	held := func() (connections int) {
		if err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IN ('replies'::regclass, 'tokens'::regclass)").Scan(&connections); err != nil {
			t.Fatal(err)
		}
		return connections
	}
	for end := time.Now().Add(10 * time.Second); held() < 16; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the API has taken %d of its 16 connections", held())
		}
	}
	f.send(t, 600, http.MethodGet, s.url+"/api/cards/"+ordered.UUID.String(), token, "")
	f.send(t, 100, http.MethodDelete, s.url+"/api/webhooks/"+ordered.UUID.String(), token, "")
	s.awaitShed(t, "create")

	if _, err := db.Exec("INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) SELECT 'monero', $1, address, amount, h.height + 1, $2 FROM cards, simulated_chains h WHERE uuid = $3",
		strings.Repeat("ab", 32), time.Now().UnixMilli(), ordered.UUID); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE simulated_chains SET height = height + 20"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(12 * time.Second); ; time.Sleep(20 * time.Millisecond) { // less than the 17 seconds after which requests give up
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
	if n := held(); n != 16 {
		t.Errorf("%d connections of the API are taken: it was not flooded all the time", n)
	}
	s.awaitShed(t, "read", "authenticate") // of the token, if it must be looked up again
	s.awaitShed(t, "manage", "authenticate")
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
	// Whoever had a place has a card; whoever had none was told so.
	if n := f.status["POST 201"]; n < 256 || n != cards-1 || n+f.status["POST 503"] != 600 {
		t.Errorf("%d cards, beside %v", cards, f.status)
	}
	if f.status["GET 503"] == 0 || f.status["GET 200"]+f.status["GET 503"] != 602 || f.status["DELETE 404"]+f.status["DELETE 503"] != 100 {
		t.Errorf("answered: %v", f.status)
	}
}

// awaitShed waits until requests of one of the kinds were refused because all its places are taken.
func (s *server) awaitShed(t *testing.T, kinds ...string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		scraped := s.scrape(t)
		for _, kind := range kinds {
			if metric(scraped, `cardmint_requests_shed_total{kind="`+kind+`"}`) != "0" {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no request of the kinds %v was refused", kinds)
		}
	}
}
