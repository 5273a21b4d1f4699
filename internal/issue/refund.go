package issue

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
)

// declined has the next supplier asked. If none is left, the card waits for one
// that may be able to make it later, but no longer than the operator's
// patience: then its refund is due.
func (s *Issuer) declined(ctx context.Context, intent Intent, c *card.Card, answer Answer) attempt {
	intent.Declines++
	intent.Refusals = append(intent.Refusals, Refusal{intent.Supplier, clean(answer.Reason), answer.Temporary})
	intent.Reason = reasons(intent.Refusals)
	next := s.cfg.Routes.next(c.USD, intent.Refusals)
	if next != "" {
		s.log.WarnContext(ctx, "the supplier declined: asking the next one", "card", c.UUID, "reason", intent.Reason, "next",
			next)
		return attempt{intent: intent.routedTo(next)}
	}
	return s.retryOrRefund(ctx, intent, c, anyTemporary(intent.Refusals))
}

// outOfRange has another supplier asked for a card whose amount this one is not
// asked for. If none is left, the card waits: operators may change that.
func (s *Issuer) outOfRange(ctx context.Context, intent Intent, c *card.Card) attempt {
	intent = intent.withoutRequest()
	if next := s.cfg.Routes.next(c.USD, intent.Refusals); next != "" {
		return attempt{intent: intent.routedTo(next)}
	}
	intent.Reason = fmt.Sprintf("no supplier makes cards of %s US dollars", c.USD)
	return s.retryOrRefund(ctx, intent, c, true)
}

// retryOrRefund has a card wait while a supplier may make it later, but no longer
// than the operator's patience: then its refund is due.
func (s *Issuer) retryOrRefund(ctx context.Context, intent Intent, c *card.Card, later bool) attempt {
	if later && intent.ClaimedAt.Sub(intent.OpenedAt) < s.cfg.Patience {
		s.log.WarnContext(ctx, "no supplier can make the card now", "card", c.UUID, "reason", intent.Reason)
		return attempt{intent: intent.unrouted().retryLater(intent.Reason)}
	}
	intent.State = StateRefundDue
	return attempt{card: c, intent: intent}
}

// saveAll stores what became of intents whose card is not issued. Each refund
// that is due is a transaction with the event that tells of it.
func (s *Issuer) saveAll(ctx context.Context, intents []Intent) error {
	var failed []error
	var others []Intent
	again := false
	for _, intent := range intents {
		if intent.State == StateRefundDue {
			failed = append(failed, s.refundDue(ctx, intent))
			continue
		}
		again = again || intent.Wait == 0 && intent.Supplier != s.supplier.Name()
		others = append(others, intent)
	}
	if len(others) > 0 {
		failed = append(failed, s.store.SaveIntents(ctx, others))
	}
	if again {
		s.wake.Issuers()
	}
	return errors.Join(failed...)
}

// refundDue stores that no supplier makes a card, and tells the account.
func (s *Issuer) refundDue(ctx context.Context, intent Intent) error {
	paid := false
	err := s.store.IssueTx(ctx, func(tx Tx) error {
		now, err := tx.LockCardsByUUID(ctx, []uuid.UUID{intent.CardUUID})
		if err != nil {
			return err
		}
		paid = len(now) == 1 && now[0].State == card.Paid
		if !paid { // it is asked for again once the money is back
			return tx.SaveIntents(ctx, []Intent{intent.reopened().retryLater(unpaidAgain)})
		}
		if err := tx.SaveIntents(ctx, []Intent{intent}); err != nil {
			return err
		}
		failpoint.Hit(failpoint.Refusing)
		return tx.InsertEvents(ctx,
			[]card.Event{card.NewEvent(uuid.Must(uuid.NewV7()), now[0], card.EventRefundDue, now[0].Status, now[0].State)})
	})
	switch {
	case errors.Is(err, card.ErrFenced):
		s.log.InfoContext(ctx, "another process took the card over", "card", intent.CardUUID)
		return nil
	case err != nil:
		return fmt.Errorf("refund due %s: %w", intent.CardUUID, err)
	case paid:
		s.log.ErrorContext(ctx, "refund is due: card needs an operator", "card", intent.CardUUID, "reason", intent.Reason)
		s.wake.Sender()
	}
	return nil
}
