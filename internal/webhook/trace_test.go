package webhook_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cardmint/cardmint/internal/trace"
)

// requests maps cards to the traces of their requests.
type requests map[uuid.UUID]string

func (r requests) TraceParents(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	found := maps.Clone(r)
	maps.DeleteFunc(found, func(id uuid.UUID, _ string) bool { return !slices.Contains(ids, id) })
	return found, nil
}

func TestSender_Attempt_IsSpanInTraceOfCard(t *testing.T) {
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	type span struct {
		Trace, Event string
		Status       int64 // 0 if absent
		Failed       bool
	}
	for name, tt := range map[string]struct {
		url  string
		want span
	}{
		"accepted": {newReceiver(t, func(int) int { return 204 }).URL, span{traceID, "payment.underpaid", 204, false}},
		"rejected": {newReceiver(t, func(int) int { return 400 }).URL, span{traceID, "payment.underpaid", 400, true}},
		"no reply": {"http://127.0.0.1:1/", span{traceID, "payment.underpaid", 0, true}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				ended := tracetest.NewSpanRecorder()
				tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(ended)).Tracer("test")
				s.cfg.Tracer = trace.New(tracer, requests{s.card.UUID: "00-" + traceID + "-b7ad6b7169203331-01"})
				s.open()
				s.createWebhook(tt.url)
				s.insertEvents(1)
				s.deliver()
				var got []span
				for _, e := range ended.Ended() {
					this := span{Trace: e.SpanContext().TraceID().String(), Failed: e.Status().Code == codes.Error}
					for _, a := range e.Attributes() {
						switch a.Key {
						case "cardmint.event":
							this.Event = a.Value.AsString()
						case "http.response.status_code":
							this.Status = a.Value.AsInt64()
							if this.Status == 0 {
								t.Error("a status of 0 is exported")
							}
						}
					}
					got = append(got, this)
				}
				if diff := cmp.Diff([]span{tt.want}, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
