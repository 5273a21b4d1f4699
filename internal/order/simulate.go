package order

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// SimulatedPayment is a payment for SimulatePayment to make.
type SimulatedPayment struct {
	Amount        *card.Decimal // in whole coins; nil for the amount due
	Confirmations *int          // nil for the required number
}

// SimulatePayment pays for a card on the simulated chain. It returns the card once the watcher has seen the payment and a paid card is
// issued, or as it is after five seconds. The error is card.ErrNotFound if the card's chain is real.
func (s *Service) SimulatePayment(ctx context.Context, account, id uuid.UUID, p SimulatedPayment) (*card.Card, error) {
	if len(s.sandbox) == 0 {
		return nil, card.ErrNotFound.Saying("This service runs no simulated chain: pay with real coins.")
	}
	c, err := s.GetCard(ctx, account, id)
	if err != nil {
		return nil, err
	}
	sandbox, simulated := s.sandbox[c.Coin.Code]
	if !simulated {
		return nil, card.ErrNotFound.Saying("This card's currency has no simulated chain: pay with real coins.")
	}
	amount, confirmations := c.Credit.Due, c.ConfirmationsRequired
	if p.Amount != nil {
		exact, err := p.Amount.Rescale(c.Coin.Decimals)
		if err == nil && exact.Units == 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return nil, card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: err.Error()})
		}
		amount = card.Amount(exact.Units)
	}
	if p.Confirmations != nil {
		confirmations = *p.Confirmations
	}
	tip, err := sandbox.Pay(ctx, c.Address, amount, confirmations)
	if tooMuch := (*card.TooMuchError)(nil); errors.As(err, &tooMuch) {
		detail := "must be at most " + c.Coin.Decimal(tooMuch.Most).String() + ": more coins than there are can't come to one address"
		return nil, card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: detail}).Because(err)
	}
	if err != nil {
		return nil, err
	}
	return s.awaitSeen(ctx, c, amount, tip)
}

// awaitSeen reads the card until it shows the payment that was just sent, and is issued if it is paid. It gives up after five seconds.
func (s *Service) awaitSeen(ctx context.Context, before *card.Card, sent card.Amount, tip card.Tip) (*card.Card, error) {
	s.wake()
	giveUp := time.NewTimer(5 * time.Second)
	defer giveUp.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := s.GetCard(ctx, before.AccountID, before.UUID)
		if err != nil {
			return nil, err
		}
		seen := c.Received >= before.Received+sent && c.TipHeight >= tip.Height
		if beingMade := c.State == card.Paid && c.Status != card.Generated; seen && !beingMade {
			return c, nil
		}
		select {
		case <-again.C:
		case <-giveUp.C:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
