package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/trace"
)

// spanKey is the key of the request's span in a gin.Context.
const spanKey = "cardmint.span"

// traceRequests starts a span for each request but the probes of health. It is
// outside of accessLog, whose line then names the trace.
func traceRequests(t *trace.Tracer, s *spec) gin.HandlerFunc {
	return func(c *gin.Context) {
		path := c.FullPath()
		if path == livePath || path == readyPath {
			return
		}
		operation, method := "none", "_OTHER"
		if route := s.route(c); route != nil {
			operation, method = route.Operation.OperationID, methodOf(c.Request)
		}
		request := c.Request
		ctx, span := t.StartServer(request.Context(), operation, trace.Incoming(request.Header))
		c.Request = request.WithContext(ctx)
		c.Set(spanKey, span)
		span.SetText("http.request.method", method)
		if path != "" {
			span.SetText("http.route", path)
		}
		defer func() { // runs even if the handler aborts the connection
			status := c.Writer.Status()
			if id, err := uuid.Parse(c.Param("uuid")); err == nil && status < http.StatusBadRequest &&
				strings.Contains(path, "/cards/:uuid") {
				span.SetCard(id) // one that exists
			}
			span.SetNumber("http.response.status_code", int64(status))
			if status >= http.StatusInternalServerError {
				span.Fail()
			}
			span.End()
		}()
		c.Next()
	}
}

// traceCard says in the span of a request which card it made.
func traceCard(gc context.Context, id uuid.UUID) {
	if span, traced := gc.Value(spanKey).(*trace.Span); traced {
		span.SetCard(id)
	}
}

// logOrder tells of a card that was ordered. What the request line tells is
// enough for most operators, and a line more is not for free.
func (a *api) logOrder(ctx context.Context, account, id uuid.UUID, replayed bool) {
	if a.log.Enabled(ctx, slog.LevelDebug) {
		a.log.DebugContext(ctx, "card ordered", "card", id, "account", account, "replayed", replayed)
	}
}
