package otlp

import (
	"context"
	"log/slog"
	"regexp"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	logInterval   = time.Minute
	maxErrorBytes = 300
)

// exporter logs lost spans, at most once per logInterval. The SDK would print
// an error for every batch.
type exporter struct {
	sdk.SpanExporter
	log *slog.Logger

	// The SDK calls ExportSpans from one goroutine at a time.
	loggedAt time.Time
	lost     int // spans since then
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.lost += len(spans)
	if now := time.Now(); now.Sub(e.loggedAt) >= logInterval {
		e.log.WarnContext(ctx, "traces lost: the collector does not accept them", "spans", e.lost, "error", cause(err))
		e.loggedAt, e.lost = now, 0
	}
	return nil
}

var urls = regexp.MustCompile(`https?://[^\s"]*`)

// cause returns the text of an error without the collector's URL, which may
// contain a key, and without the end of a long response.
func cause(err error) string {
	text := urls.ReplaceAllString(err.Error(), "the collector")
	return text[:min(len(text), maxErrorBytes)]
}
