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

// maxBody is the longest request body, in bytes. It applies whether or not the
// request announces its length.
const maxBody = 64 << 10

// The keys of the values in a gin.Context. They are strings because
// Context.Value finds only those.
const (
	requestIDKey  = "cardmint.request_id"
	identityKey   = "cardmint.identity"
	unlimitedKey  = "cardmint.unlimited"   // the context without a deadline
	checkTokenKey = "cardmint.check_token" // the function that asks whether the token is still good
	delayedKey    = "cardmint.held"        // how long the response was kept back
	explainedKey  = "cardmint.explained"   // whether the cause of the problem has a line in the log
)

const harmless = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// requestID gives the request an id. It uses the client's only if that is safe
// in a log and a header.
func requestID(c *gin.Context) {
	id := c.GetHeader("X-Request-Id")
	if id == "" || len(id) > 64 || strings.Trim(id, harmless) != "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	c.Set(requestIDKey, id)
	c.Header("X-Request-Id", id)
	c.Header("X-Content-Type-Options", "nosniff")
}

// accessLog logs one line per request. It never logs a header, a query or a
// body, which may contain secrets.
func accessLog(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		defer func() { // runs even if the handler aborts the connection
			route := c.FullPath()
			if route == "" {
				route = "none"
			}
			level := slog.LevelInfo
			gone := c.Request.Context().Err() != nil // the client disconnected before it had the response
			switch {
			case route == livePath, route == readyPath:
				level = slog.LevelDebug // probes come every second
			case gone:
			case c.Writer.Status() == http.StatusServiceUnavailable:
				if !c.GetBool(explainedKey) { // too many at once; other causes are logged separately
					level = slog.LevelWarn
				}
			case c.Writer.Status() >= http.StatusInternalServerError:
				level = slog.LevelError
			}
			fields := []slog.Attr{
				slog.String("request_id", c.GetString(requestIDKey)),
				slog.String("method", c.Request.Method),
				slog.String("route", route),
				slog.Int("status", c.Writer.Status()),
				slog.Int("bytes", max(0, c.Writer.Size())),
				slog.Duration("took", worked(c, start)),
			}
			if held := c.GetDuration(delayedKey); held > 0 {
				fields = append(fields, slog.Duration("held", held))
			}
			if gone {
				fields = append(fields, slog.Bool("client_gone", true))
			}
			if who, ok := identity(c); ok {
				fields = append(fields, slog.String("account", who.AccountID.String()), slog.String("token", who.TokenID.String()))
			}
			// Without the source position, which is always this one, and takes
			// longer to find than the rest.
			if ctx := c.Request.Context(); log.Enabled(ctx, level) {
				line := slog.NewRecord(time.Now(), level, "request", 0)
				line.AddAttrs(fields...)
				_ = log.Handler().Handle(ctx, line)
			}
		}()
		c.Next()
	}
}

// requestTimeout limits the work on a request, whatever it waits for, so that
// it is answered within 20 seconds: the store may take a moment longer to give
// up a database that hangs.
const requestTimeout = 17 * time.Second

// deadline gives the request's context a deadline, so that requests do not pile
// up if the database hangs. The context without it is kept for a list that is
// streamed, which ends when its client does not keep up.
func deadline(c *gin.Context) {
	request := c.Request
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	defer func() {
		cancel()
		c.Request = request // accessLog tells by the original context whether the client is gone
	}()
	c.Set(unlimitedKey, request.Context())
	c.Request = request.WithContext(ctx)
	c.Next()
}

// noStore keeps all responses of the API, which may contain credentials, out of
// caches.
func noStore(c *gin.Context) { c.Header("Cache-Control", "no-store") }
