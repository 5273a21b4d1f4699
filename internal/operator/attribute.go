package operator

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// AttributionDecision is the input of AttributeTransfer.
type AttributionDecision struct {
	Coin      card.Currency // its Confirmations are required, unless the money counts toward an existing card
	TxID      string
	Output    int64
	Kind      AttributionKind
	CardUUID  uuid.UUID    // with ToCard
	AccountID uuid.UUID    // with ToNewCard
	USD       card.USD     // with ToNewCard
	Amount    *card.Amount // expected amount; nil for any
	Note      string       // the reason
	Operator  string       // name
	DryRun    bool         // change nothing
}

// Attributed is the result of AttributeTransfer, or with DryRun the result it
// would have.
type Attributed struct {
	Amount    card.Amount       // that was attributed
	Card      *card.Card        // before the decision, or as created; nil with GiveBack
	After     card.PaymentState // of the card
	Unchanged bool              // the same decision exists already
}

// AttributeTransfer decides about a transfer to an address without a card, such
// as one for an order that is missing from a restored database: the transfer
// counts toward a card, or the missing card is created again, or the money is
// given back. Only confirmed, spendable money is attributed. After that the
// ordinary rules apply to the card, also if the transfer leaves the chain.
// Repeating a decision changes nothing.
func (s *Service) AttributeTransfer(ctx context.Context, d AttributionDecision) (Attributed, error) {
	if err := d.check(); err != nil {
		return Attributed{}, fmt.Errorf("attribute transfer: %w", err)
	}
	var done Attributed
	cardUUID := uuid.Must(uuid.NewV7()) // of a new card
	err := s.store.OperatorTx(ctx, func(tx Tx) (err error) {
		done, err = s.attribute(ctx, tx, d, cardUUID)
		return err
	})
	if err != nil {
		return Attributed{}, fmt.Errorf("attribute transfer: %w", err)
	}
	if !done.Unchanged && !d.DryRun {
		attributes := []any{"transaction", d.TxID, "output", d.Output, "decision", d.Kind, "amount",
			coins(d.Coin, done.Amount), "operator", d.Operator}
		if done.Card != nil {
			attributes = append(attributes, "card", done.Card.UUID, "before", done.Card.State, "after", done.After)
		}
		s.log.DebugContext(ctx, "operator attributed a transfer", attributes...)
	}
	return done, nil
}

func (d AttributionDecision) check() error {
	switch {
	case d.Note == "" || d.Operator == "":
		return errors.New("a decision needs a note and a name")
	case d.Kind == ToNewCard && (d.USD < card.MinUSD || d.USD > card.MaxUSD):
		return fmt.Errorf("a card has from %s to %s US dollars, not %s", card.MinUSD, card.MaxUSD, d.USD)
	case d.Kind != ToCard && d.Kind != ToNewCard && d.Kind != GiveBack:
		return fmt.Errorf("there is no decision %q", d.Kind)
	}
	return nil
}

// destination is the target of transfers.
type destination struct {
	transfers     []card.Transfer // to attribute
	confirmations int             // that they need
	card          *card.Card      // nil if the money is given back
	counted       []card.Transfer // all transfers of the card afterwards
}

func (s *Service) attribute(ctx context.Context, tx Tx, d AttributionDecision, newCard uuid.UUID) (Attributed, error) {
	if err := tx.LockChain(ctx, d.Coin.Code); err != nil {
		return Attributed{}, err
	}
	found, err := tx.Arrival(ctx, TransferID{d.Coin.Code, d.TxID, d.Output})
	switch {
	case errors.Is(err, card.ErrNoRow):
		return Attributed{}, ErrNoTransfer
	case err != nil:
		return Attributed{}, err
	case found.Attribution != nil:
		return repeated(ctx, tx, d, found.Attribution)
	case found.CardUUID != uuid.Nil:
		return Attributed{}, fmt.Errorf("%w: %s", ErrCardAddress, found.CardUUID)
	case !found.Counted:
		return Attributed{}, ErrLeftChain
	}
	to, err := d.destination(ctx, tx, found.Transfer, newCard)
	if err != nil {
		return Attributed{}, err
	}
	tip, err := tx.Tip(ctx, d.Coin.Code)
	if err != nil {
		return Attributed{}, err
	}
	if !card.Confirmed(&card.Card{ConfirmationsRequired: to.confirmations}, to.transfers, tip) {
		return Attributed{}, ErrNotConfirmed
	}
	if d.Coin.CheckTotal(to.counted) != nil {
		return Attributed{}, ErrTooManyCoins
	}
	amount := sum(to.transfers)
	if d.Amount != nil && *d.Amount != amount {
		return Attributed{}, fmt.Errorf("%w: %s, not %s", ErrAnotherAmount, d.Coin.Decimal(amount), d.Coin.Decimal(*d.Amount))
	}
	done := Attributed{Amount: amount, Card: to.card}
	var verdicts []card.Verdict
	if to.card != nil {
		today, _ := s.rates.Rate(d.Coin.Code) // without a rate, late money waits
		v := card.Judge(to.card, to.counted, tip, today, uuid.Must(uuid.NewV7()))
		done.After, verdicts = v.Assessment.State, []card.Verdict{v}
	}
	if d.DryRun {
		return done, nil
	}
	if d.Kind == ToNewCard {
		if err := tx.InsertCard(ctx, to.card); err != nil {
			return Attributed{}, err
		}
	}
	if err := tx.InsertAttributions(ctx, d.attributions(to)); err != nil {
		return Attributed{}, err
	}
	return done, tx.SaveVerdicts(ctx, verdicts)
}

// repeated returns the result of the earlier decision if d is the same. The
// error is ErrAttributed otherwise.
func repeated(ctx context.Context, tx Tx, d AttributionDecision, earlier *Attribution) (Attributed, error) {
	done := Attributed{Amount: earlier.Amount, Unchanged: true}
	if earlier.Kind == GiveBack {
		if d.Kind != GiveBack {
			return Attributed{}, fmt.Errorf("%w: its money was given back", ErrAttributed)
		}
		return done, nil
	}
	cards, err := tx.LockCardsByUUID(ctx, []uuid.UUID{earlier.CardUUID})
	if err != nil {
		return Attributed{}, err
	}
	if len(cards) == 0 {
		return Attributed{}, card.ErrNoRow
	}
	c := cards[0]
	same := d.Kind == earlier.Kind
	if d.Kind == ToCard {
		same = same && d.CardUUID == c.UUID
	} else {
		same = same && d.AccountID == c.AccountID && d.USD == c.USD
	}
	if !same {
		return Attributed{}, fmt.Errorf("%w: it counts toward card %s", ErrAttributed, c.UUID)
	}
	done.Card, done.After = c, c.State
	return done, nil
}

// destination returns the target of a transfer.
func (d AttributionDecision) destination(ctx context.Context, tx Tx, t card.Transfer, newCard uuid.UUID) (destination,
	error) {
	switch d.Kind {
	case ToCard:
		cards, err := tx.LockCardsByUUID(ctx, []uuid.UUID{d.CardUUID})
		if err != nil {
			return destination{}, err
		}
		if len(cards) == 0 {
			return destination{}, card.ErrNoRow
		}
		c := cards[0]
		switch {
		case c.Coin.Code != d.Coin.Code:
			return destination{}, fmt.Errorf("%w: %s", ErrAnotherCoin, c.Coin.Code)
		case c.Status == card.Generated:
			return destination{}, ErrIssued
		case c.State == card.Paid:
			return destination{}, ErrPaid
		}
		counted, err := tx.TransfersTo(ctx, d.Coin.Code, []string{c.Address})
		return destination{transfers: []card.Transfer{t}, confirmations: c.ConfirmationsRequired, card: c,
			counted: append(counted, t)}, err
	case ToNewCard:
		all, err := tx.TransfersTo(ctx, d.Coin.Code, []string{t.Address})
		if err != nil {
			return destination{}, err
		}
		if d.Coin.CheckTotal(all) != nil {
			return destination{}, ErrTooManyCoins
		}
		c, err := d.recreate(newCard, t.Address, all)
		return destination{transfers: all, confirmations: d.Coin.Confirmations, card: c, counted: all}, err
	default:
		return destination{transfers: []card.Transfer{t}, confirmations: d.Coin.Confirmations}, nil
	}
}

// recreate returns a card for the money at an address. The money is its price,
// and its quote ends when it is created, because it expects no further payment.
func (d AttributionDecision) recreate(id uuid.UUID, address string, transfers []card.Transfer) (*card.Card, error) {
	amount, created := sum(transfers), card.TimeOf(id)
	rate, err := impliedRate(d.Coin, d.USD, amount)
	if err != nil {
		return nil, err
	}
	expires := created
	for _, t := range transfers {
		if !t.FirstSeenAt.Before(expires) { // the clocks of two machines differ
			expires = t.FirstSeenAt.Add(time.Millisecond)
		}
	}
	return &card.Card{
		UUID: id, AccountID: d.AccountID, CreatedAt: created, USD: d.USD, Coin: d.Coin, Amount: amount, Address: address,
		Rate:      card.Rate{USD: rate, At: created, Source: "operator"},
		ExpiresAt: expires, ConfirmationsRequired: d.Coin.Confirmations,
		Status: card.AwaitingPayment, State: card.Unpaid, Credit: card.Credit{Due: amount},
	}, nil
}

// impliedRate returns the rate that makes amount worth usd, rounded down.
func impliedRate(coin card.Currency, usd card.USD, amount card.Amount) (card.Decimal, error) {
	if amount <= 0 {
		return card.Decimal{}, ErrNoPrice
	}
	// cents/100 / (amount/10^decimals) * 10^scale
	units := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(coin.Decimals+card.RateScale-2)), nil)
	units.Mul(units, big.NewInt(int64(usd)))
	units.Quo(units, big.NewInt(int64(amount)))
	if !units.IsInt64() {
		return card.Decimal{}, ErrNoPrice
	}
	return card.Decimal{Units: units.Int64(), Scale: card.RateScale}, nil
}

// attributions returns the rows of a decision.
func (d AttributionDecision) attributions(to destination) []Attribution {
	all := make([]Attribution, len(to.transfers))
	for i, t := range to.transfers {
		id := uuid.Must(uuid.NewV7())
		all[i] = Attribution{TransferID: TransferID{t.Currency, t.TxID, t.Output}, ID: id, Kind: d.Kind, Amount: t.Amount,
			Note: d.Note, Operator: d.Operator, CreatedAt: card.TimeOf(id)}
		if to.card != nil {
			all[i].CardUUID = to.card.UUID
		}
	}
	return all
}

func sum(transfers []card.Transfer) (total card.Amount) {
	for _, t := range transfers {
		total += t.Amount
	}
	return total
}
