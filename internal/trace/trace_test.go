package trace_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cardmint/cardmint/internal/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func recording(t *testing.T) (*trace.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return trace.New(p.Tracer("test"), nil), spans
}

// everything starts and ends all spans of a request and its later work.
func everything(ctx context.Context, t *trace.Tracer, h http.Header, cards []uuid.UUID) {
	card := cards[0]
	ctx, request := t.StartServer(ctx, "createCard", trace.Incoming(h))
	request.SetText("a", "b")
	request.SetNumber("a", 1)
	request.SetCard(card)
	_ = trace.Parent(ctx)
	pass := t.StartRoot(ctx, "pass", time.Time{})
	ctx, work := t.StartWork(ctx, t.Parents(ctx, cards), card, "issue", pass)
	ctx, call := t.StartClient(work.In(ctx), "supplier submit")
	trace.Inject(ctx, h)
	_ = trace.ID(ctx)
	_, post := t.StartSend(ctx, nil, card, "deliver")
	for _, s := range []*trace.Span{post, call, work, pass, request} {
		s.Fail()
		s.End()
	}
}

func TestTracer_Nil_DoesNotAllocate(t *testing.T) {
	ctx, h, cards := t.Context(), http.Header{"Traceparent": {parent}}, []uuid.UUID{uuid.New()}
	var off *trace.Tracer
	if off.With(nil) != nil {
		t.Error("traces are on")
	}
	if n := testing.AllocsPerRun(100, func() { everything(ctx, off, h, cards) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(h) != 1 || h.Get("Traceparent") != parent {
		t.Errorf("headers %v", h)
	}
}

// Only a valid traceparent of the client continues its trace.
func TestStartServer_InvalidTraceparent_IsIgnored(t *testing.T) {
	for name, tt := range map[string]struct {
		header http.Header
		joins  bool
	}{
		"valid":          {http.Header{"Traceparent": {parent}, "Tracestate": {"a=b"}}, true},
		"none":           {http.Header{}, false},
		"two":            {http.Header{"Traceparent": {parent, parent}}, false},
		"zero trace":     {http.Header{"Traceparent": {"00-00000000000000000000000000000000-b7ad6b7169203331-01"}}, false},
		"zero span":      {http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}}, false},
		"short":          {http.Header{"Traceparent": {parent[:54]}}, false},
		"version ff":     {http.Header{"Traceparent": {"ff" + parent[2:]}}, false},
		"upper case":     {http.Header{"Traceparent": {"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"}}, false},
		"something else": {http.Header{"Traceparent": {"'; DROP TABLE cards; --"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tracer, spans := recording(t)
			ctx, span := tracer.StartServer(t.Context(), "getCard", trace.Incoming(tt.header))
			span.End()
			s := spans.Ended()[0]
			if joined := s.SpanContext().TraceID().String() == parent[3:35]; joined != tt.joins ||
				s.Parent().IsValid() != tt.joins {
				t.Errorf("the trace is %s, the parent %v", s.SpanContext().TraceID(), s.Parent())
			}
			h := http.Header{}
			trace.Inject(ctx, h)
			if len(h) != 1 || h.Get("Traceparent") != trace.Parent(ctx) || len(trace.Parent(ctx)) != 55 ||
				s.SpanContext().TraceState().Len() > 0 {
				t.Errorf("what goes on is %v", h)
			}
		})
	}
}

// parents has the traces of cards, until it breaks.
type parents struct {
	found map[uuid.UUID]string
	err   error
	asked int
}

func (p *parents) TraceParents(context.Context, []uuid.UUID) (map[uuid.UUID]string, error) {
	p.asked++
	return p.found, p.err
}

// Work on a card continues the trace of the request that ordered it. If that
// trace can't be read, the work gets a new one.
func TestStartWork_ContinuesTraceOfCard(t *testing.T) {
	card := uuid.New()
	known := map[uuid.UUID]string{card: parent}
	for name, tt := range map[string]struct {
		cards *parents
		ids   []uuid.UUID
		card  uuid.UUID
		asked int
		joins bool
	}{
		"known":            {&parents{found: known}, []uuid.UUID{card}, card, 1, true},
		"not known":        {&parents{}, []uuid.UUID{card}, card, 1, false},
		"out of reach":     {&parents{found: known, err: context.DeadlineExceeded}, []uuid.UUID{card}, card, 1, false},
		"nobody asks":      {&parents{found: known}, nil, card, 0, false},
		"of no card":       {&parents{found: known}, []uuid.UUID{uuid.Nil}, uuid.Nil, 1, false},
		"nobody remembers": {nil, []uuid.UUID{card}, card, 0, false},
	} {
		tracer, spans := recording(t)
		if tt.cards != nil {
			tracer = tracer.With(tt.cards)
		}
		pass := tracer.StartRoot(t.Context(), "pass", time.Time{})
		_, work := tracer.StartWork(t.Context(), tracer.Parents(t.Context(), tt.ids), tt.card, "work", pass)
		work.End()
		_, alone := tracer.StartSend(t.Context(), nil, tt.card, "send")
		alone.End()
		s := spans.Ended()
		if joined := s[0].SpanContext().TraceID().String() == parent[3:35]; joined != tt.joins || len(s[0].Links()) != 1 ||
			len(s[1].Links()) != 0 {
			t.Errorf("%s: joins %t, want %t; links to %v and %v", name, joined, tt.joins, s[0].Links(), s[1].Links())
		}
		if tt.cards != nil && tt.cards.asked != tt.asked {
			t.Errorf("%s: asked %d times, want %d", name, tt.cards.asked, tt.asked)
		}
		if said := len(s[0].Attributes()) == 1 &&
			s[0].Attributes()[0].Value.AsString() == tt.card.String(); said != (tt.card != uuid.Nil) {
			t.Errorf("%s: attributes %v", name, s[0].Attributes())
		}
	}
}

func BenchmarkSpans(b *testing.B) {
	ctx, h, cards := b.Context(), http.Header{"Traceparent": {parent}}, []uuid.UUID{uuid.New()}
	for name, sampler := range map[string]sdk.Sampler{"off": nil, "not sampled": sdk.NeverSample(),
		"on": sdk.AlwaysSample()} {
		b.Run(name, func(b *testing.B) {
			var t *trace.Tracer
			if sampler != nil {
				p := sdk.NewTracerProvider(sdk.WithSampler(sampler), sdk.WithBatcher(tracetest.NewNoopExporter()))
				defer func() { _ = p.Shutdown(ctx) }()
				t = trace.New(p.Tracer("test"), nil)
			}
			b.ReportAllocs()
			for b.Loop() {
				everything(ctx, t, h, cards)
			}
		})
	}
}
