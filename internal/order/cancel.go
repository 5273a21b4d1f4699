package order

import (
	"context"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// CancelCard cancels a card that holds no money, and returns it. It is a no-op
// if the card is canceled or expired. It makes two calls to the store. The
// error is card.ErrNotFound if the account has no such card, and
// card.ErrHasPayments if money has arrived for it.
//
// A payment that is first seen later is late (card.Assess). A payment that a
// node saw earlier, but no pass has stored yet, is in time: the customer paid
// before the card was canceled.
func (s *Service) CancelCard(ctx context.Context, account, id uuid.UUID) (*card.Card, error) {
	eventID := uuid.Must(uuid.NewV7())
	canceled, err := s.store.CancelCard(ctx,
		card.Event{ID: eventID, AccountID: account, Type: card.EventCanceled, CardUUID: id,
			Status: card.AwaitingPayment, State: card.Canceled, CreatedAt: s.cfg.Now()})
	if err != nil {
		return nil, err
	}
	if canceled {
		s.forgetExposure(account)
	}
	c, err := s.GetCard(ctx, account, id)
	if err != nil || canceled {
		return c, err // even if a payment has arrived since
	}
	switch ended := c.State == card.Canceled || c.State == card.Expired; {
	case ended && c.Received == 0 && c.Refunded == 0:
		return c, s.store.AwaitReplication(ctx) // the outcome of an earlier attempt may be unknown
	case c.State == card.Unpaid && c.Received == 0 && c.Refunded == 0:
		return nil, card.ErrUnavailable // a reorg has just removed the payment
	}
	return nil, card.ErrHasPayments
}
