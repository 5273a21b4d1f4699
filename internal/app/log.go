package app

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/cardmint/cardmint/internal/trace"
)

// NewLoggers returns the log and the audit log of w. Format is "text", "json",
// or "short" for a terminal in development. The level does not apply to the
// audit log. The two share a lock, so that their lines do not mix.
func NewLoggers(w io.Writer, format string, level slog.Level) (log, audit *slog.Logger) {
	options := &slog.HandlerOptions{Level: min(level, slog.LevelInfo)}
	if format == "short" {
		options.ReplaceAttr = short
	}
	var all slog.Handler = slog.NewTextHandler(w, options)
	if format == "json" {
		options.ReplaceAttr = withUnit
		all = slog.NewJSONHandler(w, options)
	}
	all = contextual{all}
	return slog.New(atLeast{all, level}), slog.New(all)
}

// atLeast is a handler of records of at least a level.
type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

// withUnit formats durations as the text format does, such as 1.5s. The JSON
// format would write nanoseconds without a unit.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// short shortens the time, and omits attributes that have the same value in
// every line of a sandbox's log.
func short(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey:
		return slog.String(a.Key, a.Value.Time().Format(time.TimeOnly))
	case "account", "token", "actor", "bytes":
		return slog.Attr{}
	}
	return a
}

type loopKey struct{}

// inLoop returns a context whose log lines name the loop.
func inLoop(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, loopKey{}, name)
}

// contextual is a handler that adds the names of the loop and of the trace in
// the context. Code that serves several loops, such as a store, knows neither.
type contextual struct{ slog.Handler }

// Handle implements slog.Handler.
func (h contextual) Handle(ctx context.Context, line slog.Record) error {
	if loop, is := ctx.Value(loopKey{}).(string); is {
		line = line.Clone()
		line.AddAttrs(slog.String("loop", loop))
	}
	if id := trace.ID(ctx); id != "" {
		line = line.Clone()
		line.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, line)
}

func (h contextual) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextual{h.Handler.WithAttrs(attrs)}
}

func (h contextual) WithGroup(name string) slog.Handler {
	return contextual{h.Handler.WithGroup(name)}
}
