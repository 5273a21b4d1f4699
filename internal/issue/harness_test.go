package issue_test

import (
	"bytes"
	"database/sql"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestMain(m *testing.M) { rig.Main(m) }

var databases = storetest.Databases

// fixture is a process that issues cards. The test controls its supplier and
// clock, and can inject faults between process and store.
type fixture struct {
	t            *testing.T
	db           *store.Store
	direct       *sql.DB
	url          string
	vault        *vault.Vault
	supplier     *fakeSupplier
	store        *faultyStore
	issuer       *issue.Issuer
	clock        *clock
	log          *logBuffer
	account      uuid.UUID
	woken        atomic.Int32
	wokenIssuers atomic.Int32
	with         func(*issue.Config) // changes the configuration; nil for one supplier without patience
}

// onEach runs a test on every database. At the end it checks that no card was
// issued twice or without payment.
func onEach(t *testing.T, f func(t *testing.T, r *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		r := newFixture(t, url)
		f(t, r)
		r.audit()
	})
}

func newFixture(t *testing.T, url string) *fixture {
	t.Helper()
	r := &fixture{t: t, db: storetest.Open(t, url), direct: rig.OpenSQL(t, url), url: url, vault: vaulttest.New(t),
		clock: &clock{now: time.Now()},
		log:   &logBuffer{}}
	r.supplier = &fakeSupplier{name: "press", cards: map[string]card.Credentials{}}
	r.start()
	r.account = r.newAccount("shop")
	return r
}

func (r *fixture) newAccount(name string) uuid.UUID {
	r.t.Helper()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: name, CreatedAt: r.clock.Now()}
	check(r.t, r.db.InsertAccount(r.t.Context(), a))
	return a.ID
}

// start starts a process, as after a crash of the previous one.
func (r *fixture) start() {
	r.store = &faultyStore{Store: r.db, vault: r.vault}
	r.issuer = r.issuerOf(0)
}

// issuerOf returns an issuer of the process, by the index of its route.
func (r *fixture) issuerOf(index int) *issue.Issuer {
	r.t.Helper()
	cfg := issue.Config{Routes: issue.Only(r.supplier), Index: index, Now: r.clock.Now}
	if r.with != nil {
		r.with(&cfg)
	}
	i, err := issue.New(r.store, r.store,
		issue.Wake{Sender: func() { r.woken.Add(1) }, Issuers: func() { r.wokenIssuers.Add(1) }},
		slog.New(slog.NewTextHandler(r.log, nil)), cfg)
	check(r.t, err)
	return i
}

// paid returns a card whose payment is confirmed.
func (r *fixture) paid() *card.Card {
	r.t.Helper()
	return r.paidBy(r.account, 150_50)
}

// paidBy returns a card of an account, with a confirmed payment.
func (r *fixture) paidBy(account uuid.UUID, usd card.USD) *card.Card {
	r.t.Helper()
	c := &card.Card{UUID: uuid.Must(uuid.NewV7()), AccountID: account, CreatedAt: r.clock.Now(), USD: usd,
		Coin: chain.Currencies()[0], Amount: 1e12,
		Address: uuid.NewString(),
		Rate: card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: card.RateScale}, At: r.clock.Now(),
			Source: "fixed"},
		ExpiresAt: r.clock.Now().Add(time.Hour), ConfirmationsRequired: 10}
	_, err := r.db.InsertCard(r.t.Context(), c, 0)
	check(r.t, err)
	r.assess(c, card.Paid)
	return c
}

func (r *fixture) manyPaid(n int) []*card.Card {
	r.t.Helper()
	cards := make([]*card.Card, n)
	for i := range cards {
		cards[i] = r.paid()
	}
	return cards
}

// assess stores a new state of a card's payment.
func (r *fixture) assess(c *card.Card, state card.PaymentState) {
	r.t.Helper()
	check(r.t, r.db.SettleTx(r.t.Context(), func(tx settle.Tx) error {
		a := card.Assessment{State: state, Received: c.Amount, Settled: c.Amount}
		return tx.SaveVerdicts(r.t.Context(), []card.Verdict{{Card: c, Assessment: a, Issue: state == card.Paid}})
	}))
}

// retry retries a card as an operator does.
func (r *fixture) retry(c *card.Card) {
	r.t.Helper()
	check(r.t, r.db.OperatorTx(r.t.Context(), func(tx operator.Tx) error {
		return tx.ReopenIntent(r.t.Context(), c.UUID)
	}))
}

// exec changes the database directly.
func (r *fixture) exec(query string) {
	r.t.Helper()
	_, err := r.direct.Exec(query)
	check(r.t, err)
}

// due makes all waiting intents due.
func (r *fixture) due() { r.exec("UPDATE intents SET due_at = 0") }

// issue runs one round, and checks that it works on n cards.
func (r *fixture) issue(n int) {
	r.t.Helper()
	r.fails(n, nil)
}

// fails runs one round, and checks that it works on n cards and fails.
func (r *fixture) fails(n int, want error) {
	r.t.Helper()
	if got, err := r.issuer.IssueDue(r.t.Context()); got != n || !errors.Is(err, want) {
		r.t.Errorf("worked on %d cards, error %v; want %d, %v", got, err, n, want)
	}
}

// want checks an intent's state and last answer.
func (r *fixture) want(c *card.Card, state issue.State, answer, reason string) operator.IntentRecord {
	r.t.Helper()
	record, err := r.db.CardDetail(r.t.Context(), c.UUID)
	check(r.t, err)
	i := *record.Intent
	if i.State != string(state) || i.Answer != answer || i.Reason != reason {
		r.t.Errorf("issuing is %s, last answer %q, %q; want %s, %q, %q", i.State, i.Answer, i.Reason, state, answer, reason)
	}
	if done := state == issue.StateDone; record.Credentials != done || (record.Card.Status == card.Generated) != done {
		r.t.Errorf("issuing is %s, card is %s, credentials: %t", state, record.Card.Status, record.Credentials)
	}
	return i
}

// wantCard compares the stored credentials with the issued ones.
func (r *fixture) wantCard(c *card.Card) {
	r.t.Helper()
	r.want(c, issue.StateDone, "issued", "")
	stored, err := r.db.CardByUUID(r.t.Context(), c.AccountID, c.UUID)
	check(r.t, err)
	if stored.Sealed == nil {
		r.t.Fatal("no credentials are stored")
	}
	got, err := r.vault.OpenCredentials(c.UUID, c.AccountID, *stored.Sealed)
	check(r.t, err)
	if made := r.supplier.cards[c.UUID.String()]; got != made || made.CardNumber == "" {
		r.t.Errorf("the stored card is not the issued one")
	}
}

// wantWait checks when the next attempt is due.
func (r *fixture) wantWait(c *card.Card, least, most time.Duration) {
	r.t.Helper()
	record, err := r.db.CardDetail(r.t.Context(), c.UUID)
	check(r.t, err)
	const slack = 5 * time.Second // for the difference between two clocks, and slow machines
	if wait := time.Until(record.Intent.DueAt); wait < least-slack || wait > most+time.Millisecond {
		r.t.Errorf("the next attempt is due in %s, want %s to %s", wait, least, most)
	}
}

// wantCalls checks the calls to the supplier since the last check.
func (r *fixture) wantCalls(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.supplier.calls); diff != "" {
		r.t.Errorf("calls: %s", diff)
	}
	r.supplier.calls = nil
}

// count returns the number of rows.
func (r *fixture) count(query string) (n int) {
	r.t.Helper()
	check(r.t, r.direct.QueryRow("SELECT COUNT(*) FROM "+query).Scan(&n))
	return n
}

// audit compares issued cards with events and stored rows.
func (r *fixture) audit() {
	r.t.Helper()
	cards := r.count("cards WHERE status = 'generated'")
	for _, also := range []string{"credentials", "intents WHERE state = 'done' AND card_number_hash IS NOT NULL",
		"events WHERE type = 'card.generated'",
		"credentials s JOIN cards c ON c.uuid = s.card_uuid WHERE c.payment_state = 'paid'"} {
		if n := r.count(also); n != cards {
			r.t.Errorf("%d cards were issued, but there are %d %s", cards, n, also)
		}
	}
	for _, text := range r.supplier.secrets() {
		if bytes.Contains(r.log.bytes(), []byte(text)) {
			r.t.Errorf("%s is in the log", text)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errFault = errors.New("connection reset by peer")

// reason returns why a card was not issued yet.
func (r *fixture) reason(c *card.Card) string {
	r.t.Helper()
	record, err := r.db.CardDetail(r.t.Context(), c.UUID)
	check(r.t, err)
	return record.Intent.Reason
}

// of returns the claim of a process with one supplier.
func of(supplier string) issue.Claim {
	return issue.Claim{Supplier: supplier, Shares: []issue.Share{{Supplier: supplier, Min: card.MinUSD, Max: card.MaxUSD}}}
}
