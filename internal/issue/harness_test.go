package issue_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
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
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestMain(m *testing.M) { rig.Main(m) }

var databases = rig.Databases{Migrate: func(url string) error {
	_, err := store.Migrate(context.Background(), url)
	return err
}}

// room is a process that issues cards. The test controls its supplier and its clock, and stands between it and its store.
type room struct {
	t            *testing.T
	db           *store.Store
	beside       *sql.DB
	url          string
	vault        *vault.Vault
	press        *press
	disk         *disk
	issuer       *issue.Issuer
	clock        *clock
	log          *lines
	account      uuid.UUID
	woken        atomic.Int32
	wokenIssuers atomic.Int32
	with         func(*issue.Config) // changes how a process is configured; nil for one supplier and no patience
}

// onEach runs a test on every database. In the end no card was issued twice, or without the payment.
func onEach(t *testing.T, f func(t *testing.T, r *room)) {
	t.Helper()
	t.Parallel()
	databases.Each(t, func(t *testing.T, url string) {
		r := newRoom(t, url)
		f(t, r)
		r.audit()
	})
}

func newRoom(t *testing.T, url string) *room {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "x.keys")
	check(t, vault.Create(keys))
	v, err := vault.Open(keys)
	check(t, err)
	db, err := store.Open(t.Context(), url, 4, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	r := &room{t: t, db: db, beside: rig.OpenSQL(t, url), url: url, vault: v, clock: &clock{now: time.Now()}, log: &lines{}}
	r.press = &press{name: "press", cards: map[string]card.Credentials{}}
	r.start()
	r.account = r.newAccount("shop")
	return r
}

func (r *room) newAccount(name string) uuid.UUID {
	r.t.Helper()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: name, CreatedAt: r.clock.Now()}
	check(r.t, r.db.InsertAccount(r.t.Context(), a))
	return a.ID
}

// start begins a process, as after a crash of the one before.
func (r *room) start() {
	r.disk = &disk{Store: r.db, vault: r.vault}
	r.issuer = r.issuerOf(0)
}

// issuerOf returns an issuer of the process, by the index of its route.
func (r *room) issuerOf(index int) *issue.Issuer {
	r.t.Helper()
	cfg := issue.Config{Routes: issue.Only(r.press), Index: index, Now: r.clock.Now}
	if r.with != nil {
		r.with(&cfg)
	}
	i, err := issue.New(r.disk, r.disk, issue.Wake{Sender: func() { r.woken.Add(1) }, Issuers: func() { r.wokenIssuers.Add(1) }}, slog.New(slog.NewTextHandler(r.log, nil)), cfg)
	check(r.t, err)
	return i
}

// paid returns a card whose payment is confirmed.
func (r *room) paid() *card.Card {
	r.t.Helper()
	return r.paidBy(r.account, 150_50)
}

// paidBy returns an account's card whose payment is confirmed.
func (r *room) paidBy(account uuid.UUID, usd card.USD) *card.Card {
	r.t.Helper()
	c := &card.Card{UUID: uuid.Must(uuid.NewV7()), AccountID: account, CreatedAt: r.clock.Now(), USD: usd, Coin: chain.Currencies()[0], Amount: 1e12,
		Address: uuid.NewString(), Rate: card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: card.RateScale}, At: r.clock.Now(), Source: "fixed"},
		ExpiresAt: r.clock.Now().Add(time.Hour), ConfirmationsRequired: 10}
	_, err := r.db.InsertCard(r.t.Context(), c)
	check(r.t, err)
	r.assess(c, card.Paid)
	return c
}

func (r *room) manyPaid(n int) []*card.Card {
	r.t.Helper()
	cards := make([]*card.Card, n)
	for i := range cards {
		cards[i] = r.paid()
	}
	return cards
}

// assess stores a new state of a card's payment.
func (r *room) assess(c *card.Card, state card.PaymentState) {
	r.t.Helper()
	check(r.t, r.db.SettleTx(r.t.Context(), func(tx settle.Tx) error {
		a := card.Assessment{State: state, Received: c.Amount, Settled: c.Amount}
		return tx.SaveVerdicts(r.t.Context(), []card.Verdict{{Card: c, Assessment: a, Issue: state == card.Paid}})
	}))
}

// retry is an operator's decision.
func (r *room) retry(c *card.Card) {
	r.t.Helper()
	check(r.t, r.db.OperatorTx(r.t.Context(), func(tx operator.Tx) error { return tx.ReopenIntent(r.t.Context(), c.UUID) }))
}

// exec changes the database behind everybody's back.
func (r *room) exec(query string) {
	r.t.Helper()
	_, err := r.beside.Exec(query)
	check(r.t, err)
}

// due lets all the time pass that intents wait.
func (r *room) due() { r.exec("UPDATE intents SET due_at = 0") }

// issue makes one round, which must work on n cards.
func (r *room) issue(n int) {
	r.t.Helper()
	r.fails(n, nil)
}

// fails makes one round, which must work on n cards and end with an error.
func (r *room) fails(n int, want error) {
	r.t.Helper()
	if got, err := r.issuer.IssueDue(r.t.Context()); got != n || !errors.Is(err, want) {
		r.t.Errorf("worked on %d cards, error %v; want %d, %v", got, err, n, want)
	}
}

// want compares how far the issuing of a card is, and what the last answer was.
func (r *room) want(c *card.Card, state issue.State, answer, reason string) operator.IntentRecord {
	r.t.Helper()
	record, err := r.db.Record(r.t.Context(), c.UUID)
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

// wantCard compares the credentials that are stored with those that the supplier made.
func (r *room) wantCard(c *card.Card) {
	r.t.Helper()
	r.want(c, issue.StateDone, "issued", "")
	stored, err := r.db.CardByUUID(r.t.Context(), c.AccountID, c.UUID)
	check(r.t, err)
	if stored.Sealed == nil {
		r.t.Fatal("no credentials are stored")
	}
	got, err := r.vault.OpenCredentials(c.UUID, c.AccountID, *stored.Sealed)
	check(r.t, err)
	if made := r.press.cards[c.UUID.String()]; got != made || made.CardNumber == "" {
		r.t.Errorf("the card that is stored is not the one that was made")
	}
}

// wantWait compares when the next attempt is due.
func (r *room) wantWait(c *card.Card, least, most time.Duration) {
	r.t.Helper()
	record, err := r.db.Record(r.t.Context(), c.UUID)
	check(r.t, err)
	const slack = 5 * time.Second // between two clocks, and for a slow machine
	if wait := time.Until(record.Intent.DueAt); wait < least-slack || wait > most+time.Millisecond {
		r.t.Errorf("the next attempt is due in %s, want %s to %s", wait, least, most)
	}
}

// wantCalls compares what the supplier was asked since the last time.
func (r *room) wantCalls(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.press.calls); diff != "" {
		r.t.Errorf("calls: %s", diff)
	}
	r.press.calls = nil
}

// count returns what a query counts.
func (r *room) count(query string) (n int) {
	r.t.Helper()
	check(r.t, r.beside.QueryRow("SELECT COUNT(*) FROM "+query).Scan(&n))
	return n
}

// audit compares what was issued with what was told and kept.
func (r *room) audit() {
	r.t.Helper()
	cards := r.count("cards WHERE status = 'generated'")
	for _, also := range []string{"credentials", "intents WHERE state = 'done' AND card_number_hash IS NOT NULL", "events WHERE type = 'card.generated'",
		"credentials s JOIN cards c ON c.uuid = s.card_uuid WHERE c.payment_state = 'paid'"} {
		if n := r.count(also); n != cards {
			r.t.Errorf("%d cards are generated, but there are %d %s", cards, n, also)
		}
	}
	for _, text := range r.press.secrets() {
		if bytes.Contains(r.log.bytes(), []byte(text)) {
			r.t.Errorf("%s is in the log", text)
		}
	}
}

// clock is a clock that stands still unless the test moves it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// says is an answer of the supplier.
type says func(ctx context.Context, r issue.Request) (issue.Answer, error)

// press is a supplier with a ledger. It issues what is submitted and knows what it issued, unless the test says otherwise.
type press struct {
	name           string
	retention      time.Duration
	any            bool // it makes cards of whatever amount
	submit, lookup says

	mu    sync.Mutex
	cards map[string]card.Credentials // the ledger, by key
	calls []string
	keys  []string // of all calls
}

func (p *press) Name() string                { return p.name }
func (p *press) KeyRetention() time.Duration { return p.retention }

func (p *press) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	p.called("submit", r)
	if p.submit != nil {
		return p.submit(ctx, r)
	}
	return p.make(ctx, r)
}

func (p *press) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	p.called("look up", r)
	if p.lookup != nil {
		return p.lookup(ctx, r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, made := p.cards[r.Key]; made {
		return issue.Answer{Outcome: issue.Issued, Credentials: c}, nil
	}
	return issue.Answer{}, nil
}

func (p *press) called(what string, r issue.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Reference != "" {
		what += " " + r.Reference
	}
	p.calls, p.keys = append(p.calls, what), append(p.keys, r.Key)
}

// asks returns how often it was asked for a card: to make it, or what became of it.
func (p *press) asks(c *card.Card) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.keys {
		if key == c.UUID.String() {
			n++
		}
	}
	return n
}

// make says that the card is issued. The same key always yields the same card.
func (p *press) make(_ context.Context, r issue.Request) (issue.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, made := p.cards[r.Key]
	if id, err := uuid.Parse(r.Key); !made && err == nil && (r.USD == 150_50 || p.any) {
		c = cardOf(id)
		p.cards[r.Key] = c
	}
	return issue.Answer{Outcome: issue.Issued, Credentials: c}, nil
}

// secrets returns what must be nowhere.
func (p *press) secrets() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.cards {
		all = append(all, c.CardNumber.Reveal(), c.URLPassword.Reveal())
	}
	return all
}

func cardOf(id uuid.UUID) card.Credentials {
	body := fmt.Sprintf("99%013d", binary.BigEndian.Uint64(id[8:])%1e13)
	return card.Credentials{CardNumber: card.Secret(body + card.LuhnDigit(body)), ExpirationDate: card.Secret(time.Now().AddDate(2, 0, 0).Format("01/06")),
		SecurityCode: "123", URL: "https://cards.invalid/x", URLPassword: card.Secret("password of " + id.String())}
}

// these returns what gives the same answer every time.
func these(a issue.Answer, err error) says {
	return func(context.Context, issue.Request) (issue.Answer, error) { return a, err }
}

// after has something happen before an answer.
func after(happens func(), then says) says {
	return func(ctx context.Context, r issue.Request) (issue.Answer, error) {
		happens()
		return then(ctx, r)
	}
}

// disk is the store and the vault, with faults.
type disk struct {
	*store.Store
	vault *vault.Vault

	claims        func([]issue.Intent, int, time.Duration) []issue.Intent // changes what was claimed
	claimFails    error
	reading       func() error // what happens before cards are read
	commits       func(ctx context.Context, commit func() error) error
	prolongFails  error
	prolonged     []int // intents in each prolongation
	patient       bool  // who is to be tried again waits until the test has it due, however slow the machine is
	saveFails     error
	sealFails     error
	digestFails   error
	commitsOf     []int // cards in each transaction that was tried
	waits         []time.Duration
	claimedCounts []int
}

func (d *disk) ClaimIntents(ctx context.Context, claim issue.Claim, n int, ttl time.Duration) ([]issue.Intent, error) {
	d.claimedCounts = append(d.claimedCounts, n)
	if d.claimFails != nil {
		return nil, d.claimFails
	}
	intents, err := d.Store.ClaimIntents(ctx, claim, n, ttl)
	slices.SortFunc(intents, func(a, b issue.Intent) int { return bytes.Compare(a.CardUUID[:], b.CardUUID[:]) })
	if d.claims != nil {
		intents = d.claims(intents, n, ttl)
	}
	return intents, err
}

func (d *disk) ProlongIntents(ctx context.Context, intents []issue.Intent, ttl time.Duration) error {
	d.prolonged = append(d.prolonged, len(intents))
	if d.prolongFails != nil {
		return d.prolongFails
	}
	return d.Store.ProlongIntents(ctx, intents, ttl)
}

func (d *disk) CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error) {
	if d.reading != nil {
		if err := d.reading(); err != nil {
			return nil, err
		}
	}
	return d.Store.CardsByUUID(ctx, ids)
}

func (d *disk) IssueTx(ctx context.Context, f func(issue.Tx) error) error {
	commit := func() error {
		return d.Store.IssueTx(ctx, func(tx issue.Tx) error { return f(&counting{tx, d}) })
	}
	if d.commits != nil {
		return d.commits(ctx, commit)
	}
	return commit()
}

// counting counts how many cards are stored together.
type counting struct {
	issue.Tx
	d *disk
}

func (c *counting) SaveIssued(ctx context.Context, cards []issue.IssuedCard) error {
	c.d.commitsOf = append(c.d.commitsOf, len(cards))
	return c.Tx.SaveIssued(ctx, cards)
}

func (c *counting) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	if c.d.saveFails != nil {
		return c.d.saveFails
	}
	c.d.lengthen(intents)
	return c.Tx.SaveIntents(ctx, intents)
}

// lengthen lengthens waits if the disk is patient.
func (d *disk) lengthen(intents []issue.Intent) {
	for n := range intents {
		if d.patient && intents[n].Wait > 0 {
			intents[n].Wait = time.Hour
		}
	}
}

func (d *disk) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	if d.saveFails != nil {
		return d.saveFails
	}
	d.lengthen(intents)
	for _, i := range intents {
		d.waits = append(d.waits, i.Wait)
	}
	return d.Store.SaveIntents(ctx, intents)
}

func (d *disk) SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error) {
	if d.sealFails != nil {
		return card.Sealed{}, d.sealFails
	}
	return d.vault.SealCredentials(id, account, c)
}

func (d *disk) Digest(label string, data []byte) ([]byte, error) {
	if d.digestFails != nil {
		return nil, d.digestFails
	}
	return d.vault.Digest(label, data)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errFault = errors.New("connection reset by peer")

// reason returns why a card is not issued yet.
func (r *room) reason(c *card.Card) string {
	r.t.Helper()
	record, err := r.db.Record(r.t.Context(), c.UUID)
	check(r.t, err)
	return record.Intent.Reason
}

// of returns the claim of the only supplier.
func of(supplier string) issue.Claim {
	return issue.Claim{Supplier: supplier, Shares: []issue.Share{{Supplier: supplier, Min: card.MinUSD, Max: card.MaxUSD}}}
}
