// Package trace records the life of a card in OpenTelemetry spans, from the
// request that orders it to the webhook that announces it.
//
// It imports none of our packages, and only the API of OpenTelemetry; package
// otlp exports the spans. The methods of a nil *Tracer and a nil *Span are
// no-ops, so that callers need not check whether traces are on. No span contains
// an error text, which could contain an address.
//
// Work on a card happens minutes after its request, and in other processes. So
// the request's trace is stored with the card, and later work continues it as a
// child of the request. Work on many cards, such as a pass, has its own trace,
// and the cards' spans link to it.
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

// header is the request header of https://www.w3.org/TR/trace-context. Its
// companion, tracestate, may contain anything, and is not forwarded.
const header = "Traceparent"

// Cards reads the stored traces of cards.
type Cards interface {
	// TraceParents returns the stored results of Parent for cards, without
	// empty ones.
	TraceParents(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
}

// Tracer starts spans. It is safe for concurrent use.
type Tracer struct {
	spans trace.Tracer
	cards Cards
}

// New returns a tracer. cards may be nil; then no work continues a stored trace.
func New(spans trace.Tracer, cards Cards) *Tracer { return &Tracer{spans, cards} }

// With returns a tracer like t that reads the traces of cards from another store.
func (t *Tracer) With(cards Cards) *Tracer {
	if t == nil {
		return nil
	}
	return New(t.spans, cards)
}

// Span is a timed operation.
type Span struct{ span trace.Span }

// StartServer starts the span of an incoming request. The request's traceparent,
// if valid, is its parent, and is used for nothing else.
func (t *Tracer) StartServer(ctx context.Context, operation, traceparent string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(parse(ctx, traceparent), operation, trace.SpanKindServer)
}

// StartClient starts the span of an outgoing request.
func (t *Tracer) StartClient(ctx context.Context, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, name, trace.SpanKindClient)
}

// StartRoot starts a span in a new trace, for work on many cards that began
// earlier.
func (t *Tracer) StartRoot(ctx context.Context, name string, began time.Time) *Span {
	if t == nil {
		return nil
	}
	_, s := t.start(ctx, name, trace.SpanKindInternal, trace.WithNewRoot(), trace.WithTimestamp(began))
	return s
}

// Parents maps cards to their stored traces.
type Parents map[uuid.UUID]string

// Parents returns the stored traces of cards, for StartWork and StartSend. If
// they can't be read, the work has new traces.
func (t *Tracer) Parents(ctx context.Context, ids []uuid.UUID) Parents {
	if t == nil || t.cards == nil || len(ids) == 0 {
		return nil
	}
	found, err := t.cards.TraceParents(ctx, ids)
	if err != nil {
		return nil
	}
	return found
}

// StartWork starts the span of work on one card, in the card's trace. It links
// to the span that found the work, unless that is nil.
func (t *Tracer) StartWork(ctx context.Context, of Parents, card uuid.UUID, name string, found *Span) (context.Context,
	*Span) {
	return t.work(ctx, of, card, name, found, trace.SpanKindConsumer)
}

// StartSend is like StartWork, for an outgoing request.
func (t *Tracer) StartSend(ctx context.Context, of Parents, card uuid.UUID, name string) (context.Context, *Span) {
	return t.work(ctx, of, card, name, nil, trace.SpanKindClient)
}

func (t *Tracer) work(ctx context.Context, of Parents, card uuid.UUID, name string, found *Span,
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
		s.SetCard(card)
	}
	return ctx, s
}

func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind,
	options ...trace.SpanStartOption) (context.Context, *Span) {
	ctx, s := t.spans.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
	return ctx, &Span{s}
}

// SetCard sets the card of a span, by its uuid only.
func (s *Span) SetCard(id uuid.UUID) {
	if s != nil {
		s.span.SetAttributes(attribute.Stringer("cardmint.card", id))
	}
}

// SetText sets an attribute to one of a few fixed words. Never pass text from
// outside.
func (s *Span) SetText(key, value string) {
	if s != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetNumber sets an attribute.
func (s *Span) SetNumber(key string, value int64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// In returns ctx within the span.
func (s *Span) In(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Fail marks the span as failed.
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

// ID returns the trace id of ctx, or "".
func ID(ctx context.Context) string {
	if in := trace.SpanContextFromContext(ctx); in.HasTraceID() {
		return in.TraceID().String()
	}
	return ""
}

// Parent returns the traceparent to store with a card, or "".
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	h := http.Header{}
	Inject(ctx, h)
	return h.Get(header)
}

// Inject adds the traceparent of ctx to request headers. It is a no-op while
// traces are off.
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
	if sent := h[header]; len(sent) == 1 { // repeated headers are invalid
		return sent[0]
	}
	return ""
}

// parse returns ctx within the remote span of traceparent, or within none if that
// is invalid.
func parse(ctx context.Context, traceparent string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
