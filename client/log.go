package client

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"time"
)

// WithLogger has each attempt of each call logged, at level Debug: the
// operation, method and path, the attempt, how long it took, the answer's
// status and request id or what went wrong, and how long is waited before
// another. Headers, queries and bodies are not logged, and so neither are the
// token, credentials and secrets. Defaults to no logging.
func WithLogger(logger *slog.Logger) Option {
	return clientOption(func(c *Client) { c.logger = logger })
}

// logAttempt logs an attempt that began at start.
func (c *Client) logAttempt(ctx context.Context, r request, start time.Time, err error) {
	if c.logger == nil || !c.logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{slog.String("operation", r.name), slog.String("method", r.method), slog.String("path", r.path),
		slog.Int("attempt", r.response.Attempts), slog.Duration("took", time.Since(start))}
	if r.response.Status != 0 {
		attrs = append(attrs, slog.Int("status", r.response.Status), slog.String("request_id", r.response.RequestID))
	}
	if refusal, refused := asType[*Error](err); refused {
		attrs = append(attrs, slog.String("code", string(refusal.Code)))
	} else if err != nil {
		attrs = append(attrs, slog.String("err", withoutQuery(err)))
	}
	c.logger.LogAttrs(ctx, slog.LevelDebug, "cardmint request", attrs...)
}

// withoutQuery is the text of an error, of which net/http's has the whole URL.
func withoutQuery(err error) string {
	var e *url.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}

// logRetry logs that another attempt follows.
func (c *Client) logRetry(ctx context.Context, r request, wait time.Duration) {
	if c.logger != nil {
		c.logger.LogAttrs(ctx, slog.LevelDebug, "cardmint retry", slog.String("operation", r.name),
			slog.Duration("wait", wait))
	}
}
