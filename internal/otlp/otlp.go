// Package otlp batches spans and sends them to a collector, by OTLP over HTTP
// with protobuf.
//
// It imports none of our packages. It stores nothing: a crash loses spans that
// were not sent. While the queue is full, new spans are dropped. No caller ever
// waits for the collector.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// defaultTimeout is the default of the OTLP specification.
const defaultTimeout = 10 * time.Second

// Config configures a provider, together with the environment: the variables of
// the OpenTelemetry specification for the exporter, for sampling, for queues and
// for limits.
type Config struct {
	// Endpoint is the collector's URL without /v1/traces. Required, unless
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is the whole URL.
	Endpoint string
	// Version is the version of the program, Role the role of the process.
	Version, Role string
	// Log receives at most one line per minute about lost spans. Required.
	Log *slog.Logger
}

// On reports whether there is an endpoint, and the environment does not disable
// traces.
func (c Config) On() bool {
	return c.url() != "" && !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") &&
		os.Getenv("OTEL_TRACES_EXPORTER") != "none"
}

func (c Config) url() string {
	if whole := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); whole != "" || c.Endpoint == "" {
		return whole
	}
	return strings.TrimRight(c.Endpoint, "/") + "/v1/traces"
}

// getenv returns the variable for traces, or else the one for all signals.
func getenv(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// validate checks what the exporter would ignore, or print together with
// secrets. It returns the timeout of a request. The errors show neither URLs nor
// headers, which may contain secrets.
func (c Config) validate() (timeout time.Duration, err error) {
	u, err := url.Parse(c.url())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return 0, errors.New("must be an address such as http://127.0.0.1:4318, without a user")
	}
	if p := getenv("PROTOCOL"); p != "" && p != "http/protobuf" {
		return 0, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf is spoken")
	}
	for pair := range strings.SplitSeq(getenv("HEADERS"), ",") {
		_, value, found := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); err != nil || !found && strings.TrimSpace(pair) != "" {
			return 0, errors.New(
				"OTEL_EXPORTER_OTLP_HEADERS: must be name=value, with commas between, and values encoded as in a URL")
		}
	}
	text := getenv("TIMEOUT")
	if text == "" {
		return defaultTimeout, nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil || ms == 0 {
		return 0, errors.New("OTEL_EXPORTER_OTLP_TIMEOUT: must be milliseconds, such as 10000")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// Provider creates tracers whose spans are sent.
type Provider struct{ provider *sdk.TracerProvider }

// New returns a provider. It does not connect to the collector. The caller must
// close it.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	timeout, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: timeout,
		Transport: &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
		// A redirect would send the headers, which may contain a key, to another
		// host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(cfg.url()), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	// Later attributes replace earlier ones: the operator's names win.
	process, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "cardmint"),
			attribute.String("service.version", cfg.Version), attribute.String("cardmint.role", cfg.Role)),
		resource.WithFromEnv())
	if err != nil {
		return nil, errors.New("OTEL_RESOURCE_ATTRIBUTES: must be name=value, with commas between")
	}
	e := &exporter{SpanExporter: to, log: cfg.Log}
	return &Provider{sdk.NewTracerProvider(sdk.WithBatcher(e), sdk.WithResource(process))}, nil
}

// Tracer returns the tracer of the program.
func (p *Provider) Tracer() trace.Tracer { return p.provider.Tracer("github.com/cardmint/cardmint") }

// Close sends the remaining spans, until ctx ends. Call it once.
func (p *Provider) Close(ctx context.Context) error { return p.provider.Shutdown(ctx) }
