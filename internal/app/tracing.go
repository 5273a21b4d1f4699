package app

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/otlp"
	"github.com/cardmint/cardmint/internal/trace"
)

// tracesGrace limits sending the last spans during shutdown.
const tracesGrace = 3 * time.Second

// TracingConfig configures where traces are sent.
type TracingConfig struct {
	Endpoint string `name:"otlp-endpoint" env:"CARDMINT_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"Collector of OpenTelemetry to send traces to, by OTLP over HTTP, for example http://127.0.0.1:4318. Defaults to none. Other variables of OpenTelemetry hold too, such as OTEL_TRACES_SAMPLER."`
}

// openTracing opens the tracer, if there is one, and returns a function that
// sends the last spans.
func (p *process) openTracing(ctx context.Context) (end func(), err error) {
	cfg := otlp.Config{Endpoint: p.cfg.Tracing.Endpoint, Version: Version(), Role: p.cfg.Role, Log: p.Log}
	if !cfg.On() {
		return func() {}, nil
	}
	provider, err := otlp.New(ctx, cfg)
	if err != nil {
		return nil, WithHint(err,
			"--otlp-endpoint takes the address of a collector, for example http://127.0.0.1:4318; without it there are no traces")
	}
	p.Log.Info("traces are on")
	p.tracer = trace.New(provider.Tracer(), nil)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesGrace)
		defer cancel()
		if err := provider.Close(ctx); err != nil {
			p.Log.WarnContext(ctx, "the last traces were not sent", "error", err)
		}
	}, nil
}
