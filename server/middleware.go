package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
)

// maxBody is the longest request body, in bytes, also of one that does not say how long it is.
const maxBody = 64 << 10

// The keys of what a gin.Context carries. Strings, because its Value finds no others.
const (
	requestIDKey = "cardmint.request_id"
	identityKey  = "cardmint.identity"
	checkedKey   = "cardmint.checked" // what the domain read from the body
)

const harmless = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// requestID names the request. A client's own name is taken over only if it can do no harm in a log or a header.
func requestID(c *gin.Context) {
	id := c.GetHeader("X-Request-Id")
	if id == "" || len(id) > 64 || strings.Trim(id, harmless) != "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	c.Set(requestIDKey, id)
	c.Header("X-Request-Id", id)
	c.Header("X-Content-Type-Options", "nosniff")
}

// accessLog writes one line for each request: never a header, a query or a body, which may hold secrets.
func accessLog(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		defer func() { // also when the handler cut the connection
			route := c.FullPath()
			if route == "" {
				route = "none"
			}
			level := slog.LevelInfo
			gone := c.Request.Context().Err() != nil // before it had its answer
			switch {
			case route == livePath, route == readyPath:
				level = slog.LevelDebug // probes come every second
			case gone:
			case c.Writer.Status() >= http.StatusInternalServerError:
				level = slog.LevelError
			}
			fields := []slog.Attr{
				slog.String("request_id", c.GetString(requestIDKey)),
				slog.String("method", c.Request.Method),
				slog.String("route", route),
				slog.Int("status", c.Writer.Status()),
				slog.Int("bytes", max(0, c.Writer.Size())),
				slog.Duration("took", time.Since(start)),
			}
			if gone {
				fields = append(fields, slog.Bool("client_gone", true))
			}
			if who, ok := identity(c); ok {
				fields = append(fields, slog.String("account", who.AccountID.String()), slog.String("token", who.TokenID.String()))
			}
			// Without the place in the code, which is always this one and takes longer to find than the rest.
			if ctx := c.Request.Context(); log.Enabled(ctx, level) {
				line := slog.NewRecord(time.Now(), level, "request", 0)
				line.AddAttrs(fields...)
				_ = log.Handler().Handle(ctx, line)
			}
		}()
		c.Next()
	}
}

// requestTimeout is after how long a request is given up, whatever it waits for. A list without pages is exempt: it is given up
// when its reader does not keep up.
const requestTimeout = 20 * time.Second

// deadline ends what a request waits for, so that a database that hangs does not hold on to requests for ever.
func deadline(c *gin.Context) {
	if c.Request.Method == http.MethodGet && c.FullPath() == "/api/cards" && c.Query("limit") == "" {
		return
	}
	request := c.Request
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	defer func() {
		cancel()
		c.Request = request // whose context tells whether the client is still there
	}()
	c.Request = request.WithContext(ctx)
	c.Next()
}

// noStore keeps every answer of the API, which may hold credentials, out of caches.
func noStore(c *gin.Context) { c.Header("Cache-Control", "no-store") }
