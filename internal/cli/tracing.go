package cli

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/otlp"
	"github.com/cardmint/cardmint/internal/trace"
)

// tracesGrace is how long a process that ends may take to send its last spans.
const tracesGrace = 3 * time.Second

// tracingFlags say where traces go.
type tracingFlags struct {
	Endpoint string `name:"otlp-endpoint" env:"CARDMINT_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"Collector of OpenTelemetry to send traces to, by OTLP over HTTP, for example http://127.0.0.1:4318. Defaults to none. Other variables of OpenTelemetry hold too, such as OTEL_TRACES_SAMPLER."`
}

// openTracing returns the tracer of a process, or nil for none, and what ends
// it.
func (g *globals) openTracing(ctx context.Context, p plan) (t *trace.Tracer, end func(), err error) {
	cfg := otlp.Config{Endpoint: p.tracing.Endpoint, Version: version(), Role: p.role(), Log: g.log}
	if !cfg.On() {
		return nil, func() {}, nil
	}
	provider, err := otlp.New(ctx, cfg)
	if err != nil {
		return nil, nil, hint(err,
			"--otlp-endpoint takes the address of a collector, for example http://127.0.0.1:4318; without it there are no traces")
	}
	g.log.Info("traces are on")
	return trace.New(provider.Tracer(), nil), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesGrace)
		defer cancel()
		if err := provider.Close(ctx); err != nil {
			g.log.WarnContext(ctx, "the last traces were not sent", "error", err)
		}
	}, nil
}

// role returns what a process does, as --role names it.
func (p plan) role() string {
	switch {
	case !p.worker:
		return "api"
	case !p.api:
		return "worker"
	}
	return "all"
}
