package operator_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
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

const coin card.Amount = 1_000000000000 // price of a card of 150 dollars at the rate of 150

// Discrepancies that last until an operator decides.
const (
	lost     = string(operator.WaitingReversed)
	parked   = string(operator.WaitingParked)
	declined = string(operator.WaitingRefundDue)
)

// fixture is a service with a simulated chain. The test controls time, rate and
// supplier.
type fixture struct {
	t             *testing.T
	vault         *vault.Vault
	store         *store.Store
	direct        *sql.DB // bypasses the store
	chain         *simulated.Chain
	watcher       *settle.Watcher
	orders        *order.Service
	rates         *fakeRates
	supplier      *fakeSupplier
	issuer        *issue.Issuer
	service       *operator.Service
	log           bytes.Buffer // of the service
	account       uuid.UUID
	now           time.Time
	discrepancies []string // expected at the end of the test
}

// onEach runs a test on every database. At the end the books must agree.
func onEach(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		s := open(t, url)
		f(t, s)
		s.reconcile()
	})
}

func open(t *testing.T, url string) *fixture {
	t.Helper()
	s := &fixture{t: t, direct: rig.OpenSQL(t, url), rates: &fakeRates{usd: "150"}, now: time.Now()}
	coins, quiet, nobody := chain.Currencies(), slog.New(slog.DiscardHandler), func() {}
	s.vault, s.store = vaulttest.New(t), storetest.Open(t, url)
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "shop", CreatedAt: s.now}
	check(t, s.store.InsertAccount(t.Context(), a))
	s.account = a.ID
	s.chain = simulated.New(coins[0], s.store, s.clock)
	var err error
	s.watcher, err = settle.New(s.store, s.rates, s.chain,
		settle.Wake{Pass: nobody, Orders: nobody, Issuer: nobody, Sender: nobody}, quiet,
		settle.Config{PoolSize: 40, FillBatch: 40, LeaseTTL: time.Hour, Now: s.clock})
	check(t, err)
	s.orders, err = order.New(s.store, s.vault, s.rates, nil, nobody, order.Config{Currencies: coins, Now: s.clock})
	check(t, err)
	s.supplier = &fakeSupplier{Sandbox: supplier.NewSandbox("sandbox", supplier.Prompt, s.clock), attempts: map[string]int{},
		issued: map[string]bool{}}
	s.issuer, err = issue.New(s.store, s.vault, issue.Wake{Sender: nobody}, quiet,
		issue.Config{Routes: issue.Only(s.supplier), Now: s.clock})
	check(t, err)
	s.service = operator.New(s.store, s.rates,
		slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.tick() // creates addresses
	return s
}

func (s *fixture) clock() time.Time { return s.now }

// order creates a card of 150 dollars.
func (s *fixture) order() *card.Card {
	s.t.Helper()
	o, wrong := s.orders.Check(order.Request{USDAmount: "150", Currency: "monero"})
	if len(wrong) > 0 {
		s.t.Fatal(wrong)
	}
	c, _, err := s.orders.CreateCard(s.t.Context(), s.account, o, "")
	check(s.t, err)
	return c
}

func (s *fixture) pay(c *card.Card, amount card.Amount, confirmations int) {
	s.t.Helper()
	_, err := s.chain.Pay(s.t.Context(), c.Address, amount, confirmations)
	check(s.t, err)
}

func (s *fixture) mine(n int) {
	s.t.Helper()
	check(s.t, s.store.SimulatedMine(s.t.Context(), "monero", n))
}

func (s *fixture) tick() {
	s.t.Helper()
	check(s.t, s.watcher.Tick(s.t.Context()))
}

// settle runs all loops until nothing is due.
func (s *fixture) settle() {
	s.t.Helper()
	s.tick()
	check(s.t, s.issuer.Tick(s.t.Context()))
}

// retryIntents makes all waiting intents due, and issues their cards.
func (s *fixture) retryIntents() {
	s.t.Helper()
	s.exec("UPDATE intents SET due_at = 0")
	check(s.t, s.issuer.Tick(s.t.Context()))
}

// exec changes the database directly.
func (s *fixture) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.direct.Exec(statement, args...)
	check(s.t, err)
}

// want reads the card and compares it.
func (s *fixture) want(c *card.Card, status card.Status, state card.PaymentState, received card.Amount,
	confirmations int64) {
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
}

// wantIssued checks the number of cards that the supplier issued.
func (s *fixture) wantIssued(n int) {
	s.t.Helper()
	if got := len(s.supplier.issued); got != n {
		s.t.Errorf("the supplier issued %d cards, want %d", got, n)
	}
}

// reconcile checks at the end of every test that the books have exactly the
// expected discrepancies.
func (s *fixture) reconcile() {
	s.t.Helper()
	books, err := s.service.Reconcile(context.Background(), operator.Audit{})
	check(s.t, err)
	var discrepancies []string
	for _, d := range books.Discrepancies {
		discrepancies = append(discrepancies, d.Text)
	}
	discrepancies = append(discrepancies, undecided(books)...)
	if diff := cmp.Diff(s.discrepancies, discrepancies); diff != "" {
		s.t.Errorf("discrepancies: %s\n%+v", diff, books)
	}
}

// undecided returns the kinds of the cards that need an operator, except late
// payments, which the ledger contains.
func undecided(books operator.Books) (kinds []string) {
	for _, w := range books.Waiting {
		if w.Kind != operator.WaitingUnattributed && w.Kind != operator.WaitingLate {
			kinds = append(kinds, string(w.Kind))
		}
	}
	return kinds
}

// ledger is the sums of one coin.
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

// wantBooks compares the books of monero.
func (s *fixture) wantBooks(want ledger) {
	s.t.Helper()
	books, err := s.service.Reconcile(s.t.Context(), operator.Audit{})
	check(s.t, err)
	if diff := cmp.Diff([]operator.CoinBooks{want.books()}, books.Coins); diff != "" {
		s.t.Error(diff)
	}
}

func (s *fixture) resolve(c *card.Card, kind operator.ResolutionKind) operator.Resolved {
	s.t.Helper()
	done, err := s.service.ResolveCard(s.t.Context(),
		operator.Decision{CardUUID: c.UUID, Kind: kind, Note: "as agreed", Operator: "alice"})
	check(s.t, err)
	return done
}

// fakeRates is a rate that the test sets.
type fakeRates struct{ usd string }

func (d *fakeRates) Rate(currency string) (card.Rate, error) {
	if d.usd == "" {
		return card.Rate{}, card.ErrNoRate
	}
	f, err := rate.NewFixed(map[string]string{currency: d.usd}, time.Now)
	if err != nil {
		return card.Rate{}, err
	}
	return f.Rate(currency)
}

// fakeSupplier is the sandbox's supplier with faults. It records the cards that
// it issues.
type fakeSupplier struct {
	*supplier.Sandbox
	// fault, if set, returns the error of an attempt. The card is issued
	// despite the error, unless it is errDeclined.
	fault func(attempt int, c *card.Credentials) error

	mu       sync.Mutex // requests are concurrent
	attempts map[string]int
	issued   map[string]bool
}

var errDeclined = errors.New("declined")

func (s *fakeSupplier) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	a, err := s.Sandbox.Submit(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[r.Key]++
	if err == nil && s.fault != nil {
		err = s.fault(s.attempts[r.Key], &a.Credentials)
	}
	if errors.Is(err, errDeclined) {
		return issue.Answer{Outcome: issue.Declined, Reason: "out of stock"}, nil
	}
	s.issued[r.Key] = true
	return a, err
}

func (s *fakeSupplier) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	s.mu.Lock()
	made := s.issued[r.Key]
	s.mu.Unlock()
	if !made {
		return issue.Answer{}, nil
	}
	return s.Submit(ctx, r)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
