package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"
)

// PaymentError means that a card can no longer be paid: its payment is
// [PaymentStateExpired], [PaymentStateLate] or [PaymentStateCanceled], or was
// refunded. The operator may still accept late money and issue the card;
// [Client.GetCard] shows it then.
type PaymentError struct {
	UUID     uuid.UUID // the card
	State    PaymentState
	Refunded bool // the operator refunded the money
}

// Error returns a text with the next step.
func (e *PaymentError) Error() string {
	advice := "nothing arrived in time; do not pay any more, ask for a new card"
	switch {
	case e.Refunded:
		advice = "the service's operator gave the money back; do not pay any more, ask for a new card"
	case e.State == PaymentStateCanceled:
		advice = "the card was canceled; do not pay any more, ask for a new card"
	case e.State == PaymentStateLate:
		advice = "the money came too late or was too little, and does not buy the card; ask the service's operator"
	}
	return fmt.Sprintf("the payment of card %s is %s: %s", e.UUID, e.State, advice)
}

// WaitForCard waits until a card is generated, and returns it with its
// credentials. Where the service masks them, read them with
// [Client.RevealCard]. Confirmations often take half an hour: use a context
// with a deadline.
//
// It waits for events of the card by long polling, and reads the card after
// each event and every half minute. If the service has no feed, or the token
// may not read it, it polls the card (see [WithPollInterval]).
//
// It returns an error, together with the last state of the card (nil if it was
// never read), if
//
//   - the payment is expired, late, canceled or refunded: a [*PaymentError];
//   - the context ends: an error that wraps the context's error and its cause;
//   - the card can't be read. Once it was read, temporary failures do not end the wait.
//
// It keeps waiting while a payment is underpaid, which the payer can still
// complete, and while a refund is due, because the operator may still issue the
// card. The error after the context's end includes the refund due.
func (c *Client) WaitForCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	r := request{operation: opGetCard(id.String())}
	if err := c.prepare(ctx, &r, opts); err != nil {
		return nil, fmt.Errorf("WaitForCard: %w", err)
	}
	if r.timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *r.timeout)
		defer cancel()
	}
	var card *Card
	feed := cardFeed{client: c, card: id, opts: opts, timeout: r.attemptTimeout}
	for interval := c.pollFirst; ; {
		seen, err := c.GetCard(ctx, id, opts...)
		switch {
		case err == nil:
			card = seen
			if done, err := over(card); done {
				return card, err
			}
			if feed.wait(ctx) {
				continue
			}
		case ctx.Err() == nil && (card == nil || !temporary(err, true)):
			return card, fmt.Errorf("WaitForCard: %w", err)
		}
		pause := max(interval/2+rand.N(interval/2+1), feed.retryAfter)
		if e, ok := asType[*Error](err); ok {
			pause = max(pause, e.RetryAfter)
		}
		interval = min(interval*3/2, c.pollLongest)
		sleep(ctx, pause)
		if ctx.Err() != nil {
			if !errors.Is(err, ctx.Err()) {
				err = ended(ctx, err)
			}
			return card, fmt.Errorf("WaitForCard: %w%s", err, progress(card))
		}
	}
}

// over reports whether the wait for a card is over, and its error.
func over(card *Card) (bool, error) {
	if card.Status == CardStatusGenerated {
		return true, nil
	}
	s := card.Payment.State
	refunded := card.Refund != nil && (s == PaymentStateUnpaid || s == PaymentStateExpired || s == PaymentStateCanceled)
	if refunded || s == PaymentStateExpired || s == PaymentStateLate || s == PaymentStateCanceled {
		return true, fmt.Errorf("WaitForCard: %w", &PaymentError{UUID: card.UUID, State: s, Refunded: refunded})
	}
	return false, nil
}

// progress describes the payment's state at the end of the wait.
func progress(card *Card) string {
	if card == nil {
		return ""
	}
	p := card.Payment
	if p.RefundDue.IsPositive() {
		return fmt.Sprintf("; no supplier makes the card, and %s %s are to be given back", p.RefundDue, p.Currency)
	}
	return fmt.Sprintf("; the payment is %s: %s %s are due, %d of %d confirmations",
		p.State, p.AmountDue, p.Currency, p.Confirmations, p.ConfirmationsRequired)
}
