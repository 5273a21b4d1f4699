package webhook

import (
	"context"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/trace"
)

// traceParents returns the stored traces of the deliveries' cards.
func (s *Sender) traceParents(ctx context.Context, due []Delivery) trace.Parents {
	ids := make([]uuid.UUID, len(due)) // the zero UUID, for events of no card, has no trace
	for i, d := range due {
		ids[i] = d.Event.CardUUID
	}
	return s.cfg.Tracer.Parents(ctx, ids)
}

// attempt sends an event once, and passes the attempt to Config.Observe unless
// it was postponed. A panic counts as a failed attempt, so that it is retried
// on schedule, and only ten times.
func (s *Sender) attempt(ctx context.Context, c *Claim, e card.Event, parents trace.Parents) (a Attempt) {
	err := panics.Call(func() error {
		a = s.post(ctx, c, e, parents)
		failpoint.Hit(failpoint.Delivered)
		if a.Postponed == 0 {
			s.cfg.Observe(a)
		}
		return nil
	})
	if err != nil {
		s.log.ErrorContext(ctx, "event attempt panicked", "event", e.ID, "error", err, panics.Stack(err))
	}
	if a.At.IsZero() {
		a = Attempt{At: s.cfg.Now(), Error: "internal error"}
	}
	return a
}

// post sends an event within a span in the trace of the event's card.
func (s *Sender) post(ctx context.Context, c *Claim, e card.Event, parents trace.Parents) Attempt {
	ctx, span := s.cfg.Tracer.StartSend(ctx, parents, e.CardUUID, "deliver webhook")
	a := s.poster.Post(ctx, c.Webhook.URL, c.Secrets, e)
	span.SetText("cardmint.event", string(e.Type))
	if a.Status != 0 {
		span.SetNumber("http.response.status_code", int64(a.Status))
	}
	if !a.OK() {
		span.Fail()
	}
	span.End()
	return a
}
