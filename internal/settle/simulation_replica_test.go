package settle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

var errScripted = errors.New("scripted fault")

const (
	reread      = 40 // blocks
	slicesInAll = 14 // enough to compare all of them, and older ones with locked transfers
)

// replica is one process: a service and a watcher, with its own access to store
// and chain.
type replica struct {
	h       *history
	name    string
	disk    *faultyStore
	orders  *order.Service
	desk    *operator.Service
	issuer  *issue.Issuer
	watcher *settle.Watcher

	look      *observation // result of the last scan, until it is stored
	meanwhile func()       // runs once, between the read of the chain and the commit
	usurped   bool         // another process has its lease, unknown to it
}

func (h *history) start() *replica {
	h.started++
	r := &replica{h: h, name: fmt.Sprintf("r%d", h.started)}
	r.disk = &faultyStore{Store: h.db.store, r: r}
	r.orders, r.desk = r.orderService(10), operator.New(r.disk, h, quiet)
	r.issuer = newIssuer(r.disk, h.db.vault, h.press, h.clock)
	// The store's clock is real, and tests must not wait for it, so histories
	// end leases explicitly.
	var err error
	r.watcher, err = settle.New(r.disk, h, r, wakesNothing(), quiet,
		settle.Config{Reread: reread, CompareEvery: h.compare, PoolSize: 8, FillBatch: 8, LeaseTTL: 24 * time.Hour,
			Replica: r.name, Now: h.clock})
	if err != nil {
		h.fail("new watcher: %v", err)
	}
	return r
}

// orderService returns a service of this process that requires k confirmations.
func (r *replica) orderService(k int) *order.Service {
	coin := chain.Currencies()[0]
	coin.Confirmations = k
	s, err := order.New(r.disk, r.h.db.vault, r.h, nil, func() {}, order.Config{
		Currencies: []card.Currency{coin}, Now: r.h.clock, QuoteTTL: r.h.quoteTTL})
	if err != nil {
		r.h.fail("new service: %v", err)
	}
	return s
}

// Currency implements settle.Chain.
func (r *replica) Currency() card.Currency { return chain.Currencies()[0] }

// Scan implements settle.Chain.
func (r *replica) Scan(_ context.Context, q settle.Query) (settle.View, error) {
	h := r.h
	if h.node.down {
		return settle.View{}, errScripted
	}
	v, s := h.w.look(q, min(h.node.behind, h.w.height()-1))
	if h.node.foreign {
		v.Fingerprint, s.bad = "another world", "it is another chain's"
	}
	r.look = s
	if do := r.meanwhile; do != nil {
		r.meanwhile = nil
		do()
	}
	return v, nil
}

// NewAddresses implements settle.Chain.
func (r *replica) NewAddresses(_ context.Context, _ int64, n int) ([]settle.Address, error) {
	return r.h.w.newAddresses(n), nil
}

// Reserve implements settle.Chain.
func (r *replica) Reserve(context.Context, int64, int) (bool, error) { return true, nil }

// Holds implements settle.Chain.
func (r *replica) Holds(_ context.Context, newest settle.Address) error {
	if newest.Position >= int64(r.h.w.known) {
		return card.ErrWalletLost
	}
	return nil
}

// Beacon implements settle.Chain.
func (r *replica) Beacon(context.Context) (settle.Beacon, error) { return settle.Beacon{}, nil }

// SetBeacon implements settle.Chain.
func (r *replica) SetBeacon(context.Context, settle.Beacon, bool) error { return nil }

// Recover implements settle.Chain.
func (r *replica) Recover(_ context.Context, _ string, _ *settle.Address, progress func(string)) error {
	progress("looking")
	if r.h.node.down {
		return errScripted
	}
	r.h.w.recover()
	return nil
}

// faultyStore is the real store, with the history's clock and failing
// transactions.
type faultyStore struct {
	*store.Store
	r      *replica
	before bool // the next transaction fails without effect
	after  bool // the next transaction fails after its commit
}

// SettleTx implements settle.Store.
func (d *faultyStore) SettleTx(ctx context.Context, f func(settle.Tx) error) error {
	return d.around(func() error { return d.Store.SettleTx(ctx, f) })
}

// OperatorTx implements operator.Store.
func (d *faultyStore) OperatorTx(ctx context.Context, f func(operator.Tx) error) error {
	return d.around(func() error { return d.Store.OperatorTx(ctx, f) })
}

// IssueTx implements issue.Store.
func (d *faultyStore) IssueTx(ctx context.Context, f func(issue.Tx) error) error {
	return d.around(func() error { return d.Store.IssueTx(ctx, f) })
}

// around makes a transaction fail if planned.
func (d *faultyStore) around(transaction func() error) error {
	if d.before {
		d.before = false
		return card.ErrUnavailable.WithCause(errScripted)
	}
	if err := transaction(); err != nil {
		return err
	}
	if look := d.r.look; look != nil { // a scan is followed by its commit
		d.r.look = nil
		if d.r.usurped {
			d.r.h.fail("%s stored what it saw although another has its lease", d.r.name)
		}
		d.r.h.o.apply(look)
	}
	if d.after {
		d.after = false
		return card.ErrUnavailable.WithCause(errScripted)
	}
	return nil
}

// InsertCard implements order.Store.
func (d *faultyStore) InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error) {
	c.CreatedAt, c.ExpiresAt = d.r.h.w.now, d.r.h.w.now.Add(c.ExpiresAt.Sub(c.CreatedAt))
	return d.Store.InsertCard(ctx, c, limit)
}

// TakeAddresses implements order.Store. A process takes one at a time, so that
// a crash loses few.
func (d *faultyStore) TakeAddresses(ctx context.Context, currency string, _ int) ([]string, error) {
	return d.Store.TakeAddresses(ctx, currency, 1)
}

// AcquireLease implements settle.Store.
func (d *faultyStore) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (settle.Lease, error) {
	l, err := d.Store.AcquireLease(ctx, name, holder, ttl)
	if err == nil {
		d.r.h.lease, d.r.h.holder = l, d.r
		d.r.usurped = false
	}
	return l, err
}

// ClaimIntents implements issue.Store. A claim ends immediately, so that
// intents of a dead process are available.
func (d *faultyStore) ClaimIntents(ctx context.Context, claim issue.Claim, n int, _ time.Duration) ([]issue.Intent,
	error) {
	intents, err := d.Store.ClaimIntents(ctx, claim, n, 0)
	pl := ctx.Value(planKey{}).(*plan)
	for _, intent := range intents {
		if x := d.r.h.order(intent.CardUUID); x != nil {
			x.attempts = intent.Attempts
			pl.unseen[x.index] = d.r.h.press.submitted(x)
			if pl.meanwhile != nil && pl.at == x.index {
				pl.over = make(chan struct{})
			}
		}
	}
	return intents, err
}

// CardsByUUID implements issue.Store. Earlier actions determine the permitted
// requests.
func (d *faultyStore) CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error) {
	if pl, issuing := ctx.Value(planKey{}).(*plan); issuing && pl.leaves != nil {
		pl.leaves()
		pl.leaves = nil
		for i, x := range d.r.h.o.orders {
			pl.askable[i] = x.isDue()
		}
	}
	return d.Store.CardsByUUID(ctx, ids)
}

// SaveIntents implements issue.Store. No attempt backs off.
func (d *faultyStore) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	for i := range intents {
		intents[i].Wait = 0
	}
	return d.Store.SaveIntents(ctx, intents)
}

// answer is the supplier's response to one request.
type answer int

const (
	gives    answer = iota
	hangs           // after it made the card
	refuses         // before it could make the card
	declines        // until submitted again
	repeats         // a card that another order has
	garbles         // the number
)

func (a answer) String() string {
	return []string{"gives", "hangs", "refuses", "declines", "repeats", "garbles"}[a]
}

// plan has the supplier's answers for one round of issuing, by order, and the
// permitted requests.
type plan struct {
	askable   []bool
	leaves    func() // runs once, between the claim and the read of the cards
	unseen    []bool // was submitted before the round, and not looked up in it yet
	answers   []answer
	old       int    // an order whose card was issued before; -1 if there is none
	meanwhile func() // runs once, at the request for the order at
	at        int
	once      sync.Once
	// closed when it has happened; nil if it will not. Requests for other
	// orders wait, so that a history is repeatable.
	over chan struct{}
}

type planKey struct{}

// fakeSupplier is the supplier, with a ledger of requests and cards.
type fakeSupplier struct {
	h      *history
	slowly bool // every card is pending at first
	mu     sync.Mutex
	ledger []request // by order
	asks   int
}

// request is an order as the supplier knows it.
type request struct {
	submitted, pending, declined bool
	number                       string // "" if no card was made
}

// Name implements issue.Supplier.
func (p *fakeSupplier) Name() string { return "press" }

// KeyRetention implements issue.Supplier.
func (p *fakeSupplier) KeyRetention() time.Duration { return 0 }

// submitted reports whether an order was ever submitted.
func (p *fakeSupplier) submitted(x *sale) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(x).submitted
}

// made returns the number of the card that was made for an order; "" if none
// was.
func (p *fakeSupplier) made(x *sale) string { return p.of(x).number }

// of returns an order's line in the ledger.
func (p *fakeSupplier) of(x *sale) *request {
	for len(p.ledger) <= x.index {
		p.ledger = append(p.ledger, request{})
	}
	return &p.ledger[x.index]
}

// receive finds the order of a request, and runs the events planned during it.
// The ledger is locked when it returns.
func (p *fakeSupplier) receive(ctx context.Context, r issue.Request) (*plan, *sale) {
	id, err := uuid.Parse(r.Key)
	pl, x := ctx.Value(planKey{}).(*plan), p.h.order(id)
	if err != nil || x == nil || r.USD != x.usd {
		p.h.fail("the supplier was asked for %q of %s dollars, which is no order", r.Key, r.USD)
		p.mu.Lock()
		return pl, nil
	}
	if !pl.askable[x.index] {
		p.h.fail("the supplier was asked for card %d, which is not paid", x.index)
	}
	if pl.over != nil {
		if pl.at == x.index {
			pl.once.Do(func() { pl.meanwhile(); close(pl.over) })
		}
		select {
		case <-pl.over:
		case <-ctx.Done():
			p.h.fail("card %d was claimed, and the supplier was not asked for it", pl.at)
		}
	}
	p.mu.Lock()
	p.asks++
	return pl, x
}

// Submit implements issue.Supplier.
func (p *fakeSupplier) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	pl, x := p.receive(ctx, r)
	defer p.mu.Unlock()
	if x == nil {
		return issue.Answer{}, errScripted
	}
	if pl.unseen[x.index] {
		p.h.fail("card %d was asked for again without being looked up", x.index)
	}
	said, line := pl.answers[x.index], p.of(x)
	p.h.count(fmt.Sprint("supplier's answer ", said))
	line.submitted = true
	if said == refuses {
		return issue.Answer{}, errScripted
	}
	if line.declined = said == declines && line.number == ""; line.declined {
		x.refused = true
		return issue.Answer{Outcome: issue.Declined, Reason: "out of stock"}, nil
	}
	if p.slowly && line.number == "" {
		line.pending = true
		if said == hangs {
			return issue.Answer{}, errScripted
		}
		return issue.Answer{Outcome: issue.Pending, Reference: fmt.Sprint("order ", x.index)}, nil
	}
	return p.give(pl, x)
}

// Lookup implements issue.Supplier.
func (p *fakeSupplier) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	pl, x := p.receive(ctx, r)
	defer p.mu.Unlock()
	if x == nil {
		return issue.Answer{}, errScripted
	}
	said, line := pl.answers[x.index], p.of(x)
	pl.unseen[x.index] = false
	if said == refuses {
		return issue.Answer{}, errScripted
	}
	if line.pending && said == declines {
		line.pending, line.declined, x.refused = false, true, true
	}
	switch {
	case line.declined:
		return issue.Answer{Outcome: issue.Declined, Reason: "out of stock"}, nil
	case line.pending && said == hangs:
		return issue.Answer{Outcome: issue.Pending}, nil
	case line.pending, line.number != "":
		p.h.count(fmt.Sprint("supplier finds, and ", said))
		return p.give(pl, x)
	}
	return issue.Answer{}, nil
}

// give makes the card of an order, unless it is made, and answers with it.
func (p *fakeSupplier) give(pl *plan, x *sale) (issue.Answer, error) {
	said, line := pl.answers[x.index], p.of(x)
	number := line.number
	if number == "" {
		body := fmt.Sprintf("99%06d%04d", p.h.seed%1e6, x.index)
		number = body + card.LuhnDigit(body)
	}
	if said == repeats && pl.old >= 0 {
		number, x.refused = p.ledger[pl.old].number, true
	} else {
		line.number, line.pending = number, false
	}
	switch said {
	case hangs:
		return issue.Answer{}, errScripted
	case garbles:
		number, x.refused = number[:len(number)-1]+"x", true
	}
	return issue.Answer{Outcome: issue.Issued, Credentials: card.Credentials{CardNumber: card.Secret(number),
		ExpirationDate: card.Secret(p.h.w.now.AddDate(2, 0, 0).Format("01/06")), SecurityCode: "123",
		URL: "https://cards.invalid/x", URLPassword: "secret"}}, nil
}
