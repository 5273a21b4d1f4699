package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"
)

// PaymentError says that waiting longer for a card is of no use: its payment is
// [PaymentStateExpired], [PaymentStateLate] or [PaymentStateCanceled], or was
// given back. It need not be the last word. What came can be settled by the
// service's operator, and the card is then generated after all;
// [Client.GetCard] shows it.
type PaymentError struct {
	UUID     uuid.UUID // the card
	State    PaymentState
	Refunded bool // the service's operator gave the money back
}

// Error says what to do.
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

// WaitForCard waits until a card is generated, and answers it with its
// credentials. Where the service masks them, [Client.RevealCard] has the whole
// of them. Paying takes as long as the blockchain takes, often half an hour:
// give it a context with a deadline.
//
// It learns of what happens to the card from the feed of events, which answers
// as soon as something does, and looks at the card then, and every half a
// minute. Where the service has no such feed, or the token may not read it, it
// looks at the card again and again, see [WithPollInterval].
//
// It answers an error, together with the card as it was last seen (nil if it
// never was), when
//
//   - the payment is expired, late or canceled, or was given back: a [*PaymentError], to be found with [errors.As];
//   - the context ends: an error that wraps the context's, and its cause;
//   - the card can't be read. Once the card was seen, failures that are likely to pass do not end the wait.
//
// It goes on waiting for a payment that is underpaid, which the payer can still
// complete, and while a refund is due, because the service's operator may still
// have the card made: the context's end tells what is due.
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

// over says whether waiting for a card is over, and with what error.
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

// progress tells how far the payment was when the wait ended.
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
