package order_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestMain(m *testing.M) { rig.Main(m) }

const coin card.Amount = 1_000000000000 // price of a card of 150 dollars at the rate of 150

var databases = storetest.Databases

var (
	monero = chain.Currencies()[0]
	pebble = card.Currency{Code: "pebble", Name: "Pebble", Decimals: 2, Confirmations: 3, BlockTime: time.Minute,
		AmountKey: "amount"}
)

// fixture is one replica of the service and its store. The test controls time
// and rates.
type fixture struct {
	t       *testing.T
	url     string
	db      *store.Store
	direct  *sql.DB // bypasses the store
	spy     *spy    // wraps the store of the service
	vault   *vault.Vault
	rates   *dial
	orders  *order.Service
	account uuid.UUID
	woken   int   // wakes of the watchers
	paid    *paid // the sandbox's transactions, if the test needs any
	now     time.Time
}

// setup configures a service. Its zero value fits most tests.
type setup struct {
	config  func(*order.Config)
	sandbox func(*fixture) map[string]order.Sandbox
	wake    func(*fixture)
}

// onEach runs a test on every database.
func onEach(t *testing.T, with setup, f func(t *testing.T, s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) { f(t, open(t, url, with)) })
}

// open opens a fixture without addresses.
func open(t *testing.T, url string, with setup) *fixture {
	t.Helper()
	s := &fixture{t: t, url: url, direct: rig.OpenSQL(t, url),
		rates: &dial{usd: map[string]string{"monero": "150", "pebble": "3"}}, now: time.Now()}
	s.vault = vaulttest.New(t)
	var err error
	s.db, err = store.Open(t.Context(), url, 4, []card.Currency{monero, pebble})
	check(t, err)
	t.Cleanup(func() { _ = s.db.Close() })
	s.spy = &spy{Store: s.db}
	s.orders = s.replica(s.spy, with)
	s.account = s.newAccount()
	return s
}

// replica returns another service on the same database.
func (s *fixture) replica(on order.Store, with setup) *order.Service {
	s.t.Helper()
	cfg := order.Config{Currencies: []card.Currency{monero, pebble}, Now: func() time.Time { return s.now }}
	if with.config != nil {
		with.config(&cfg)
	}
	wake, sandbox := func() { s.woken++ }, map[string]order.Sandbox(nil)
	if with.wake != nil {
		wake = func() { with.wake(s) }
	}
	if with.sandbox != nil {
		sandbox = with.sandbox(s)
	}
	orders, err := order.New(on, s.vault, s.rates, sandbox, wake, cfg)
	check(s.t, err)
	return orders
}

func (s *fixture) newAccount() uuid.UUID {
	s.t.Helper()
	id := uuid.Must(uuid.NewV7())
	check(s.t, s.db.InsertAccount(s.t.Context(), account.Account{ID: id, Name: id.String(), CreatedAt: s.now}))
	return id
}

// stock puts n addresses of a currency into the store: "monero-0" and so on.
func (s *fixture) stock(currency string, n int) {
	s.t.Helper()
	addresses := make([]settle.Address, n)
	for i := range addresses {
		addresses[i] = settle.Address{Currency: currency, Address: fmt.Sprintf("%s-%d", currency, i), Position: int64(i)}
	}
	check(s.t, s.db.SettleTx(s.t.Context(), func(tx settle.Tx) error {
		return tx.InsertAddresses(s.t.Context(), addresses, time.Time{})
	}))
	s.attest(currency)
}

// attest starts an epoch, as a watcher does.
func (s *fixture) attest(currency string) {
	s.t.Helper()
	l, err := s.db.AcquireLease(s.t.Context(), settle.LeaseName(currency), "watcher", time.Hour)
	check(s.t, err)
	if l.Epoch == 0 {
		_, err = s.db.BeginEpoch(s.t.Context(), l, settle.Epoch{Currency: currency, Number: l.Now.UnixMilli()})
		check(s.t, err)
	}
}

func (s *fixture) check(usd, currency string) order.Order {
	s.t.Helper()
	o, wrong := s.orders.Check(order.Request{USDAmount: usd, Currency: currency})
	if len(wrong) > 0 {
		s.t.Fatal(wrong)
	}
	return o
}

// tryOrder orders a card with a payment in monero.
func (s *fixture) tryOrder(usd, key string) (*card.Card, bool, error) {
	s.t.Helper()
	return s.orders.CreateCard(s.t.Context(), s.account, s.check(usd, "monero"), key)
}

// create orders a card of usd dollars.
func (s *fixture) create(usd, key string) *card.Card {
	s.t.Helper()
	c, replay, err := s.tryOrder(usd, key)
	check(s.t, err)
	if replay {
		s.t.Errorf("card %s is a replay", c.UUID)
	}
	return c
}

// generate issues a card without a payment.
func (s *fixture) generate(c *card.Card, credentials card.Credentials) {
	s.t.Helper()
	sealed, err := s.vault.SealCredentials(c.UUID, c.AccountID, credentials)
	check(s.t, err)
	_, err = s.direct.Exec(
		`INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) VALUES ($1, $2, $3, $4, $5, $6)`,
		c.UUID, sealed.CardNumber, sealed.ExpirationDate, sealed.SecurityCode, sealed.URL, sealed.URLPassword)
	check(s.t, err)
	s.exec("UPDATE cards SET status = 'generated' WHERE uuid = $1", c.UUID)
}

// exec changes the database directly.
func (s *fixture) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.direct.Exec(statement, args...)
	check(s.t, err)
}

// spy records the calls to the store, and injects errors and results.
type spy struct {
	order.Store
	mu    sync.Mutex
	calls []string
	// before is called before each call; its error is returned.
	before func(call string) error
	// inserting is called before a card is inserted; its error is returned.
	inserting func(*card.Card) error
	// inserted is called after a card was inserted within a quota.
	inserted func()
	// canceled is called after a card was canceled; its error is returned.
	canceled func() error
	// reserved is called after a card and its reservation were inserted; its
	// error is returned.
	reserved func() error
	ages     map[string]time.Duration // replaces the store's ages
}

func (s *spy) note(call string) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	before := s.before
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(call)
}

// takeCalls returns the calls to the store since the last time.
func (s *spy) takeCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// fail makes a call fail from now on; nil makes it succeed again.
func (s *spy) fail(call string, err error) {
	s.before = func(this string) error {
		if this == call {
			return err
		}
		return nil
	}
}

func (s *spy) InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error) {
	if err := s.insert(c); err != nil {
		return false, err
	}
	inserted, err := s.Store.InsertCard(ctx, c, limit)
	if s.inserted != nil {
		s.inserted()
	}
	return inserted, err
}

func (s *spy) insert(c *card.Card) error {
	err := s.note("InsertCard")
	if err == nil && s.inserting != nil {
		err = s.inserting(c)
	}
	return err
}

func (s *spy) Offers(ctx context.Context) ([]card.SupplierOffers, error) {
	if s.before != nil {
		if err := s.before("Offers"); err != nil {
			return nil, err
		}
	}
	return s.Store.Offers(ctx)
}

func (s *spy) CardByUUID(ctx context.Context, account, id uuid.UUID) (*card.Card, error) {
	if err := s.note("CardByUUID"); err != nil {
		return nil, err
	}
	return s.Store.CardByUUID(ctx, account, id)
}

func (s *spy) CardOfKey(ctx context.Context, account uuid.UUID, key string) (uuid.UUID, error) {
	if err := s.note("CardOfKey"); err != nil {
		return uuid.Nil, err
	}
	return s.Store.CardOfKey(ctx, account, key)
}

func (s *spy) AwaitReplication(ctx context.Context) error {
	if err := s.note("AwaitReplication"); err != nil {
		return err
	}
	return s.Store.AwaitReplication(ctx)
}

func (s *spy) Cards(ctx context.Context, filter order.Filter) ([]*card.Card, error) {
	if err := s.note(fmt.Sprintf("Cards %d", filter.Limit)); err != nil {
		return nil, err
	}
	return s.Store.Cards(ctx, filter)
}

func (s *spy) Exposure(ctx context.Context, account uuid.UUID, open bool) (order.Exposure, error) {
	if err := s.note(fmt.Sprintf("Exposure %t", open)); err != nil {
		return order.Exposure{}, err
	}
	return s.Store.Exposure(ctx, account, open)
}

func (s *spy) TakeAddresses(ctx context.Context, currency string, n int) ([]string, error) {
	if err := s.note(fmt.Sprintf("TakeAddresses %s %d", currency, n)); err != nil {
		return nil, err
	}
	return s.Store.TakeAddresses(ctx, currency, n)
}

func (s *spy) PoolState(ctx context.Context, currency string) (order.PoolState, error) {
	if err := s.note("PoolState " + currency); err != nil {
		return order.PoolState{}, err
	}
	state, err := s.Store.PoolState(ctx, currency)
	if age, set := s.ages[currency]; set {
		return order.PoolState{Epoch: 1, Moving: true, CheckedAgo: age}, nil
	}
	return state, err
}

// dial is rates that the test sets.
type dial struct {
	usd map[string]string
	err error
}

func (d *dial) Rate(currency string) (card.Rate, error) {
	if d.err != nil {
		return card.Rate{}, d.err
	}
	fixed, err := rate.NewFixed(maps.Clone(d.usd), func() time.Time { return time.UnixMilli(1_800_000_000_000).UTC() })
	if err != nil {
		return card.Rate{}, err
	}
	return fixed.Rate(currency)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
