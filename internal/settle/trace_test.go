package settle_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/trace"
)

// requests has the trace context of each card's request.
type requests map[uuid.UUID]string

func (r requests) TraceParents(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	found := maps.Clone(r)
	maps.DeleteFunc(found, func(id uuid.UUID, _ string) bool { return !slices.Contains(ids, id) })
	return found, nil
}

// Only a pass that changes something has a span, so that such passes can be
// found. A confirmed payment belongs to the trace of its card.
func TestWatcher_PassWithChanges_HasSpan(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		const traceID = "0af7651916cd43dd8448eb211c80319c"
		c := s.order()
		ended := tracetest.NewSpanRecorder()
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(ended)).Tracer("test")
		s.watcher = s.watch(s.chain, settle.Config{FillBatch: 200,
			Tracer: trace.New(tracer, requests{c.UUID: "00-" + traceID + "-b7ad6b7169203331-01"})})
		for _, step := range []struct {
			name    string
			happens func()
			want    []string
		}{
			{"nothing happens", func() {}, nil},
			{"a block without payments", func() { s.mine(1) }, nil},
			{"a payment is seen", func() { s.pay(c, c.Amount, 1) }, []string{"pass monero, a trace of its own"}},
			{"it is confirmed", func() { s.mine(10) }, []string{
				"payment confirmed, the trace of the card", "pass monero, a trace of its own"}},
			{"more comes than is due", func() { s.pay(c, 1, 0) }, []string{"pass monero, a trace of its own"}},
		} {
			step.happens()
			s.tick()
			var got []string
			for _, e := range ended.Ended() {
				text := e.Name() + ", a trace of its own"
				if e.SpanContext().TraceID().String() == traceID {
					text = e.Name() + ", the trace of the card"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Errorf("%s: %s", step.name, diff)
			}
			ended.Reset()
		}
		s.settle()
	})
}
