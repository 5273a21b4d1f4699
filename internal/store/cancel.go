package store

import (
	"context"

	"github.com/cardmint/cardmint/internal/card"
)

// A canceled card is stored as expired, with canceled_at set, because programs
// of older versions do not know the state.

// storedState returns the stored form of a state.
func storedState(state card.PaymentState) card.PaymentState {
	if state == card.Canceled {
		return card.Expired
	}
	return state
}

// stateOfCanceled returns the state of a card with canceled_at set that is
// stored with the given state.
func stateOfCanceled(state card.PaymentState) card.PaymentState {
	if state == card.Expired {
		return card.Canceled
	}
	return state
}

// cancelCard cancels a card that holds no money. If a pass is about to store a
// transfer, one of the two waits for the lock of the card's row: then either
// received includes the transfer, or the pass assesses a canceled card. The
// transfers are checked too, because a card whose row was corrupt was not
// assessed when its money arrived.
const cancelCard = `UPDATE cards SET payment_state = 'expired', canceled_at = ?, credit_due = 0
	WHERE uuid = ? AND account_id = ? AND status = 'awaiting_payment' AND payment_state = 'unpaid'
	AND received = 0 AND refunded = 0
	AND NOT EXISTS (SELECT 1 FROM transfers t
		WHERE t.currency = cards.currency AND t.address = cards.address AND t.counted)`

// freeCanceled releases the item that is reserved for a card. An index finds it
// by the time.
const freeCanceled = freeStock +
	" WHERE state = 'reserved' AND reserved_until = (SELECT expires_at FROM cards WHERE uuid = ?) AND card_uuid = ?"

// CancelCard implements order.Store. It takes twelve round trips, or four if the
// card can't be canceled. Once COMMIT is sent, it continues even if ctx ends.
func (s *Store) CancelCard(ctx context.Context, e card.Event) (canceled bool, err error) {
	err = s.inTx(ctx, func(t *tx) error {
		t.requireAttestation = s.requireAttestation.Load()
		n, err := s.exec(ctx, t.t, "cancel card", cancelCard, e.CreatedAt.UnixMilli(), e.CardUUID, e.AccountID)
		if canceled = n == 1; err != nil || !canceled {
			return err
		}
		if _, err := s.exec(ctx, t.t, "free stock", freeCanceled, e.CardUUID, e.CardUUID); err != nil {
			return err
		}
		return t.InsertEvents(ctx, []card.Event{e})
	})
	return canceled && err == nil, err
}
