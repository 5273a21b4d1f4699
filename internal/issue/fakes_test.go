package issue_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

// clock is a clock that only the test moves.
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

// logBuffer is a concurrency-safe log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// handler answers a request.
type handler func(ctx context.Context, r issue.Request) (issue.Answer, error)

// fakeSupplier is a supplier with a ledger. It issues every submitted card and
// remembers it, unless the test replaces a handler.
type fakeSupplier struct {
	name           string
	retention      time.Duration
	any            bool // issue cards of any amount
	submit, lookup handler

	mu    sync.Mutex
	cards map[string]card.Credentials // the ledger, by key
	calls []string
	keys  []string // of all calls
}

func (p *fakeSupplier) Name() string                { return p.name }
func (p *fakeSupplier) KeyRetention() time.Duration { return p.retention }

func (p *fakeSupplier) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	p.record("submit", r)
	if p.submit != nil {
		return p.submit(ctx, r)
	}
	return p.make(ctx, r)
}

func (p *fakeSupplier) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	p.record("look up", r)
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

func (p *fakeSupplier) record(what string, r issue.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Reference != "" {
		what += " " + r.Reference
	}
	p.calls, p.keys = append(p.calls, what), append(p.keys, r.Key)
}

// requests returns the number of requests and lookups for a card.
func (p *fakeSupplier) requests(c *card.Card) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.keys {
		if key == c.UUID.String() {
			n++
		}
	}
	return n
}

// make issues a card. The same key always yields the same card.
func (p *fakeSupplier) make(_ context.Context, r issue.Request) (issue.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, made := p.cards[r.Key]
	if id, err := uuid.Parse(r.Key); !made && err == nil && (r.USD == 150_50 || p.any) {
		c = cardOf(id)
		p.cards[r.Key] = c
	}
	return issue.Answer{Outcome: issue.Issued, Credentials: c}, nil
}

// secrets returns texts that must never be logged.
func (p *fakeSupplier) secrets() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.cards {
		all = append(all, c.CardNumber.Reveal(), c.URLPassword.Reveal())
	}
	return all
}

func cardOf(id uuid.UUID) card.Credentials {
	body := fmt.Sprintf("99%013d", binary.BigEndian.Uint64(id[8:])%1e13)
	return card.Credentials{CardNumber: card.Secret(body + card.LuhnDigit(body)),
		ExpirationDate: card.Secret(time.Now().AddDate(2, 0, 0).Format("01/06")),
		SecurityCode:   "123", URL: "https://cards.invalid/x", URLPassword: card.Secret("password of " + id.String())}
}

// answering returns a handler that always gives the same answer.
func answering(a issue.Answer, err error) handler {
	return func(context.Context, issue.Request) (issue.Answer, error) { return a, err }
}

// after returns a handler that calls happens before it answers.
func after(happens func(), then handler) handler {
	return func(ctx context.Context, r issue.Request) (issue.Answer, error) {
		happens()
		return then(ctx, r)
	}
}

// faultyStore is a store and vault with faults.
type faultyStore struct {
	*store.Store
	vault *vault.Vault

	claims        func([]issue.Intent, int, time.Duration) []issue.Intent // changes what was claimed
	claimFails    error
	reading       func() error // called before cards are read
	commits       func(ctx context.Context, commit func() error) error
	prolongFails  error
	prolonged     []int // intents in each prolongation
	patient       bool  // retries wait until the test calls due, even on a slow machine
	saveFails     error
	sealFails     error
	digestFails   error
	commitsOf     []int // cards in each attempted transaction
	waits         []time.Duration
	claimedCounts []int
}

func (d *faultyStore) ClaimIntents(ctx context.Context, claim issue.Claim, n int, ttl time.Duration) ([]issue.Intent,
	error) {
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

func (d *faultyStore) ProlongIntents(ctx context.Context, intents []issue.Intent, ttl time.Duration) error {
	d.prolonged = append(d.prolonged, len(intents))
	if d.prolongFails != nil {
		return d.prolongFails
	}
	return d.Store.ProlongIntents(ctx, intents, ttl)
}

func (d *faultyStore) CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error) {
	if d.reading != nil {
		if err := d.reading(); err != nil {
			return nil, err
		}
	}
	return d.Store.CardsByUUID(ctx, ids)
}

func (d *faultyStore) IssueTx(ctx context.Context, f func(issue.Tx) error) error {
	commit := func() error {
		return d.Store.IssueTx(ctx, func(tx issue.Tx) error { return f(&counting{tx, d}) })
	}
	if d.commits != nil {
		return d.commits(ctx, commit)
	}
	return commit()
}

// counting counts the cards that are stored together.
type counting struct {
	issue.Tx
	d *faultyStore
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

// lengthen lengthens waits if the store is patient.
func (d *faultyStore) lengthen(intents []issue.Intent) {
	for n := range intents {
		if d.patient && intents[n].Wait > 0 {
			intents[n].Wait = time.Hour
		}
	}
}

func (d *faultyStore) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	if d.saveFails != nil {
		return d.saveFails
	}
	d.lengthen(intents)
	for _, i := range intents {
		d.waits = append(d.waits, i.Wait)
	}
	return d.Store.SaveIntents(ctx, intents)
}

func (d *faultyStore) SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error) {
	if d.sealFails != nil {
		return card.Sealed{}, d.sealFails
	}
	return d.vault.SealCredentials(id, account, c)
}

func (d *faultyStore) Digest(label string, data []byte) ([]byte, error) {
	if d.digestFails != nil {
		return nil, d.digestFails
	}
	return d.vault.Digest(label, data)
}
