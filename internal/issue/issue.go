// Package issue requests the credentials of paid cards from suppliers.
//
// It may import packages card, failpoint and trace. The intent to issue a card
// is committed before the first request to a supplier. After a crash the next
// Tick looks the request up before it submits it again, with the same key.
// Credentials, status and event are one commit.
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
	minBatch       = 16               // cards in the smallest batch; default of Route.Concurrency
	maxBatch       = 512              // cards in the largest batch, which are claimed and stored together
	fastBatch      = time.Second      // a full batch that takes less is followed by one of twice the size
	requestTimeout = 15 * time.Second // for all requests of one attempt
	requestWindow  = 3 * time.Second  // a batch sends no new request after this
	batchTimeout   = 20 * time.Second // for a whole batch, also during shutdown
	claimTTL       = 8 * time.Second  // until another process takes over after a crash
	renewInterval  = 2 * time.Second  // between two prolongations of a claim
)

// Config configures an issuer.
type Config struct {
	// Routes are the suppliers of all issuers. At least one is required.
	Routes Routes
	// Index is the index of this issuer's route. Each supplier has its own
	// issuer, so that none waits for another.
	Index int
	// Patience is how long, after its first claim, a paid card is retried while
	// its suppliers decline for now, or while no route covers its amount. After
	// that its refund is due. Defaults to 0: a refusal by the last supplier is
	// final.
	Patience time.Duration
	// Observe reports requests and issued cards. Defaults to no reports.
	Observe Observe
	// Tracer starts a span for each attempt to issue a card, and for each
	// request to the supplier. Defaults to none.
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

// Issuer issues paid cards from one supplier. It is safe for concurrent use,
// and several processes may run at the same time.
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

// Wake wakes other loops that have work. A nil field is not called.
type Wake struct {
	Issuers func() // a card was routed to another supplier
	Sender  func() // events were stored
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

// Tick issues every card that is due. If a batch is large, the next one is
// requested while it is stored.
func (s *Issuer) Tick(ctx context.Context) error {
	if err := s.expedite(ctx); err != nil {
		return err
	}
	stored, storing := make(chan error, 1), false
	for {
		b, err := s.requestDue(ctx)
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

// IssueDue attempts to issue one batch of paid cards, and returns how many it
// claimed. Several processes may call it at the same time: an intent is claimed
// by one of them, and writes with a lost claim are rejected. The first issuer
// also claims cards that no route covers. Nothing is claimed while requests are
// paused.
//
// The cards of a batch wait for each other. It is therefore small, and grows
// only while batches are full and the supplier is fast.
func (s *Issuer) IssueDue(ctx context.Context) (int, error) {
	b, err := s.requestDue(ctx)
	return b.cards, errors.Join(err, b.store())
}

// batch is a set of cards that were claimed together.
type batch struct {
	cards int
	store func() error // stores the results of the requests
}

// requestDue claims a batch and sends its requests. The claims are prolonged
// until batch.store is called.
func (s *Issuer) requestDue(ctx context.Context) (batch, error) {
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
	// A shutdown does not interrupt claimed cards: otherwise they would wait
	// for their claims to expire.
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
	issued, rest, failed := s.tryAll(ctx, intents, cards, s.cfg.Tracer.Parents(ctx, ids))
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

// holdClaims prolongs claims until the returned function is called. If the
// process stops or hangs, they expire within seconds, another process takes the
// cards over, and writes with the lost claims are rejected.
func (s *Issuer) holdClaims(ctx context.Context, intents []Intent) (release func()) {
	ctx, cancel := context.WithCancel(ctx)
	var prolonging sync.WaitGroup
	prolonging.Go(func() {
		ticker := time.NewTicker(renewInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			err := panics.Call(func() error { return s.store.ProlongIntents(ctx, intents, claimTTL) })
			if err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "claims not prolonged", "error", err, panics.Stack(err))
			}
		}
	})
	return func() {
		cancel()
		prolonging.Wait()
	}
}

// attempt is the result of one attempt: an issued card, or an intent to save.
type attempt struct {
	card   *card.Card
	issued *IssuedCard // nil if no card was issued
	intent Intent
	span   *trace.Span // ends when the card is stored; nil if it has ended
}

// tryAll requests all cards. It returns the issued cards, and the intents of
// the rest.
func (s *Issuer) tryAll(ctx context.Context, intents []Intent, cards []*card.Card,
	parents trace.Parents) (issued []attempt, rest []Intent, err error) {
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
				a, err = s.traced(ctx, intent, byID[intent.CardUUID], parents)
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
		case a == nil: // failed: retried when its claim expires
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

// try makes one attempt to issue a card.
func (s *Issuer) try(ctx context.Context, intent Intent, c *card.Card) (attempt, error) {
	switch {
	case c == nil: // reported by the store; not parked, because a newer version may be able to decode it
		return attempt{intent: intent.withoutRequest().retryLater(undecodable)}, nil
	case c.State != card.Paid:
		return attempt{intent: intent.withoutRequest().retryLater(unpaidAgain)}, nil
	// another process has just routed it to that supplier
	case intent.Supplier != s.supplier.Name() && s.cfg.Routes.contain(intent.Supplier):
		return attempt{intent: intent.withoutRequest()}, nil
	case intent.Supplier != s.supplier.Name():
		return s.park(ctx, intent,
			fmt.Sprintf(
				"supplier %s may have issued the card, but was removed from the configuration: add it again and retry",
				intent.Supplier)), nil
	case intent.Declines < 0 || intent.Declines > maxDeclines: // the supplier's key contains this number
		return s.park(ctx, intent.withoutRequest(),
				"the stored number of refusals is impossible: restore the row, then retry"),
			nil
	case !intent.Asked && !s.route.covers(c.USD):
		return s.outOfRange(ctx, intent, c), nil
	}
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.request(asking, intent, c.USD)
	s.recordResult(ctx, err)
	var busy *BusyError
	switch {
	case errors.Is(err, errForgotten):
		intent.FirstAskedAt = time.Time{} // an operator who retries has asked the supplier, so a retry submits
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

// request looks up an earlier request, and submits the request if there is none.
// Without an error the answer is clear.
func (s *Issuer) request(ctx context.Context, intent Intent, usd card.USD) (Answer, error) {
	request := Request{Key: intent.Key, Reference: intent.Reference, USD: usd, Declines: intent.Declines}
	if intent.Asked {
		found, err := s.observed("lookup", s.supplier.Lookup)(ctx, request)
		switch {
		case err != nil:
			return Answer{}, fmt.Errorf("look up: %w", err)
		case found.Outcome == Unknown && !s.keepsKey(intent):
			return Answer{}, errForgotten
		case found.Outcome == Unknown && !s.route.covers(usd): // the route has changed
			return Answer{Outcome: Declined, Reason: fmt.Sprintf("is not asked for cards of %s US dollars", usd)}, nil
		// an operator has seen this refusal, and retries
		case found.Outcome == Declined && intent.Answer == Declined && s.route.covers(usd):
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

// keepsKey reports whether the supplier will still know the intent's key at the
// end of this attempt. A first request in the future is impossible and counts
// as forgotten.
func (s *Issuer) keepsKey(intent Intent) bool {
	retention, age := s.supplier.KeyRetention(), intent.ClaimedAt.Sub(intent.FirstAskedAt)
	return retention == 0 || age >= 0 && age < retention-batchTimeout
}

// receive seals the credentials of an issued card, or parks a flawed card.
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

// park stops all attempts until an operator decides. The card stays paid.
func (s *Issuer) park(ctx context.Context, intent Intent, reason string) attempt {
	s.log.ErrorContext(ctx, "card needs an operator", "card", intent.CardUUID, "reason", reason)
	intent.State, intent.Reason = StateParked, reason
	return attempt{intent: intent}
}

var errUnpaidAgain = errors.New(unpaidAgain)

// storeIssued stores cards in one commit, or in one commit each if that fails,
// so that one bad card can't block the rest. It returns the intents of cards
// that can't be stored.
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
	case errors.Is(err, errUnpaidAgain): // looked up again once it is paid
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
