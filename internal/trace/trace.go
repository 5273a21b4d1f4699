// Package trace says what a card goes through, in spans of OpenTelemetry: from
// the request that orders it to the webhook that tells of it.
//
// It imports none of our packages, and of OpenTelemetry only the API: what a
// span needs to be collected and sent is in package otlp. A nil *Tracer starts
// no spans and a nil *Span takes none of what it is told, without any cost, so
// that callers need not ask whether traces are on. No span has the text of an
// error, because such a text may name an address.
//
// Between a request and the work that follows from it lie minutes and other
// processes. So the trace of a request is stored with the card that it ordered,
// and work on one card continues that trace as a child of the request: it has
// one cause, which began it. Work on many cards, as a pass is, has a trace of
// its own, which the spans of the cards link to.
package trace

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// header is the one of https://www.w3.org/TR/trace-context that is used. What a
// tracestate has in it is anybody's, and is passed on to nobody.
const header = "Traceparent"

// Cards remembers the traces of cards.
type Cards interface {
	// TraceParents returns the traceparents that are stored with cards, as
	// Parent returned them. It leaves out cards without one.
	TraceParents(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
}

// Tracer starts spans. It is safe for concurrent use.
type Tracer struct {
	spans trace.Tracer
	cards Cards
}

// New returns a tracer. With nil for cards, no card has a trace of before.
func New(spans trace.Tracer, cards Cards) *Tracer { return &Tracer{spans, cards} }

// With returns a tracer like t that reads the traces of cards elsewhere.
func (t *Tracer) With(cards Cards) *Tracer {
	if t == nil {
		return nil
	}
	return New(t.spans, cards)
}

// Span is something that takes time.
type Span struct{ span trace.Span }

// Serve starts the span of a request. A valid traceparent that came with the
// request is its parent, so that a client sees what its request led to; nothing
// else depends on it.
func (t *Tracer) Serve(ctx context.Context, operation, traceparent string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(parse(ctx, traceparent), operation, trace.SpanKindServer)
}

// Call starts the span of a call of somebody else.
func (t *Tracer) Call(ctx context.Context, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, name, trace.SpanKindClient)
}

// Passed returns the span, with a trace of its own, of work on many cards that
// began before.
func (t *Tracer) Passed(ctx context.Context, name string, began time.Time) *Span {
	if t == nil {
		return nil
	}
	_, s := t.start(ctx, name, trace.SpanKindInternal, trace.WithNewRoot(), trace.WithTimestamp(began))
	return s
}

// Causes are the traces of cards.
type Causes map[uuid.UUID]string

// Causes returns the traces of cards, for Work. If they can't be read, their
// work has traces of its own.
func (t *Tracer) Causes(ctx context.Context, ids []uuid.UUID) Causes {
	if t == nil || t.cards == nil || len(ids) == 0 {
		return nil
	}
	found, err := t.cards.TraceParents(ctx, ids)
	if err != nil {
		return nil
	}
	return found
}

// Work starts the span of work on one card, in the card's trace. It links to
// where the work was found; nil for nowhere.
func (t *Tracer) Work(ctx context.Context, of Causes, card uuid.UUID, name string, found *Span) (context.Context,
	*Span) {
	return t.work(ctx, of, card, name, found, trace.SpanKindConsumer)
}

// Send is Work that calls somebody else.
func (t *Tracer) Send(ctx context.Context, of Causes, card uuid.UUID, name string) (context.Context, *Span) {
	return t.work(ctx, of, card, name, nil, trace.SpanKindClient)
}

func (t *Tracer) work(ctx context.Context, of Causes, card uuid.UUID, name string, found *Span,
	kind trace.SpanKind) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	options := []trace.SpanStartOption{}
	if found != nil {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: found.span.SpanContext()}))
	}
	ctx, s := t.start(parse(ctx, of[card]), name, kind, options...)
	if card != uuid.Nil {
		s.Card(card)
	}
	return ctx, s
}

func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind,
	options ...trace.SpanStartOption) (context.Context, *Span) {
	ctx, s := t.spans.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
	return ctx, &Span{s}
}

// Card says which card a span is about. A span says nothing else of a card.
func (s *Span) Card(id uuid.UUID) {
	if s != nil {
		s.span.SetAttributes(attribute.Stringer("cardmint.card", id))
	}
}

// Text adds an attribute, which must be one of few words: never what somebody
// else wrote.
func (s *Span) Text(key, value string) {
	if s != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Number adds an attribute.
func (s *Span) Number(key string, value int64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// In returns ctx as it is within the span.
func (s *Span) In(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Fail marks the span as one that failed.
func (s *Span) Fail() {
	if s != nil {
		s.span.SetStatus(codes.Error, "")
	}
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// ID returns the id of the trace that ctx is in, or "".
func ID(ctx context.Context) string {
	if in := trace.SpanContextFromContext(ctx); in.HasTraceID() {
		return in.TraceID().String()
	}
	return ""
}

// Parent returns the traceparent to store with a card that ctx orders, or "".
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	h := http.Header{}
	Inject(ctx, h)
	return h.Get(header)
}

// Inject adds a traceparent to the headers of a request that ctx sends. It does
// nothing while traces are off.
func Inject(ctx context.Context, h http.Header) {
	in := trace.SpanContextFromContext(ctx)
	if !in.IsValid() {
		return
	}
	ctx = trace.ContextWithSpanContext(ctx, in.WithTraceState(trace.TraceState{}))
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// Incoming returns the traceparent of a request, or "".
func Incoming(h http.Header) string {
	if sent := h[header]; len(sent) == 1 { // more than one is none
		return sent[0]
	}
	return ""
}

// parse returns ctx within the remote span that traceparent names, or in none
// if it is not valid.
func parse(ctx context.Context, traceparent string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
