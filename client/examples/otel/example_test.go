package otel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/cardmint/cardmint/client"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Each attempt of a call is a span below the caller's span, and sends its
// traceparent.
func Example() {
	spans := tracetest.NewInMemoryExporter()
	tracing := trace.NewTracerProvider(trace.WithSyncer(spans))

	c, err := client.New(service().URL, "cm_test_token",
		client.WithMiddleware(func(next http.RoundTripper) http.RoundTripper {
			return otelhttp.NewTransport(next,
				otelhttp.WithTracerProvider(tracing),
				otelhttp.WithPropagators(propagation.TraceContext{}),
				otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path }))
		}))
	if err != nil {
		log.Fatal(err)
	}
	ctx, span := tracing.Tracer("shop").Start(context.Background(), "checkout")
	currencies, err := c.ListCurrencies(ctx)
	span.End()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(currencies), "currencies")
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.SpanContext.TraceID() == span.SpanContext().TraceID(), s.Status.Code)
	}
	// Output:
	// traced: true
	// traced: true
	// 0 currencies
	// GET /api/currencies true Error
	// GET /api/currencies true Unset
	// checkout true Unset
}

// service returns a service that is busy at first.
func service() *httptest.Server {
	var asked atomic.Int32
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("traced:", r.Header.Get("Traceparent") != "")
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "[]")
	}))
}
