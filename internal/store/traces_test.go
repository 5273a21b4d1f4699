package store_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/trace"
)

// traced returns a context within a span.
func traced(ctx context.Context) context.Context {
	return oteltrace.ContextWithSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID(uuid.New()), SpanID: oteltrace.SpanID{1}, TraceFlags: oteltrace.FlagsSampled}))
}

func TestTraceParents_AreStoredWithTheirCards(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		ctx := traced(t.Context())
		one, reserved, untraced := newCard(owner), newCard(owner), newCard(owner)
		_, err := s.InsertCard(ctx, one, 0)
		check(t, err)
		stockUp(t, s, 1)
		_, err = s.InsertCardReserving(ctx, reserved, 0, shelf, 0)
		check(t, err)
		_, err = s.InsertCard(t.Context(), untraced, 0)
		check(t, err)

		got, err := s.TraceParents(t.Context(), []uuid.UUID{one.UUID, reserved.UUID, untraced.UUID, uuid.New()})
		check(t, err)
		want := map[uuid.UUID]string{one.UUID: trace.Parent(ctx), reserved.UUID: trace.Parent(ctx)}
		if diff := cmp.Diff(want, got); diff != "" || len(want[one.UUID]) != 55 {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
