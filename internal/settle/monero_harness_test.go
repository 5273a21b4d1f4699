package settle_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
)

// moneroFixture is a fixture with a real chain: a node and a view-only wallet.
// The tests of the process share both, so the wallet has also received money
// for cards that this database does not know.
type moneroFixture struct {
	*fixture
	net     *rig.MoneroNet
	node    *rig.Proxy // proxy of the node
	wallet  *rig.Proxy // proxy of the wallet
	chain   *monero.Chain
	config  monero.Config
	policy  order.Config
	pool    int
	batch   int           // at most, per pass; 0 for the default
	compare time.Duration // see Config.CompareEvery
	lease   time.Duration // 0 for the default
	later   time.Duration // offset of the clock of service and watcher; the node's clock is real
}

// onMonero runs a test with real Monero on SQLite. changes apply before the
// start.
func onMonero(t *testing.T, f func(t *testing.T, s *moneroFixture), changes ...func(*moneroFixture)) {
	t.Helper()
	s := newMoneroFixture(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), changes...)
	s.tick()
	f(t, s)
}

// onMoneroEach runs it on every database in turn.
func onMoneroEach(t *testing.T, f func(t *testing.T, s *moneroFixture), changes ...func(*moneroFixture)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { onMonero(t, f, changes...) })
	t.Run("postgres", func(t *testing.T) { onMoneroPostgres(t, f, changes...) })
}

func onMoneroPostgres(t *testing.T, f func(t *testing.T, s *moneroFixture), changes ...func(*moneroFixture)) {
	t.Helper()
	s := newMoneroFixture(t, rig.Postgres(t), changes...)
	s.tick()
	f(t, s)
}

// few is the number of confirmations if any number will do: each block takes
// time.
const few = 4

func fewConfirmations(s *moneroFixture) { s.policy.Currencies[0].Confirmations = few }

// newMoneroFixture opens a fixture before its first pass. When the test ends
// its books are reconciled.
func newMoneroFixture(t *testing.T, url string, changes ...func(*moneroFixture)) *moneroFixture {
	t.Helper()
	v := vaulttest.New(t)
	s := &moneroFixture{fixture: &fixture{t: t, url: url, vault: v, rates: &adjustableRate{usd: "150"}},
		net: rig.Monero(t)}
	s.net.DropMempool(t)
	s.supplier = &scripted{Sandbox: supplier.NewSandbox("sandbox", supplier.Prompt, time.Now), asked: map[string]int{}}
	// monerod accepts 25 connections from one machine, and only a proxy closes
	// unused ones.
	s.node, s.wallet = rig.NewProxy(t, s.net.DaemonURL), rig.NewProxy(t, s.net.WalletURL)
	s.config = monero.Config{DaemonURL: s.node.URL, WalletURL: s.wallet.URL}
	s.policy, s.pool, s.compare = order.Config{Currencies: chain.Currencies()}, 24, -1
	for _, change := range changes {
		change(s)
	}
	s.open()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "till", CreatedAt: time.Now()}
	check(t, s.store.InsertAccount(t.Context(), a))
	s.account = a.ID
	t.Cleanup(s.reconcile)
	return s
}

// open opens the store and wires a replica on it.
func (s *moneroFixture) open() {
	s.t.Helper()
	_, err := store.Migrate(s.t.Context(), s.url)
	check(s.t, err)
	s.store, err = store.Open(s.t.Context(), s.url, 8, chain.Currencies())
	check(s.t, err)
	opened := s.store
	s.t.Cleanup(func() { _ = opened.Close() })
	policy := s.policy
	policy.Now = s.clock
	s.orders, err = order.New(s.store, s.vault, s.rates, nil, func() {}, policy)
	check(s.t, err)
	s.desk = operator.New(s.store, s.rates, quiet)
	s.issuer = newIssuer(s.store, s.vault, s.supplier, s.clock)
	s.restart()
}

// restart replaces the watcher, which forgets all state of node and wallet.
func (s *moneroFixture) restart() {
	s.t.Helper()
	if s.watcher != nil {
		check(s.t, s.watcher.Close(s.t.Context()))
	}
	var err error
	s.chain, err = monero.New(s.config)
	check(s.t, err)
	s.t.Cleanup(s.chain.Close)
	s.watcher, err = settle.New(s.store, s.rates, s.chain, wakesNothing(), quiet,
		settle.Config{PoolSize: s.pool, FillBatch: s.batch, CompareEvery: s.compare, Now: s.clock,
			LeaseTTL: s.lease})
	check(s.t, err)
}

// replica is another process on the same database, before its first pass.
func (s *moneroFixture) replica() *moneroFixture {
	s.t.Helper()
	shared := *s.fixture
	other := *s
	other.fixture = &shared
	other.watcher = nil
	other.open()
	return &other
}

func (s *moneroFixture) clock() time.Time { return time.Now().Add(s.later) }

// pay sends to a card's address. The transaction is in the mempool then.
func (s *moneroFixture) pay(c *card.Card, amount card.Amount) (txID string) {
	s.t.Helper()
	return s.net.Pay(s.t, c.Address, int64(amount))
}

// paid pays a card and mines confirmations.
func (s *moneroFixture) paid(c *card.Card, amount card.Amount, confirmations int) (txID string) {
	s.t.Helper()
	txID = s.pay(c, amount)
	s.net.Confirm(s.t, txID, confirmations)
	return txID
}

func (s *moneroFixture) mine(n int) {
	s.t.Helper()
	s.net.Mine(s.t, n)
}

// expire moves the end of a card's quote, because the node's time cannot be
// moved.
func (s *moneroFixture) expire(c *card.Card, at time.Time) {
	s.t.Helper()
	_, err := rig.OpenSQL(s.t,
		s.url).Exec(fmt.Sprintf("UPDATE cards SET expires_at = %d WHERE address = '%s'", at.UnixMilli(), c.Address))
	check(s.t, err)
}

// top returns the newest block.
func (s *moneroFixture) top() (height int64, at time.Time) {
	s.t.Helper()
	var answer struct {
		BlockHeader struct{ Height, Timestamp int64 } `json:"block_header"`
	}
	s.net.Daemon.Call(s.t, "get_last_block_header", nil, &answer)
	return answer.BlockHeader.Height, time.Unix(answer.BlockHeader.Timestamp, 0)
}

// mineAfter waits until at, and mines until the newest block is no older: one
// block, as a rule.
func (s *moneroFixture) mineAfter(at time.Time) {
	s.t.Helper()
	second := at.Add(time.Second - 1).Truncate(time.Second) // blocks have no smaller unit
	<-time.After(time.Until(second))                        // the node uses the machine's clock
	for deadline := time.Now().Add(20 * time.Second); ; {
		s.mine(1)
		if _, newest := s.top(); !newest.Before(at) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("no block is from after %s", at)
		}
	}
}

// refuses makes a pass that must fail soon with the error, also in Health.
func (s *moneroFixture) refuses(want error) {
	s.t.Helper()
	started := time.Now()
	err := s.watcher.Tick(s.t.Context())
	// a call's timeout is 15 s, and the machine may be busy
	if took := time.Since(started); took > 40*time.Second {
		s.t.Errorf("the pass took %s", took)
	}
	if err == nil || (want != nil && !errors.Is(err, want)) {
		s.t.Errorf("the pass ended with %v, want %v", err, want)
	}
	if health := s.watcher.Health(); health == nil || (want != nil && !errors.Is(health, want)) {
		s.t.Errorf("health is %v, want %v", health, want)
	}
}

// recovers makes passes until one succeeds, and issues the due cards.
func (s *moneroFixture) recovers() {
	s.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; {
		err := s.watcher.Tick(s.t.Context())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
	if err := s.watcher.Health(); err != nil {
		s.t.Error(err)
	}
	s.settle()
}

// wantMoney compares the books' credits for cards.
func (s *moneroFixture) wantMoney(want ledger) {
	s.t.Helper()
	books, err := s.desk.Reconcile(s.t.Context(), operator.Audit{})
	check(s.t, err)
	if len(books.Coins) != 1 {
		s.t.Fatalf("books: %+v", books)
	}
	got := books.Coins[0]
	wanted := want.books()
	wanted.Counted, wanted.Unattributed = wanted.Counted.Add(got.Unattributed), got.Unattributed
	if diff := cmp.Diff(wanted, got); diff != "" {
		s.t.Errorf("books: %s", diff)
	}
}

// unattributed returns the amounts at addresses of no card, by transaction.
func (s *moneroFixture) unattributed() map[string]card.Amount {
	s.t.Helper()
	ts, err := s.store.Unattributed(s.t.Context(), 10_000)
	check(s.t, err)
	sums := map[string]card.Amount{}
	for _, x := range ts {
		sums[x.TxID] += x.Amount
	}
	return sums
}

// wantEvents compares the events of a card.
func (s *moneroFixture) wantEvents(c *card.Card, want ...card.EventType) {
	s.t.Helper()
	record, err := s.store.CardDetail(s.t.Context(), c.UUID)
	check(s.t, err)
	var got []card.EventType
	for _, e := range record.Events {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("events: %s", diff)
	}
}

// facts is the stored state of cards, transfers and events, without the height
// of the chain.
func (s *moneroFixture) facts(cards ...*card.Card) []operator.CardDetail {
	s.t.Helper()
	var all []operator.CardDetail
	for _, c := range cards {
		r, err := s.store.CardDetail(s.t.Context(), c.UUID)
		check(s.t, err)
		r.Card.TipHeight = 0
		all = append(all, r)
	}
	return all
}

// unchanged compares the stored state with earlier facts.
func (s *moneroFixture) unchanged(before []operator.CardDetail) {
	s.t.Helper()
	ids := make([]*card.Card, len(before))
	for i, r := range before {
		ids[i] = r.Card
	}
	if diff := cmp.Diff(before, s.facts(ids...)); diff != "" {
		s.t.Errorf("changed: %s", diff)
	}
}

// wantNoAddress expects that a card fails for lack of an address, immediately.
func (s *moneroFixture) wantNoAddress() {
	s.t.Helper()
	check(s.t, s.orders.Prepare(s.t.Context())) // as a server does every second
	started := time.Now()
	c, err := create(s.t.Context(), s.orders, s.account, "150")
	if !errors.Is(err, card.ErrNoAddress) || time.Since(started) > time.Second {
		s.t.Errorf("card %v, error %v after %s", c, err, time.Since(started))
	}
}

// wantAddress creates a card.
func (s *moneroFixture) wantAddress() *card.Card {
	s.t.Helper()
	check(s.t, s.orders.Prepare(s.t.Context()))
	return s.order()
}

// ids returns the ids of cards.
func ids(cards []*card.Card) []uuid.UUID {
	all := make([]uuid.UUID, len(cards))
	for i, c := range cards {
		all[i] = c.UUID
	}
	return all
}
