package store

import (
	"context"

	"github.com/cardmint/cardmint/internal/card"
)

// A canceled card is stored as one that has expired, and when it was canceled:
// programs of before know no other state.

// storedState returns how a state is stored.
func storedState(state card.PaymentState) card.PaymentState {
	if state == card.Canceled {
		return card.Expired
	}
	return state
}

// stateOfCanceled returns the state of a card that was canceled, and is stored
// as in state.
func stateOfCanceled(state card.PaymentState) card.PaymentState {
	if state == card.Expired {
		return card.Canceled
	}
	return state
}

// cancelCard cancels a card that holds no money. A transfer that a pass is
// about to store makes it wait for the card's row, or the pass waits for it:
// then the card's received is what the pass stored, or the pass assesses a
// canceled card. What is there is asked as well, because a card that was
// damaged was not assessed when its money came.
const cancelCard = `UPDATE cards SET payment_state = 'expired', canceled_at = ?, credit_due = 0
	WHERE uuid = ? AND account_id = ? AND status = 'awaiting_payment' AND payment_state = 'unpaid' AND received = 0 AND refunded = 0
	AND NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = cards.currency AND t.address = cards.address AND t.counted)`

// freeCanceled frees what is reserved for a card. The time leads to the item by
// an index.
const freeCanceled = freeStock +
	" WHERE state = 'reserved' AND reserved_until = (SELECT expires_at FROM cards WHERE uuid = ?) AND card_uuid = ?"

// CancelCard implements order.Store. It is twelve round trips, and four if the
// card can't be canceled. Once COMMIT is sent, it does not end with ctx
// (outlive).
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
