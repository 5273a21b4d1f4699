package webhook

import (
	"context"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/trace"
)

// causes returns the traces of the cards that deliveries are about.
func (s *Sender) causes(ctx context.Context, due []Delivery) trace.Causes {
	ids := make([]uuid.UUID, len(due)) // the zero UUID, of no card, has none
	for i, d := range due {
		ids[i] = d.Event.CardUUID
	}
	return s.cfg.Tracer.Causes(ctx, ids)
}

// post makes an attempt, within a span in the trace of the card that the event is about.
func (s *Sender) post(ctx context.Context, to receiver, e card.Event, causes trace.Causes) Attempt {
	ctx, span := s.cfg.Tracer.Send(ctx, causes, e.CardUUID, "deliver webhook")
	a := s.poster.post(ctx, to, e)
	span.Text("cardmint.event", string(e.Type))
	if a.Status != 0 {
		span.Number("http.response.status_code", int64(a.Status))
	}
	if !a.OK() {
		span.Fail()
	}
	span.End()
	return a
}
