package settle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestMain(m *testing.M) { rig.Main(m) }

// fixture is a replica of the service with a simulated chain. The test controls
// its time and its supplier.
type fixture struct {
	t        *testing.T
	store    *store.Store
	vault    *vault.Vault
	rates    *adjustableRate
	supplier *scripted
	issuer   *issue.Issuer
	orders   *order.Service
	desk     *operator.Service
	chain    *simulated.Chain
	watcher  *settle.Watcher
	account  uuid.UUID
	now      time.Time
	url      string
	name     string   // of the process
	doubts   []string // discrepancies allowed when the test ends
}

var databases = storetest.Databases

// onEach runs a test on every database.
func onEach(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		v := vaulttest.New(t)
		first := &fixture{t: t, url: url, vault: v, rates: &adjustableRate{usd: "150"}, now: time.Now()}
		first.supplier = &scripted{Sandbox: supplier.NewSandbox("sandbox", supplier.Prompt, first.clock),
			asked: map[string]int{}}
		first.start()
		a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "shop", CreatedAt: first.now}
		check(t, first.store.InsertAccount(t.Context(), a))
		first.account = a.ID
		f(t, first)
		first.reconcile()
	})
}

// Discrepancies until an operator has decided.
const (
	lost   = string(operator.WaitingReversed)
	parked = string(operator.WaitingParked)
)

var quiet = slog.New(slog.DiscardHandler)

// wakesNothing returns a Wake without loops.
func wakesNothing() settle.Wake {
	return settle.Wake{Pass: func() {}, Orders: func() {}, Issuer: func() {}, Sender: func() {}}
}

// start opens the store and wires a replica on it.
func (s *fixture) start() {
	s.t.Helper()
	var err error
	s.store, err = store.Open(s.t.Context(), s.url, 4, chain.Currencies())
	check(s.t, err)
	s.t.Cleanup(func() { _ = s.store.Close() })
	s.chain = simulated.New(chain.Currencies()[0], s.store, s.clock)
	s.orders, err = order.New(s.store, s.vault, s.rates, nil, func() {}, order.Config{
		Currencies: chain.Currencies(), Now: s.clock})
	check(s.t, err)
	s.desk = operator.New(s.store, s.rates, quiet)
	s.issuer = newIssuer(s.store, s.vault, s.supplier, s.clock)
	s.name = uuid.NewString()
	s.watcher = s.watch(s.chain, settle.Config{FillBatch: 200})
	check(s.t, s.watcher.Tick(s.t.Context()))
}

// watch returns another watcher of the same process.
func (s *fixture) watch(c settle.Chain, cfg settle.Config) *settle.Watcher {
	s.t.Helper()
	cfg.PoolSize, cfg.Replica, cfg.Now = 200, s.name, s.clock
	if cfg.CompareEvery == 0 {
		cfg.CompareEvery = -1
	}
	if cfg.LeaseTTL == 0 { // the database's clock advances while the test's stands still
		cfg.LeaseTTL = time.Minute
	}
	w, err := settle.New(s.store, s.rates, c, wakesNothing(), quiet, cfg)
	check(s.t, err)
	return w
}

// coins opens the store again, with cards of these currencies.
func (s *fixture) coins(coins []card.Currency) {
	s.t.Helper()
	db, err := store.Open(s.t.Context(), s.url, 4, coins)
	check(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	s.store = db
	s.desk = operator.New(db, s.rates, quiet)
	s.issuer = newIssuer(db, s.vault, s.supplier, s.clock)
	s.orders, err = order.New(db, s.vault, s.rates, nil, func() {}, order.Config{Currencies: coins, Now: s.clock})
	check(s.t, err)
}

// replica starts another process on the same database.
func (s *fixture) replica() *fixture {
	other := *s
	other.orders, other.watcher = nil, nil
	// The first one watches; it must release the lease before another can.
	check(s.t, s.watcher.Close(s.t.Context()))
	other.start()
	return &other
}

func (s *fixture) clock() time.Time { return s.now }

func (s *fixture) order() *card.Card {
	s.t.Helper()
	c, err := create(s.t.Context(), s.orders, s.account, "150")
	check(s.t, err)
	return c
}

func (s *fixture) pay(c *card.Card, amount card.Amount, confirmations int) {
	s.t.Helper()
	_, err := s.chain.Pay(s.t.Context(), c.Address, amount, confirmations)
	check(s.t, err)
}

func (s *fixture) mine(n int) { check(s.t, s.store.SimulatedMine(s.t.Context(), "monero", n)) }

func (s *fixture) tick() {
	s.t.Helper()
	check(s.t, s.watcher.Tick(s.t.Context()))
}

// settle lets all due work finish.
func (s *fixture) settle() {
	s.t.Helper()
	s.tick()
	for {
		n, err := s.issuer.IssueDue(s.t.Context())
		check(s.t, err)
		if n == 0 {
			return
		}
	}
}

// want reads the card again and compares.
func (s *fixture) want(c *card.Card, status card.Status, state card.PaymentState, received card.Amount,
	confirmations int64) *card.Card {
	s.t.Helper()
	got, err := s.orders.GetCard(s.t.Context(), s.account, c.UUID)
	check(s.t, err)
	if got.Status != status || got.State != state || got.Received != received || got.Confirmations() != confirmations {
		s.t.Errorf("card is %s, %s, received %d, %d confirmations; want %s, %s, %d, %d",
			got.Status, got.State, got.Received, got.Confirmations(), status, state, received, confirmations)
	}
	if (got.Credentials != nil) != (status == card.Generated) {
		s.t.Errorf("card is %s, credentials: %v", status, got.Credentials != nil)
	}
	return got
}

// reconcile is the last assertion of every test: all receipts are credited,
// surplus or unattributed, and every issued card was paid.
func (s *fixture) reconcile() {
	s.t.Helper()
	books, err := s.desk.Reconcile(context.Background(), operator.Audit{})
	check(s.t, err)
	var doubts []string
	for _, d := range books.Discrepancies {
		doubts = append(doubts, d.Text)
	}
	doubts = append(doubts, undecided(books)...)
	if diff := cmp.Diff(s.doubts, doubts); diff != "" {
		s.t.Errorf("doubts: %s\n%+v", diff, books)
	}
}

// undecided returns the kinds of entries that wait for an operator, except
// those whose amounts the ledger has: late payments and unattributed coins.
func undecided(books operator.Books) (kinds []string) {
	for _, w := range books.Waiting {
		if w.Kind != operator.WaitingUnattributed && w.Kind != operator.WaitingLate {
			kinds = append(kinds, string(w.Kind))
		}
	}
	return kinds
}

// ledger has the books' amounts for a coin.
type ledger struct {
	Counted, Unattributed, Returned, Unconfirmed          card.Amount
	Made, Open, Held, Surplus, Refunded, Lost, WrittenOff card.Amount
	Paid, Issued, Late                                    int64
}

func (l ledger) books() operator.CoinBooks {
	return operator.CoinBooks{Currency: "monero", Counted: card.TotalOf(l.Counted),
		Unattributed: card.TotalOf(l.Unattributed), Returned: card.TotalOf(l.Returned),
		Unconfirmed: card.TotalOf(l.Unconfirmed),
		Made:        card.TotalOf(l.Made), Open: card.TotalOf(l.Open), Held: card.TotalOf(l.Held),
		Surplus:  card.TotalOf(l.Surplus),
		Refunded: card.TotalOf(l.Refunded),
		Lost:     card.TotalOf(l.Lost), WrittenOff: card.TotalOf(l.WrittenOff), Paid: l.Paid, Issued: l.Issued, Late: l.Late,
		SoldCents: card.TotalOf(card.Amount(15000 * l.Issued))}
}

func (s *fixture) resolve(c *card.Card, kind operator.ResolutionKind) operator.Resolved {
	s.t.Helper()
	done, err := s.desk.ResolveCard(s.t.Context(),
		operator.Decision{CardUUID: c.UUID, Kind: kind, Note: "as agreed", Operator: "alice"})
	check(s.t, err)
	return done
}

// wantIssued compares the number of cards that the supplier made.
func (s *fixture) wantIssued(n int) {
	s.t.Helper()
	if got := s.supplier.cards(); got != n {
		s.t.Errorf("the supplier made %d cards, want %d", got, n)
	}
}

// adjustableRate is a rate that tests change.
type adjustableRate struct{ usd string }

func (d *adjustableRate) Rate(currency string) (card.Rate, error) {
	if d.usd == "" {
		return card.Rate{}, card.ErrNoRate
	}
	f, err := rate.NewFixed(map[string]string{currency: d.usd}, time.Now)
	if err != nil {
		return card.Rate{}, err
	}
	return f.Rate(currency)
}

// scripted is the sandbox supplier with faults, and a ledger of the cards it
// made.
type scripted struct {
	*supplier.Sandbox
	// fault, if set, returns the error of an attempt: the card is issued anyway
	// unless the error is errDeclined.
	fault func(attempt int, c *card.Credentials) error

	mu    sync.Mutex
	asked map[string]int // attempts by key
}

var errDeclined = errors.New("declined")

func (s *scripted) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	a, err := s.Sandbox.Submit(ctx, r)
	if err != nil {
		return a, err
	}
	s.mu.Lock()
	s.asked[r.Key]++
	attempt := s.asked[r.Key]
	s.mu.Unlock()
	if s.fault == nil {
		return a, nil
	}
	err = s.fault(attempt, &a.Credentials)
	if errors.Is(err, errDeclined) {
		s.mu.Lock()
		delete(s.asked, r.Key)
		s.mu.Unlock()
		return issue.Answer{Outcome: issue.Declined, Reason: "out of stock"}, nil
	}
	return a, err
}

func (s *scripted) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	s.mu.Lock()
	made := s.asked[r.Key] > 0
	s.mu.Unlock()
	if !made {
		return issue.Answer{}, nil
	}
	return s.Submit(ctx, r)
}

func (s *scripted) cards() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errFault = fmt.Errorf("connection reset by peer")

// create orders a card of usd.
func create(ctx context.Context, s *order.Service, account uuid.UUID, usd string) (*card.Card, error) {
	o, wrong := s.Check(order.Request{USDAmount: usd, Currency: "monero"})
	if len(wrong) > 0 {
		return nil, card.ErrInvalidRequest.WithFields(wrong...)
	}
	c, _, err := s.CreateCard(ctx, account, o, "")
	return c, err
}

// newIssuer returns the issuer of the only supplier.
func newIssuer(db issue.Store, v issue.Vault, s issue.Supplier, now func() time.Time) *issue.Issuer {
	issuer, err := issue.New(db, v, issue.Wake{}, quiet, issue.Config{Routes: issue.Only(s), Now: now})
	if err != nil {
		panic(err) // the configuration is fixed
	}
	return issuer
}
