package webhook_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestMain(m *testing.M) { rig.Main(m) }

// fixture is an account with a card, the service, a sender, and a clock that
// only the test moves.
type fixture struct {
	t        *testing.T
	url      string
	vault    *vault.Vault
	store    *store.Store
	sender   *webhook.Sender
	poster   *webhook.HTTPPoster
	cfg      webhook.Config
	wake     func()
	webhooks *webhook.Service
	account  uuid.UUID
	card     *card.Card

	log    *log
	bubble bool // use the clock of the test's bubble

	mu    sync.Mutex
	now   time.Time
	calls []string // of the sender to the store

	around func(do func() error) error                    // runs each transaction, if set
	due    func(id uuid.UUID) ([]webhook.Delivery, error) // replaces DueDeliveries, if set
	fails  string                                         // the method of the store that returns errStore
}

const timeout = 2 * time.Second // of an attempt

// onEach runs a test on every database.
func onEach(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) { f(t, newFixture(t, url)) })
}

func newFixture(t *testing.T, url string) *fixture {
	t.Helper()
	v := vaulttest.New(t)
	s := &fixture{t: t, url: url, vault: v, log: &log{}, now: time.Now(), wake: func() {}}
	s.open()
	s.account = newAccount(t, s.store)
	s.card = insertCard(t, s.store, s.account)
	return s
}

// open opens the service and the sender.
func (s *fixture) open() {
	s.t.Helper()
	var err error
	s.store, err = store.Open(s.t.Context(), s.url, 4, chain.Currencies())
	check(s.t, err)
	opened := s.store
	s.t.Cleanup(func() { _ = opened.Close() })
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: true, Timeout: timeout}).At(s.clock)
	s.t.Cleanup(poster.Close)
	s.poster = poster
	s.cfg.Now = s.clock
	s.webhooks, err = webhook.New(unreliable{s.store, s}, s.vault, poster, func() {}, s.cfg)
	check(s.t, err)
	s.sender, err = webhook.NewSender(unreliable{s.store, s}, s.vault, poster, s.wake,
		slog.New(slog.NewTextHandler(s.log, nil)), s.cfg)
	check(s.t, err)
	sender := s.sender
	s.t.Cleanup(func() { _ = sender.Close(context.Background()) })
}

// replica is another process on the same database.
func (s *fixture) replica() *fixture {
	s.t.Helper()
	other := &fixture{t: s.t, url: s.url, vault: s.vault, log: s.log, now: s.clock(), cfg: s.cfg, wake: s.wake,
		account: s.account, card: s.card}
	other.open()
	return other
}

func (s *fixture) clock() time.Time {
	if s.bubble {
		return time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *fixture) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// deliver sends all due deliveries, and waits for them.
func (s *fixture) deliver() {
	s.t.Helper()
	check(s.t, s.sender.Tick(s.t.Context()))
	check(s.t, s.sender.Close(s.t.Context()))
}

// insertEvents commits n events of the account's card.
func (s *fixture) insertEvents(n int) []card.Event {
	s.t.Helper()
	es := make([]card.Event, n)
	for i := range es {
		es[i] = card.ExampleEvent(uuid.Must(uuid.NewV7()), s.account, uuid.Must(uuid.NewV7()), card.EventUnderpaid)
		es[i].CardUUID, es[i].CreatedAt = s.card.UUID, s.clock()
	}
	check(s.t, s.store.WebhookTx(s.t.Context(), func(tx webhook.Tx) error { return tx.InsertEvents(s.t.Context(), es) }))
	return es
}

func (s *fixture) createWebhook(url string, types ...card.EventType) (*webhook.Webhook, card.Secret) {
	s.t.Helper()
	w, secret, err := s.webhooks.CreateWebhook(s.t.Context(), s.account, webhook.Request{URL: &url, Types: &types})
	check(s.t, err)
	return w, secret
}

func (s *fixture) webhook(id uuid.UUID) *webhook.Webhook {
	s.t.Helper()
	w, err := s.webhooks.GetWebhook(s.t.Context(), s.account, id)
	check(s.t, err)
	return w
}

// deliveries returns a webhook's deliveries, oldest event first.
func (s *fixture) deliveries(id uuid.UUID) []webhook.Delivery {
	s.t.Helper()
	ds, _, err := s.webhooks.ListDeliveries(s.t.Context(), s.account, id, webhook.DeliveryFilter{Limit: 1000})
	check(s.t, err)
	for i, j := 0, len(ds)-1; i < j; i, j = i+1, j-1 {
		ds[i], ds[j] = ds[j], ds[i]
	}
	return ds
}

func (s *fixture) wantStates(id uuid.UUID, want ...webhook.DeliveryState) []webhook.Delivery {
	s.t.Helper()
	ds := s.deliveries(id)
	if len(ds) != len(want) {
		s.t.Fatalf("%d deliveries, want %d", len(ds), len(want))
	}
	for i, d := range ds {
		if d.State != want[i] {
			s.t.Errorf("delivery %d is %s after %d tries, want %s", i, d.State, d.Tries, want[i])
		}
	}
	return ds
}

// received is a request that a receiver got.
type received struct {
	ID, Timestamp, Signature string
	Body                     string
	header                   http.Header
}

// receiver records its requests.
type receiver struct {
	URL string

	mu     sync.Mutex
	got    []received
	answer func(n int) int // status of the n-th request, from 0 on
}

// newReceiver starts a receiver that answers 200, or the status that answer
// returns.
func newReceiver(t *testing.T, answer func(n int) int) *receiver {
	return startReceiver(t, answer, true)
}

func startReceiver(t *testing.T, answer func(n int) int, alive bool) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	server := httptest.NewUnstartedServer(r)
	server.Config.SetKeepAlivesEnabled(alive)
	server.Start()
	t.Cleanup(server.Close)
	r.URL = server.URL + "/hook"
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	n := len(r.got)
	r.got = append(r.got,
		received{req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp"), req.Header.Get("webhook-signature"),
			string(body), req.Header})
	r.mu.Unlock()
	if r.answer != nil {
		w.WriteHeader(r.answer(n))
	}
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// signedBy reports whether the official library verifies the request with the
// secret.
func (r received) signedBy(t *testing.T, secret card.Secret) bool {
	t.Helper()
	key, err := standardwebhooks.NewWebhook(secret.Reveal())
	check(t, err)
	return key.VerifyIgnoringTimestamp([]byte(r.Body), r.header) == nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
