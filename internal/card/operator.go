package card

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// CardSearch selects cards for an operator, of every account.
type CardSearch struct {
	AccountID     uuid.UUID    // zero for all
	State         PaymentState // "" for all
	NeedsOperator bool         // only cards that wait for ResolveCard
	Limit         int
}

// Record is everything that is kept of a card but its credentials.
type Record struct {
	Card        *Card
	Account     string // name
	Transfers   []Transfer
	Intent      *IntentRecord // nil before the payment was confirmed
	Resolutions []Resolution
	Events      []Event
}

// IntentRecord is how far the making of a card is.
type IntentRecord struct {
	State    string // open, done or parked
	Attempts int
	DueAt    time.Time // of the next attempt, while it is open
	Reason   string    // of the last failure
}

// ResolutionKind says what an operator decided of a card.
type ResolutionKind string

// The decisions. Where nothing is left to decide, none of them does anything.
const (
	// Accept lets what was received be enough: the card is made once that is confirmed.
	Accept ResolutionKind = "accept"
	// Refund says that the operator gives the money back; once the card is made, the surplus. It is to be decided before anything is
	// sent: from then on the money makes no card.
	Refund ResolutionKind = "refund"
	// WriteOff says that the operator bears the loss of money that left the chain after the card was made, or after it was given back.
	WriteOff ResolutionKind = "write_off"
	// Retry has the issuer asked again, with the same key, for a card that was parked.
	Retry ResolutionKind = "retry"
)

// Resolution is a decision, as it is kept for good.
type Resolution struct {
	ID        uuid.UUID
	CardUUID  uuid.UUID
	Kind      ResolutionKind
	Amount    Amount // accepted, refunded or written off; 0 with Retry
	Note      string
	Operator  string
	CreatedAt time.Time
}

// Decision is what ResolveCard is asked to do.
type Decision struct {
	CardUUID uuid.UUID
	Kind     ResolutionKind
	Amount   *Amount // what the operator thinks it is about; nil for whatever it is
	Note     string  // why; for those who ask later
	Operator string  // who
	DryRun   bool    // only say what would happen
}

// Resolved is what ResolveCard did, or with DryRun would do.
type Resolved struct {
	Resolution Resolution
	Card       *Card // as it was before
	After      PaymentState
	Nothing    bool // there was nothing to do
}

var (
	// ErrAnotherAmount means that a decision is not about the amount that the operator thinks.
	ErrAnotherAmount = errors.New("the amount is another by now")
	// ErrBeingMade means that the issuer may have made a card: its money can't be given back.
	ErrBeingMade = errors.New("the card is being made")
	// ErrNotConfirmed means that money may still leave the chain, or can't be spent yet: it is not to be given back.
	ErrNotConfirmed = errors.New("what was received is not confirmed, or is locked")
	// ErrMade means that a card is made already.
	ErrMade = errors.New("the card is made already")
	// ErrNothingLost means that no money of a card has left the chain after it was made or given back.
	ErrNothingLost = errors.New("no money was lost with the card")
	// ErrNothingReceived means that there is no money to decide on.
	ErrNothingReceived = errors.New("nothing was received for the card")
	// ErrNotParked means that the making of a card does not wait for an operator.
	ErrNotParked = errors.New("the making of the card is not parked")
)

// ResolveCard settles what the rules leave to an operator: a payment that is late or too little, a card whose money left the chain,
// a surplus, a card that the issuer declined. Every decision is kept, and told to the account as the change of state that follows.
func (s *Service) ResolveCard(ctx context.Context, d Decision) (Resolved, error) {
	if d.Note == "" || d.Operator == "" {
		return Resolved{}, errors.New("resolve card: a decision needs a note and a name")
	}
	id, at := newID()
	r := Resolution{ID: id, CardUUID: d.CardUUID, Kind: d.Kind, Note: d.Note, Operator: d.Operator, CreatedAt: at}
	var done Resolved
	err := s.store.InTx(ctx, func(tx Tx) error {
		found, err := tx.LockCardsByUUID(ctx, []uuid.UUID{d.CardUUID})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return ErrNotFound
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
		done = Resolved{Resolution: r, Card: before, After: c.State, Nothing: nothing}
		if nothing || d.DryRun {
			return nil
		}
		if err := tx.InsertResolution(ctx, r, &c); err != nil {
			return err
		}
		if d.Kind == Retry {
			return tx.ReopenIntent(ctx, c.UUID)
		}
		verdicts, err := s.judge(ctx, tx, c.Coin.Code, on.tip, []*Card{&c}, &Applied{})
		if err != nil {
			return err
		}
		done.After = verdicts[0].Assessment.State
		return nil
	})
	if err != nil {
		return Resolved{}, fmt.Errorf("resolve card: %w", err)
	}
	if !done.Nothing && !d.DryRun {
		slog.InfoContext(ctx, "operator resolved a card", "card", d.CardUUID, "decision", d.Kind, "amount", int64(done.Resolution.Amount),
			"operator", d.Operator, "before", done.Card.State, "after", done.After)
	}
	return done, nil
}

// ground is what a decision depends on beside the card.
type ground struct {
	tip       Tip
	intent    *IntentRecord
	confirmed bool // every counted transfer has its confirmations and is not locked
}

func (s *Service) ground(ctx context.Context, tx Tx, c *Card) (g ground, err error) {
	if g.tip, err = tx.Tip(ctx, c.Coin.Code); err != nil {
		return g, err
	}
	if g.intent, err = tx.Intent(ctx, c.UUID); err != nil {
		return g, err
	}
	facts, err := tx.TransfersTo(ctx, c.Coin.Code, []string{c.Address})
	g.confirmed = add(c, facts).confirmed(g.tip)
	return g, err
}

// decide makes the decided amounts of a card follow from a decision. It returns the amount it is about, and whether nothing is left
// to decide.
func decide(c *Card, kind ResolutionKind, on ground) (amount Amount, nothing bool, err error) {
	kept := c.Received - c.Refunded
	parked := on.intent != nil && on.intent.State == "parked"
	switch kind {
	case Accept:
		switch {
		case c.Status == Generated:
			return 0, false, ErrMade
		case c.State == Paid || (c.Accepted > 0 && kept >= c.Accepted):
			return 0, true, nil
		case kept <= 0:
			return 0, false, ErrNothingReceived
		}
		c.Accepted = min(kept, c.Amount)
		return c.Accepted, false, nil
	case Refund:
		amount = max(0, kept)
		switch {
		case c.Status == Generated:
			amount = c.Surplus()
		case on.intent != nil && !parked && (c.State == Paid || on.intent.Attempts > 0):
			return 0, false, ErrBeingMade
		case c.Received == 0:
			return 0, false, ErrNothingReceived
		}
		if amount == 0 {
			return 0, true, nil
		}
		if !on.confirmed {
			return 0, false, ErrNotConfirmed
		}
		c.Refunded += amount
		if c.Status != Generated { // what was decided of it before is void
			c.Accepted, c.Settled = 0, 0
		}
		return amount, false, nil
	case WriteOff:
		must := Amount(0) // stay
		if c.Status == Generated {
			must = c.Settled
		}
		if must == 0 && kept >= 0 && c.WrittenOff == 0 {
			return 0, false, ErrNothingLost
		}
		amount = max(0, must-kept-c.WrittenOff)
		c.WrittenOff += amount
		return amount, amount == 0, nil
	case Retry:
		switch {
		case on.intent == nil:
			return 0, false, ErrNotParked
		case parked && c.State != Paid:
			return 0, false, ErrNothingReceived
		}
		return 0, !parked, nil
	}
	return 0, false, fmt.Errorf("there is no decision %q", kind)
}

// FindCards returns cards of whatever account, newest first, without credentials.
func (s *Service) FindCards(ctx context.Context, search CardSearch) ([]*Card, error) {
	return s.store.FindCards(ctx, search)
}

// Record returns everything that is kept of a card but its credentials.
func (s *Service) Record(ctx context.Context, id uuid.UUID) (Record, error) {
	return s.store.Record(ctx, id)
}

// Unattributed returns the transfers to addresses of no card, newest first.
func (s *Service) Unattributed(ctx context.Context, limit int) ([]Transfer, error) {
	return s.store.Unattributed(ctx, limit)
}

// Accounts returns all accounts by name.
func (s *Service) Accounts(ctx context.Context) ([]Account, error) { return s.store.Accounts(ctx) }

// RequestRescan has the wallet of a currency look through its whole chain again, at the watcher's next pass. Without believe, a wallet that
// then lacks a transfer whose block is still in the chain is not believed: what it shows is not applied.
func (s *Service) RequestRescan(ctx context.Context, currency, reason string, believe bool) error {
	return s.store.RequestRescan(ctx, currency, reason, believe)
}

// NoteRescan says how far that is.
func (s *Service) NoteRescan(ctx context.Context, currency, progress string) error {
	return s.store.NoteRescan(ctx, currency, progress)
}
