package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Decision is what ResolveCard is asked to do.
type Decision struct {
	CardUUID uuid.UUID
	Kind     ResolutionKind
	Amount   *card.Amount // what the operator thinks it is about; nil for whatever it is
	Note     string       // why; for those who ask later
	Operator string       // who
	DryRun   bool         // only say what would happen
}

// Resolved is what ResolveCard did, or with DryRun would do.
type Resolved struct {
	Resolution Resolution
	Card       *card.Card // as it was before
	After      card.PaymentState
	Nothing    bool // there was nothing to do
	LeftOut
}

// ResolveCard settles what the rules leave to an operator: a payment that is late or too little, a card whose money left the chain,
// a surplus, a card that the supplier declined. Every decision is kept, and told to the account as the change of state that follows.
func (s *Service) ResolveCard(ctx context.Context, d Decision) (Resolved, error) {
	if d.Note == "" || d.Operator == "" {
		return Resolved{}, errors.New("resolve card: a decision needs a note and a name")
	}
	id := uuid.Must(uuid.NewV7())
	r := Resolution{ID: id, CardUUID: d.CardUUID, Kind: d.Kind, Note: d.Note, Operator: d.Operator, CreatedAt: card.TimeOf(id)}
	var done Resolved
	err := s.store.OperatorTx(ctx, func(tx Tx) error {
		found, err := tx.LockCardsByUUID(ctx, []uuid.UUID{d.CardUUID})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return card.ErrNoRow
		}
		before, c := found[0], *found[0]
		on, err := s.ground(ctx, tx, &c)
		if err != nil {
			return err
		}
		amount, nothing, err := decide(&c, d.Kind, on)
		if err != nil {
			return err
		}
		if !nothing && d.Amount != nil && *d.Amount != amount {
			return fmt.Errorf("%w: %s, not %s", ErrAnotherAmount, c.Coin.Decimal(amount), c.Coin.Decimal(*d.Amount))
		}
		r.Amount = amount
		done = Resolved{Resolution: r, Card: before, After: c.State, Nothing: nothing, LeftOut: leftOut(before, d.Kind, amount, on)}
		if nothing || d.DryRun {
			return nil
		}
		if err := tx.InsertResolution(ctx, r, &c); err != nil {
			return err
		}
		if d.Kind == Retry {
			return tx.ReopenIntent(ctx, c.UUID)
		}
		v, err := s.judge(ctx, tx, &c, on)
		if err != nil {
			return err
		}
		done.After = v.Assessment.State
		return tx.SaveVerdicts(ctx, []card.Verdict{v})
	})
	if err != nil {
		return Resolved{}, fmt.Errorf("resolve card: %w", err)
	}
	if !done.Nothing && !d.DryRun {
		s.log.DebugContext(ctx, "operator resolved a card", "card", d.CardUUID, "decision", d.Kind, "amount", coins(done.Card.Coin, done.Resolution.Amount),
			"operator", d.Operator, "before", done.Card.State, "after", done.After)
	}
	return done, nil
}

// coins returns an amount for people.
func coins(coin card.Currency, a card.Amount) string {
	return coin.Decimal(a).String() + " " + coin.Code
}

// judge assesses a card that something was decided of. A decision brings no money: the account is told of a payment only if it never was.
func (s *Service) judge(ctx context.Context, tx Tx, c *card.Card, on ground) (card.Verdict, error) {
	today, _ := s.rates.Rate(c.Coin.Code) // without one, late money waits
	v := card.Judge(c, on.transfers, on.tip, today, uuid.Must(uuid.NewV7()))
	if v.Event == nil || v.Event.Type != card.EventDetected {
		return v, nil
	}
	told, err := tx.Told(ctx, c.UUID, card.EventDetected)
	if told {
		v.Event = nil
	}
	return v, err
}

// ground is what a decision depends on beside the card.
type ground struct {
	tip       card.Tip
	intent    *IntentRecord
	transfers []card.Transfer // that are counted
}

func (s *Service) ground(ctx context.Context, tx Tx, c *card.Card) (g ground, err error) {
	if g.tip, err = tx.Tip(ctx, c.Coin.Code); err != nil {
		return g, err
	}
	if g.intent, err = tx.Intent(ctx, c.UUID); err != nil {
		return g, err
	}
	g.transfers, err = tx.TransfersTo(ctx, c.Coin.Code, []string{c.Address})
	return g, err
}

// decide makes the decided amounts of a card follow from a decision. It returns the amount it is about, and whether nothing is left
// to decide.
func decide(c *card.Card, kind ResolutionKind, on ground) (amount card.Amount, nothing bool, err error) {
	kept := c.Received - c.Refunded
	unlocked, firm := card.Unlocked(c, on.transfers), card.Firm(c, on.transfers, on.tip)
	parked := on.intent.waits() // or declined: both are the operator's to decide
	switch kind {
	case Accept:
		switch {
		case c.Status == card.Generated:
			return 0, false, ErrMade
		case c.State == card.Paid || (c.Accepted > 0 && unlocked >= c.Accepted):
			return 0, true, nil
		case kept <= 0:
			return 0, false, ErrNothingReceived
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
		case on.intent != nil && !parked && (c.State == card.Paid || on.intent.Attempts > 0):
			return 0, false, ErrBeingMade
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
		if c.Status != card.Generated { // what was decided of it before is void
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
		case on.intent == nil:
			return 0, false, ErrNotParked
		case parked && c.State != card.Paid:
			return 0, false, ErrNothingReceived
		}
		return 0, !parked, nil
	}
	return 0, false, fmt.Errorf("there is no decision %q", kind)
}
