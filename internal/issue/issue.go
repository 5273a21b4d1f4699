// Package issue leads from a paid card to its credentials.
//
// It may import packages card, failpoint and trace. The intent to issue a card
// is committed before the supplier is asked. After a crash the next Tick looks
// up what became of the request before it asks again, and it asks with the same
// key. Credentials, status and event are one commit.
package issue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/trace"
)

const (
	minBatch       = 16               // cards that the supplier is asked for at the same time; the smallest batch
	maxBatch       = 512              // the largest: cards that are claimed at once, and stored together
	fastBatch      = time.Second      // a full batch that was asked for and stored in less is followed by a larger one
	requestTimeout = 15 * time.Second // for the answers of one attempt
	requestWindow  = 3 * time.Second  // after this no further card of the batch is asked for
	batchTimeout   = 20 * time.Second // for a batch to end, also when the process is asked to
	claimTTL       = 8 * time.Second  // after the death of this process another one goes on
	renewInterval  = 2 * time.Second  // between two prolongations of a claim
)

// Config configures an issuer.
type Config struct {
	// Routes are the suppliers of all issuers. At least one is required.
	Routes Routes
	// Index is that of the route whose supplier this issuer asks. Each supplier
	// has an issuer of its own, so that none waits for another.
	Index int
	// Patience is how long a paid card waits for suppliers that can't make it
	// now but may be able to later, since they were first asked, and for an
	// amount that no supplier makes. After that its refund is due. Defaults to
	// none: a refusal of the last supplier is final.
	Patience time.Duration
	// Observe is told what happens. Defaults to nobody.
	Observe Observe
	// Tracer starts a span for each attempt to issue a card, and for each call
	// of the supplier. Defaults to none.
	Tracer *trace.Tracer
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *Config) Validate() error {
	c.Observe.fill()
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Index < 0 || c.Index >= len(c.Routes) {
		return errors.New("there is no such supplier")
	}
	if c.Patience < 0 {
		return errors.New("the time to wait for suppliers must not be negative")
	}
	names := map[string]bool{}
	for i, r := range c.Routes {
		name := r.Supplier.Name()
		if names[name] {
			return fmt.Errorf("two suppliers have the name %q", name)
		}
		names[name] = true
		if r.Min > r.Max || r.Concurrency < 0 || r.PerSecond < 0 {
			return fmt.Errorf("supplier %s: amounts must not end before they begin, and limits must not be negative", name)
		}
		if r.Concurrency == 0 {
			c.Routes[i].Concurrency = minBatch
		}
	}
	return nil
}

// Issuer issues paid cards by one supplier. It is safe for concurrent use, also
// by several processes.
type Issuer struct {
	store     Store
	vault     Vault
	supplier  Supplier
	route     Route
	wake      Wake
	log       *slog.Logger
	cfg       Config
	now       func() time.Time
	throttle  *throttle
	batch     atomic.Int32 // cards of the next batch
	expedited expedited
}

// Wake tells other loops that there is work for them. A nil field is not
// called.
type Wake struct {
	Issuers func() // a card is to be asked of another supplier
	Sender  func() // there are events to send
}

// New returns an issuer. It returns an error if cfg is not valid.
func New(store Store, vault Vault, wake Wake, log *slog.Logger, cfg Config) (*Issuer, error) {
	cfg.Routes = slices.Clone(cfg.Routes)
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("issue: %w", err)
	}
	route := cfg.Routes[cfg.Index]
	for _, f := range []*func(){&wake.Issuers, &wake.Sender} {
		if *f == nil {
			*f = func() {}
		}
	}
	return &Issuer{store: store, vault: vault, supplier: route.Supplier, route: route, wake: wake, log: log, cfg: cfg,
		now:      cfg.Now,
		throttle: newThrottle(route.PerSecond)}, nil
}

// Tick issues every card that is due. If there is much to do, the next batch is
// asked for while one is stored.
func (s *Issuer) Tick(ctx context.Context) error {
	if err := s.expedite(ctx); err != nil {
		return err
	}
	stored, storing := make(chan error, 1), false
	for {
		b, err := s.askDue(ctx)
		last := b.cards == 0 && !storing
		if storing {
			err, storing = errors.Join(err, <-stored), false
		}
		if err == nil && b.cards > minBatch {
			storing = true
			go func() { stored <- panics.Call(b.store) }()
			continue
		}
		if err := errors.Join(err, b.store()); err != nil || last {
			return err
		}
	}
}

// IssueDue tries to issue cards whose payment is confirmed, up to a batch, and
// returns how many it worked on. Several processes may call it at once: each
// intent is claimed by one, and whoever lost a claim can't write any more. It
// claims what its supplier is to be asked for; the first issuer also claims
// what no supplier makes any more. It claims nothing while the supplier is to
// be left alone.
//
// Cards of a batch wait for each other, so a batch is small, unless there is
// much to do and the supplier is quick.
func (s *Issuer) IssueDue(ctx context.Context) (int, error) {
	b, err := s.askDue(ctx)
	return b.cards, errors.Join(err, b.store())
}

// batch is what a supplier was asked for at once.
type batch struct {
	cards int
	store func() error // stores what came of it
}

// askDue claims cards and asks for them. Their claims are held until their
// storing begins.
func (s *Issuer) askDue(ctx context.Context) (batch, error) {
	nothing := func() error { return nil }
	started := s.now()
	size := s.throttle.allowance(int(max(minBatch, s.batch.Load())), started)
	if size == 0 {
		return batch{store: nothing}, nil
	}
	intents, err := s.store.ClaimIntents(ctx, Claim{s.supplier.Name(), s.cfg.Routes.shares()}, size, claimTTL)
	if err != nil || len(intents) == 0 {
		return batch{store: nothing}, err
	}
	failpoint.Hit(failpoint.Claimed)
	s.throttle.consume(len(intents), started)
	// What was claimed is finished, so that it need not wait for the claim to
	// run out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	release := s.holdClaims(ctx, intents)
	ids := make([]uuid.UUID, len(intents))
	for i, intent := range intents {
		ids[i] = intent.CardUUID
	}
	cards, err := s.store.CardsByUUID(ctx, ids)
	if err != nil {
		release()
		cancel()
		s.batch.Store(minBatch)
		return batch{cards: len(intents), store: nothing}, fmt.Errorf("issue: %w", err)
	}
	issued, rest, failed := s.tryAll(ctx, intents, cards, s.cfg.Tracer.Causes(ctx, ids))
	asked := s.now().Sub(started)
	return batch{len(intents), func() error {
		defer cancel()
		defer endAll(issued)
		release() // before the time of the next attempt is stored
		storing := s.now()
		unstored, err := s.storeIssued(ctx, issued)
		err = errors.Join(failed, err, s.saveAll(ctx, append(rest, unstored...)))
		next := minBatch
		if err == nil && len(intents) == size && asked+s.now().Sub(storing) < fastBatch {
			next = min(2*size, maxBatch)
		}
		s.batch.Store(int32(next))
		return err
	}}, nil
}

// holdClaims prolongs claims until the returned function is called. A process
// that dies or stops holds them no longer, and another one goes on within
// seconds. What a process writes whose claims were lost is refused.
func (s *Issuer) holdClaims(ctx context.Context, intents []Intent) (release func()) {
	ctx, cancel := context.WithCancel(ctx)
	var prolonging sync.WaitGroup
	prolonging.Go(func() {
		again := time.NewTicker(renewInterval)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			err := panics.Call(func() error { return s.store.ProlongIntents(ctx, intents, claimTTL) })
			if err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "prolong claims", "error", err, panics.Stack(err))
			}
		}
	})
	return func() {
		cancel()
		prolonging.Wait()
	}
}

// attempt is what came of asking for a card: the card, or the intent as it is
// to be saved.
type attempt struct {
	card   *card.Card
	issued *IssuedCard // nil if there is no card to store
	intent Intent
	span   *trace.Span // which ends when the card is stored; nil if it has ended
}

// tryAll asks for the cards. It returns those that were issued, and the intents
// of the others.
func (s *Issuer) tryAll(ctx context.Context, intents []Intent, cards []*card.Card,
	causes trace.Causes) (issued []attempt, rest []Intent, err error) {
	byID := make(map[uuid.UUID]*card.Card, len(cards))
	for _, c := range cards {
		byID[c.UUID] = c
	}
	tried := make([]*attempt, len(intents))
	var group errgroup.Group
	group.SetLimit(s.route.Concurrency)
	started := s.now()
	for i, intent := range intents {
		group.Go(func() error {
			a, err := attempt{intent: intent.withoutRequest()}, error(nil)
			if wait := s.throttle.remaining(s.now()); wait > 0 {
				a.intent.Reason, a.intent.Wait = "the supplier is busy or does not answer", wait
			} else if s.now().Sub(started) > requestWindow {
				a.intent.Reason = "the supplier is slow" // due again at once
			} else {
				a, err = s.traced(ctx, intent, byID[intent.CardUUID], causes)
			}
			if err == nil {
				tried[i] = &a
			}
			return err
		})
	}
	err = group.Wait()
	for _, a := range tried {
		switch {
		case a == nil: // its claim runs out
		case a.issued != nil:
			issued = append(issued, *a)
		default:
			rest = append(rest, a.intent)
		}
	}
	return issued, rest, err
}

const (
	unpaidAgain = "the payment is no longer confirmed"
	undecodable = "the card's row can't be decoded"
)

// try asks for one card.
func (s *Issuer) try(ctx context.Context, intent Intent, c *card.Card) (attempt, error) {
	switch {
	case c == nil: // the store reports it; it may be another version's, so that the intent is not parked
		return attempt{intent: intent.withoutRequest().retryLater(undecodable)}, nil
	case c.State != card.Paid:
		return attempt{intent: intent.withoutRequest().retryLater(unpaidAgain)}, nil
	// another process gave it to that one meanwhile
	case intent.Supplier != s.supplier.Name() && s.cfg.Routes.have(intent.Supplier):
		return attempt{intent: intent.withoutRequest()}, nil
	case intent.Supplier != s.supplier.Name():
		return s.park(ctx, intent,
			fmt.Sprintf(
				"supplier %s was asked and may have made the card, but it is configured no more: configure it again and retry",
				intent.Supplier)), nil
	case intent.Declines < 0 || intent.Declines > maxDeclines: // the supplier's key depends on it
		return s.park(ctx, intent.withoutRequest(), "how often suppliers declined it is impossible: restore its row, then retry"),
			nil
	case !intent.Asked && !s.route.makes(c.USD):
		return s.outOfRange(ctx, intent, c), nil
	}
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.ask(asking, intent, c.USD)
	s.observePace(ctx, err)
	var busy *BusyError
	switch {
	case errors.Is(err, errForgotten):
		intent.FirstAskedAt = time.Time{} // an operator who retries has asked the supplier: then it is submitted
		return s.park(ctx, intent, err.Error()), nil
	case errors.As(err, &busy):
		a := attempt{intent: intent.withoutRequest().retryLater(busy.Error())}
		a.intent.Wait = max(a.intent.Wait, s.throttle.remaining(s.now()))
		return a, nil
	case err != nil:
		s.log.WarnContext(ctx, "the supplier gave no clear answer", "card", c.UUID, "attempt", intent.Attempts, "error",
			clean(err.Error()))
		return attempt{intent: intent.withAnswer(Answer{}).retryLater("the supplier gave no clear answer")}, nil
	}
	failpoint.Hit(failpoint.Answered)
	intent = intent.withAnswer(answer)
	switch answer.Outcome {
	case Pending:
		intent.State = StatePending
		return attempt{intent: intent.retryLater("")}, nil
	case Declined:
		return s.declined(ctx, intent, c, answer), nil
	}
	return s.receive(ctx, intent, c, answer)
}

var errForgotten = errors.New(
	"the supplier does not know the request, and may have forgotten it: ask the supplier, then retry or refund")

// ask looks up what was submitted before, and submits what the supplier does
// not know. Without an error the answer is clear.
func (s *Issuer) ask(ctx context.Context, intent Intent, usd card.USD) (Answer, error) {
	request := Request{Key: intent.Key, Reference: intent.Reference, USD: usd, Declines: intent.Declines}
	if intent.Asked {
		found, err := s.observed("lookup", s.supplier.Lookup)(ctx, request)
		switch {
		case err != nil:
			return Answer{}, fmt.Errorf("look up: %w", err)
		case found.Outcome == Unknown && !s.keepsKey(intent):
			return Answer{}, errForgotten
		case found.Outcome == Unknown && !s.route.makes(usd): // it was never asked for such a card, or is to be no longer
			return Answer{Outcome: Declined, Reason: fmt.Sprintf("is not asked for cards of %s US dollars", usd)}, nil
		// an operator saw that, and retries
		case found.Outcome == Declined && intent.Answer == Declined && s.route.makes(usd):
		case found.Outcome != Unknown:
			return found.clear()
		}
	}
	failpoint.Hit(failpoint.Submitting)
	answer, err := s.observed("submit", s.supplier.Submit)(ctx, request)
	if err != nil {
		return Answer{}, fmt.Errorf("submit: %w", err)
	}
	return answer.clear()
}

// keepsKey reports whether the supplier still knows the intent's key when this
// attempt ends. It does not if the time of the first submission is impossible.
func (s *Issuer) keepsKey(intent Intent) bool {
	retention, age := s.supplier.KeyRetention(), intent.ClaimedAt.Sub(intent.FirstAskedAt)
	return retention == 0 || age >= 0 && age < retention-batchTimeout
}

// receive takes a card that was issued, unless it is flawed.
func (s *Issuer) receive(ctx context.Context, intent Intent, c *card.Card, answer Answer) (attempt, error) {
	credentials := answer.Credentials
	flaw := clean(answer.Flaw)
	switch {
	case flaw != "":
	case answer.USD != 0 && answer.USD != c.USD:
		flaw = fmt.Sprintf("the supplier gave a card of %s US dollars, not %s", answer.USD, c.USD)
	default:
		flaw = credentials.Flaw(s.now())
	}
	if flaw != "" {
		return s.park(ctx, intent, flaw), nil
	}
	sealed, err := s.vault.SealCredentials(c.UUID, c.AccountID, credentials)
	if err != nil {
		return attempt{}, fmt.Errorf("issue %s: %w", c.UUID, err)
	}
	number, err := s.vault.Digest("card number", []byte(credentials.CardNumber.Reveal()))
	if err != nil {
		return attempt{}, fmt.Errorf("issue %s: %w", c.UUID, err)
	}
	return attempt{card: c, issued: &IssuedCard{Intent: intent, Sealed: sealed, NumberHash: number}, intent: intent}, nil
}

// park leaves a card to an operator: it stays paid, and no further attempt is
// made.
func (s *Issuer) park(ctx context.Context, intent Intent, reason string) attempt {
	s.log.ErrorContext(ctx, "card needs an operator", "card", intent.CardUUID, "reason", reason)
	intent.State, intent.Reason = StateParked, reason
	return attempt{intent: intent}
}

var errUnpaidAgain = errors.New(unpaidAgain)

// storeIssued stores cards together, or each alone if that fails, so that one
// can't keep the others back. It returns the intents of those that can't be
// stored.
func (s *Issuer) storeIssued(ctx context.Context, cards []attempt) ([]Intent, error) {
	if len(cards) == 0 {
		return nil, nil
	}
	err := panics.Call(func() error { return s.commitIssued(ctx, cards) })
	if err == nil {
		failpoint.Hit(failpoint.Issued)
		s.observeIssued(ctx, cards)
		s.wake.Sender()
		return nil, nil
	}
	if len(cards) > 1 {
		var rest []Intent
		var failed []error
		for i := range cards {
			some, err := s.storeIssued(ctx, cards[i:i+1])
			rest, failed = append(rest, some...), append(failed, err)
		}
		return rest, errors.Join(failed...)
	}
	intent := cards[0].intent
	switch {
	case errors.Is(err, errUnpaidAgain): // it is looked up once the money is back
		return []Intent{intent.retryLater(unpaidAgain)}, nil
	case errors.Is(err, card.ErrDuplicate):
		return []Intent{s.park(ctx, intent, "the supplier gave a card that another order has already").intent}, nil
	case errors.Is(err, card.ErrFenced):
		s.log.InfoContext(ctx, "another process has issued the card, or took it over", "card", intent.CardUUID)
		return nil, nil
	}
	return nil, fmt.Errorf("issue %s: %w", intent.CardUUID, err)
}

func (s *Issuer) commitIssued(ctx context.Context, cards []attempt) error {
	ids, issued, events := make([]uuid.UUID, len(cards)), make([]IssuedCard, len(cards)), make([]card.Event, len(cards))
	for i, a := range cards {
		ids[i], issued[i] = a.card.UUID, *a.issued
	}
	return s.store.IssueTx(ctx, func(tx Tx) error {
		now, err := tx.LockCardsByUUID(ctx, ids)
		if err != nil {
			return err
		}
		for _, c := range now {
			if c.State != card.Paid {
				return errUnpaidAgain
			}
		}
		if err := tx.SaveIssued(ctx, issued); err != nil {
			return err
		}
		for i, a := range cards {
			events[i] = card.NewEvent(uuid.Must(uuid.NewV7()), a.card, card.EventGenerated, card.Generated, card.Paid)
		}
		err = tx.InsertEvents(ctx, events)
		failpoint.Hit(failpoint.Issuing)
		return err
	})
}
