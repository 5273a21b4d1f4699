package client

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"time"
)

// WithLogger logs each attempt of each call at level Debug: operation, method,
// path, attempt number, duration, status and request id or error, and the wait
// before the next attempt. It logs no headers, queries and bodies, and
// therefore no tokens, credentials and secrets. Defaults to no logging.
func WithLogger(logger *slog.Logger) Option {
	return clientOption(func(c *Client) { c.logger = logger })
}

// logAttempt logs an attempt that started at start.
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

// withoutQuery returns the text of an error without the URL that net/http adds.
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
