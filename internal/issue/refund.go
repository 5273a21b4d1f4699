package issue

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
)

// declined routes the card to the next supplier. If there is none, it retries
// or marks the refund due.
func (s *Issuer) declined(ctx context.Context, intent Intent, c *card.Card, answer Answer) attempt {
	intent.Declines++
	intent.Refusals = append(intent.Refusals, Refusal{intent.Supplier, clean(answer.Reason), answer.Temporary})
	intent.Reason = reasons(intent.Refusals)
	next := s.cfg.Routes.next(c.USD, intent.Refusals)
	if next != "" {
		s.log.WarnContext(ctx, "supplier declined, card routed to the next one", "card", c.UUID, "reason", intent.Reason,
			"next",
			next)
		return attempt{intent: intent.routedTo(next)}
	}
	return s.retryOrRefund(ctx, intent, c, anyTemporary(intent.Refusals))
}

// outOfRange routes a card whose amount this supplier's route does not cover to
// another one. If there is none, it retries: an operator may change the routes.
func (s *Issuer) outOfRange(ctx context.Context, intent Intent, c *card.Card) attempt {
	intent = intent.withoutRequest()
	if next := s.cfg.Routes.next(c.USD, intent.Refusals); next != "" {
		return attempt{intent: intent.routedTo(next)}
	}
	intent.Reason = fmt.Sprintf("no supplier makes cards of %s US dollars", c.USD)
	return s.retryOrRefund(ctx, intent, c, true)
}

// retryOrRefund retries while mayChange is set, until Config.Patience has
// passed. Then it marks the refund due.
func (s *Issuer) retryOrRefund(ctx context.Context, intent Intent, c *card.Card, mayChange bool) attempt {
	if mayChange && intent.ClaimedAt.Sub(intent.OpenedAt) < s.cfg.Patience {
		s.log.WarnContext(ctx, "no supplier can issue the card now", "card", c.UUID, "reason", intent.Reason)
		return attempt{intent: intent.unrouted().retryLater(intent.Reason)}
	}
	intent.State = StateRefundDue
	return attempt{card: c, intent: intent}
}

// saveAll stores intents whose card was not issued. Each newly due refund gets
// its own transaction, with its event.
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

// refundDue stores that the refund of a card is due, with the event.
func (s *Issuer) refundDue(ctx context.Context, intent Intent) error {
	paid := false
	err := s.store.IssueTx(ctx, func(tx Tx) error {
		now, err := tx.LockCardsByUUID(ctx, []uuid.UUID{intent.CardUUID})
		if err != nil {
			return err
		}
		paid = len(now) == 1 && now[0].State == card.Paid
		if !paid { // requested again once it is paid
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
