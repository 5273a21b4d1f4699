// Package otlp collects spans and sends them to a collector, by OTLP over HTTP
// with protobuf.
//
// It imports none of our packages; only cli imports it. It stores nothing:
// spans that were not sent when a process dies are lost, and so are those for
// which there is no room because the collector is slow. Nobody ever waits for
// it.
//
// The exporter of OpenTelemetry itself would add 3 MB to the program, because
// it links gRPC even for HTTP. What it says on the wire is made here too by
// OpenTelemetry's own code.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// defaultTimeout is that of the specification of OTLP.
const defaultTimeout = 10 * time.Second

// Config says where spans go. The variables of the environment are those of
// OpenTelemetry's specification; package sdk reads others too, for sampling,
// queues and limits.
type Config struct {
	// Endpoint is the address of the collector, to which /v1/traces is added.
	// Required, unless OTEL_EXPORTER_OTLP_TRACES_ENDPOINT has the whole
	// address.
	Endpoint string
	// Version is that of the program, and Role what the process does.
	Version, Role string
	// Getenv looks up variables of the environment. Required.
	Getenv func(string) string
	// Log is told, at most once a minute, that spans were not sent. Required.
	Log *slog.Logger
}

// On reports whether there is anywhere to send spans to, and the environment
// does not forbid it.
func (c Config) On() bool {
	return c.address() != "" && !strings.EqualFold(c.Getenv("OTEL_SDK_DISABLED"), "true") &&
		c.Getenv("OTEL_TRACES_EXPORTER") != "none"
}

func (c Config) address() string {
	if all := c.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); all != "" || c.Endpoint == "" {
		return all
	}
	return strings.TrimRight(c.Endpoint, "/") + "/v1/traces"
}

// of returns the variable for traces, or else the one for everything.
func (c Config) of(name string) string {
	return cmp.Or(c.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), c.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// client returns what the configuration says. Errors show nothing of addresses
// and headers, which may have secrets in them.
func (c Config) client() (*client, error) {
	u, err := url.Parse(c.address())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, errors.New("must be an address such as http://127.0.0.1:4318, without a user")
	}
	if p := c.of("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf is spoken")
	}
	timeout := defaultTimeout
	if text := c.of("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			return nil, errors.New("OTEL_EXPORTER_OTLP_TIMEOUT: must be milliseconds, such as 10000")
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	x := newClient(u.String(), timeout, c.Log)
	for pair := range strings.SplitSeq(c.of("HEADERS"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if value, err = url.PathUnescape(strings.TrimSpace(value)); err != nil {
			return nil, errors.New(
				"OTEL_EXPORTER_OTLP_HEADERS: must be name=value, with commas between, and values encoded as in a URL")
		}
		x.header.Set(name, value)
	}
	return x, nil
}

// Provider makes tracers whose spans are sent.
type Provider struct {
	provider *sdk.TracerProvider
	client   *client
}

// New returns a provider. It connects to nobody. The caller must close it.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	c, err := cfg.client()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	// What comes later wins: the operator's names.
	made, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "cardmint"),
			attribute.String("service.version", cfg.Version), attribute.String("cardmint.role", cfg.Role)),
		resource.WithFromEnv())
	if err != nil {
		return nil, errors.New("OTEL_RESOURCE_ATTRIBUTES: must be name=value, with commas between")
	}
	return &Provider{sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(made)), c}, nil
}

// Tracer returns a tracer of the program.
func (p *Provider) Tracer() trace.Tracer { return p.provider.Tracer("github.com/cardmint/cardmint") }

// Close sends what is left, until ctx ends. Call it once.
func (p *Provider) Close(ctx context.Context) error {
	close(p.client.ending)
	err := p.provider.Shutdown(ctx)
	p.client.transport.CloseIdleConnections()
	return err
}
