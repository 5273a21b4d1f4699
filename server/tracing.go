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

// spanKey is the gin.Context key of a request's span.
const spanKey = "cardmint.span"

// traceRequests starts a span for each request except health probes. It runs
// outside of accessLog, whose line has the trace's id.
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
				span.SetCard(id) // the card exists
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

// traceCard sets the card that a request created in its span.
func traceCard(gc context.Context, id uuid.UUID) {
	if span, traced := gc.Value(spanKey).(*trace.Span); traced {
		span.SetCard(id)
	}
}

// logOrder logs an order at level debug. For most operators the request line
// suffices.
func (a *api) logOrder(ctx context.Context, account, id uuid.UUID, replayed bool) {
	if a.log.Enabled(ctx, slog.LevelDebug) {
		a.log.DebugContext(ctx, "card ordered", "card", id, "account", account, "replayed", replayed)
	}
}
