package issue

import (
	"context"
	"errors"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/trace"
)

// traced calls try in a span of the card's trace, which ends here unless there
// is a card to store. A panic counts as an unclear answer, because the request
// may have been sent.
func (s *Issuer) traced(ctx context.Context, intent Intent, c *card.Card, parents trace.Parents) (attempt, error) {
	ctx, span := s.cfg.Tracer.StartWork(ctx, parents, intent.CardUUID, "issue card", nil)
	span.SetText("cardmint.supplier", s.supplier.Name())
	span.SetNumber("cardmint.attempt", int64(intent.Attempts))
	var a attempt
	err := panics.Call(func() (err error) {
		a, err = s.try(ctx, intent, c)
		return err
	})
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		s.log.ErrorContext(ctx, "attempt to issue a card panicked", "card", intent.CardUUID, "attempt", intent.Attempts,
			"error", err,
			panics.Stack(err))
		a, err = attempt{intent: intent.withAnswer(Answer{}).retryLater("an internal error, see the log")}, nil
	}
	switch {
	case err != nil:
		span.Fail()
	case a.issued != nil:
		a.span = span
		return a, nil
	default:
		if a.intent.State == StateParked || a.intent.State == StateRefundDue {
			span.Fail()
		}
		span.SetText("cardmint.outcome", string(a.intent.State))
	}
	span.End()
	return a, err
}

// endAll ends the spans of cards that were not stored; all other spans have
// ended.
func endAll(cards []attempt) {
	for _, a := range cards {
		a.span.End()
	}
}

// endCall ends the span of a request to the supplier.
func endCall(span *trace.Span, outcome string) {
	span.SetText("cardmint.outcome", outcome)
	if outcome == "error" {
		span.Fail()
	}
	span.End()
}
