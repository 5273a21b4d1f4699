package server

import (
	"net/http"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/trace"
	"github.com/cardmint/cardmint/openapi"
)

// BenchmarkTracing measures a request with traces off. It must cost no more
// than BenchmarkStages/getCard/authenticate and the request's id.
func BenchmarkTracing(b *testing.B) {
	for _, tt := range []struct {
		name    string
		sampler sdk.Sampler
	}{{"off", nil}, {"not sampled", sdk.NeverSample()}, {"on", sdk.AlwaysSample()}} {
		b.Run(tt.name, func(b *testing.B) {
			handlers, f, token := stages(b, limit.New(nil, limit.Config{}), newGates(noMetrics{}))
			engine := newEngine()
			engine.Use(requestID)
			if tt.sampler != nil {
				p := sdk.NewTracerProvider(sdk.WithSampler(tt.sampler), sdk.WithBatcher(tracetest.NewNoopExporter()))
				defer func() { _ = p.Shutdown(b.Context()) }()
				s, err := loadSpec(openapi.YAML)
				if err != nil {
					b.Fatal(err)
				}
				engine.Use(traceRequests(trace.New(p.Tracer("test"), nil), s))
			}
			RegisterHandlers(engine.Group("", handlers[:1]...), NewStrictHandler(f, nil))
			run(b, engine, "GET", "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", "", token, http.StatusOK)
		})
	}
}
