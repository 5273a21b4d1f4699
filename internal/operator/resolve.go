package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Decision is the input of ResolveCard.
type Decision struct {
	CardUUID uuid.UUID
	Kind     ResolutionKind
	Amount   *card.Amount // expected amount; nil for any
	TxID     string       // Refund: the transaction that gives the money back, if it was sent; the caller checks it
	Note     string       // the reason
	Operator string       // name
	DryRun   bool         // change nothing
}

// Resolved is the result of ResolveCard, or with DryRun the result it would
// have.
type Resolved struct {
	Resolution     Resolution
	Card           *card.Card // before the decision
	After          card.PaymentState
	Unchanged      bool        // nothing was left to decide
	ExistingRefund *Resolution // the earlier refund that got the transaction; nil otherwise
	LeftOut
}

// ResolveCard decides what the rules leave to an operator: a late or
// insufficient payment, a card whose money left the chain, a surplus, a card
// that suppliers declined. Every decision is stored. The account receives the
// event of the state change that follows.
func (s *Service) ResolveCard(ctx context.Context, d Decision) (Resolved, error) {
	switch {
	case d.Note == "" || d.Operator == "":
		return Resolved{}, errors.New("resolve card: a decision needs a note and a name")
	case d.TxID != "" && d.Kind != Refund:
		return Resolved{}, errors.New("resolve card: only a refund has a transaction")
	}
	id := uuid.Must(uuid.NewV7())
	r := Resolution{ID: id, CardUUID: d.CardUUID, Kind: d.Kind, TxID: d.TxID, Note: d.Note, Operator: d.Operator,
		CreatedAt: card.TimeOf(id)}
	var done Resolved
	err := s.store.OperatorTx(ctx, func(tx Tx) error {
		found, err := tx.LockCardsByUUID(ctx, []uuid.UUID{d.CardUUID})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return card.ErrNoRow
		}
		ev, err := s.evidence(ctx, tx, found[0])
		if err != nil {
			return err
		}
		refund, named, err := findRefund(ctx, tx, d, found[0], ev)
		switch {
		case err != nil:
			return err
		case refund != nil:
			done, err = nameRefundTx(ctx, tx, d, r, found[0], refund, named)
		default:
			done, err = s.resolve(ctx, tx, d, r, found[0], ev)
		}
		return err
	})
	if err != nil {
		return Resolved{}, fmt.Errorf("resolve card: %w", err)
	}
	if !done.Unchanged && !d.DryRun {
		s.log.DebugContext(ctx, "operator resolved a card", "card", d.CardUUID, "decision", d.Kind, "amount",
			coins(done.Card.Coin, done.Resolution.Amount),
			"operator", d.Operator, "before", done.Card.State, "after", done.After)
	}
	return done, nil
}

// resolve applies a decision to a card.
func (s *Service) resolve(ctx context.Context, tx Tx, d Decision, r Resolution, before *card.Card,
	ev evidence) (Resolved, error) {
	c := *before
	amount, nothing, err := decide(&c, d.Kind, ev)
	if err != nil {
		return Resolved{}, err
	}
	if !nothing && d.Amount != nil && *d.Amount != amount {
		return Resolved{}, anotherAmount(c.Coin, amount, *d.Amount)
	}
	r.Amount = amount
	done := Resolved{Resolution: r, Card: before, After: c.State, Unchanged: nothing,
		LeftOut: leftOut(before, d.Kind, amount, ev)}
	if nothing || d.DryRun {
		return done, nil
	}
	if err := tx.InsertResolution(ctx, r, &c); err != nil {
		return Resolved{}, err
	}
	if d.Kind == Retry {
		return done, tx.ReopenIntent(ctx, c.UUID)
	}
	v, err := s.judge(ctx, tx, &c, ev)
	if err != nil {
		return Resolved{}, err
	}
	done.After = v.Assessment.State
	return done, tx.SaveVerdicts(ctx, []card.Verdict{v})
}

// findRefund returns the earlier refund that the decision's transaction belongs
// to, and whether the transaction is already recorded. If it is not, that is
// the last refund, provided that it has no transaction yet or that nothing is
// left to give back. It returns nil if the decision is a new refund.
func findRefund(ctx context.Context, tx Tx, d Decision, c *card.Card, ev evidence) (last *Resolution, named bool,
	err error) {
	if d.TxID == "" || c.Refunded == 0 {
		return nil, false, nil
	}
	all, err := tx.Resolutions(ctx, c.UUID)
	if err != nil {
		return nil, false, err
	}
	for _, r := range all {
		if r.Kind == Refund && r.Amount > 0 && (last == nil || !named) {
			last = &r
		}
		named = named || r.TxID == d.TxID
	}
	if !named && c.RefundTxID != "" {
		decided := *c
		if _, nothing, err := decide(&decided, Refund, ev); err == nil && !nothing {
			return nil, false, nil
		}
	}
	return last, named, nil
}

// nameRefundTx adds the transaction to an earlier refund, unless it is already
// recorded.
func nameRefundTx(ctx context.Context, tx Tx, d Decision, r Resolution, c *card.Card, refund *Resolution,
	named bool) (Resolved, error) {
	done := Resolved{Resolution: r, Card: c, After: c.State, ExistingRefund: refund, Unchanged: named}
	switch {
	case done.Unchanged:
		return done, nil
	case d.Amount != nil && *d.Amount != refund.Amount:
		return Resolved{}, anotherAmount(c.Coin, refund.Amount, *d.Amount)
	case d.DryRun:
		return done, nil
	}
	return done, tx.InsertResolution(ctx, r, c)
}

func anotherAmount(coin card.Currency, is, said card.Amount) error {
	return fmt.Errorf("%w: %s, not %s", ErrAnotherAmount, coin.Decimal(is), coin.Decimal(said))
}

// coins returns an amount with its currency, for logs.
func coins(coin card.Currency, a card.Amount) string {
	return coin.Decimal(a).String() + " " + coin.Code
}

// judge assesses a card after a decision. A decision brings no money: it sends
// the event of a payment only if that was never sent.
func (s *Service) judge(ctx context.Context, tx Tx, c *card.Card, ev evidence) (card.Verdict, error) {
	today, _ := s.rates.Rate(c.Coin.Code) // without a rate, late money waits
	v := card.Judge(c, ev.transfers, ev.tip, today, uuid.Must(uuid.NewV7()))
	if v.Event == nil || v.Event.Type != card.EventDetected {
		return v, nil
	}
	told, err := tx.HasEvent(ctx, c.UUID, card.EventDetected)
	if told {
		v.Event = nil
	}
	return v, err
}

// evidence is the state besides the card that a decision depends on.
type evidence struct {
	tip       card.Tip
	intent    *IntentRecord
	transfers []card.Transfer // counted ones
}

func (s *Service) evidence(ctx context.Context, tx Tx, c *card.Card) (g evidence, err error) {
	if g.tip, err = tx.Tip(ctx, c.Coin.Code); err != nil {
		return g, err
	}
	if g.intent, err = tx.Intent(ctx, c.UUID); err != nil {
		return g, err
	}
	g.transfers, err = tx.TransfersTo(ctx, c.Coin.Code, []string{c.Address})
	return g, err
}

// decide applies a decision to the decided amounts of a card. It returns the
// amount of the decision, and whether nothing was left to decide.
func decide(c *card.Card, kind ResolutionKind, ev evidence) (amount card.Amount, nothing bool, err error) {
	kept := c.Received - c.Refunded
	unlocked, firm := card.Unlocked(c, ev.transfers), card.Firm(c, ev.transfers, ev.tip)
	waits := ev.intent.waits()
	switch kind {
	case Accept:
		switch {
		case c.Status == card.Generated:
			return 0, false, ErrIssued
		case c.State == card.Paid || (c.Accepted > 0 && unlocked >= c.Accepted):
			return 0, true, nil
		case kept <= 0:
			return 0, false, nothingLeft(c)
		case unlocked <= 0:
			return 0, false, ErrLocked
		}
		c.Accepted = min(unlocked, c.Amount)
		return c.Accepted, false, nil
	case Refund:
		amount = max(0, kept)
		switch {
		case c.Status == card.Generated:
			amount = c.Credit.Surplus
			firm -= c.Settled
		case ev.intent != nil && !waits && (c.State == card.Paid || ev.intent.Attempts > 0):
			return 0, false, ErrBeingIssued
		case c.Received == 0:
			return 0, false, ErrNothingReceived
		}
		if amount == 0 {
			return 0, true, nil
		}
		if amount = min(amount, firm); amount <= 0 {
			return 0, false, ErrNotConfirmed
		}
		c.Refunded += amount
		if c.Status != card.Generated { // earlier decisions are void
			c.Accepted, c.Settled = 0, 0
		}
		return amount, false, nil
	case WriteOff:
		if c.Status != card.Generated && c.Credit.Lost == 0 && c.WrittenOff == 0 {
			return 0, false, ErrNothingLost
		}
		amount = c.Credit.Lost - c.Credit.WrittenOff
		c.WrittenOff += amount
		return amount, amount == 0, nil
	case Retry:
		switch {
		case ev.intent == nil:
			return 0, false, ErrNotParked
		case waits && c.State != card.Paid:
			return 0, false, nothingLeft(c)
		}
		return 0, !waits, nil
	}
	return 0, false, fmt.Errorf("there is no decision %q", kind)
}

// nothingLeft returns the reason why a card has no money to decide about.
func nothingLeft(c *card.Card) error {
	switch {
	case c.Refunded == 0:
		return ErrNothingReceived
	case c.RefundTxID == "":
		return fmt.Errorf("%w: %s, with no transaction recorded yet", ErrRefunded, coins(c.Coin, c.Refunded))
	}
	return fmt.Errorf("%w: %s, by transaction %s", ErrRefunded, coins(c.Coin, c.Refunded), c.RefundTxID)
}
