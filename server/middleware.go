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

// maxBody is the maximum size of a request body in bytes, also of chunked
// bodies.
const maxBody = 64 << 10

// Keys of a gin.Context. They are strings because Context.Value finds only
// strings.
const (
	requestIDKey  = "cardmint.request_id"
	identityKey   = "cardmint.identity"
	unlimitedKey  = "cardmint.unlimited"   // the context without a deadline
	checkTokenKey = "cardmint.check_token" // the function that checks the token again
	delayedKey    = "cardmint.delayed"     // how long the response was delayed
	explainedKey  = "cardmint.explained"   // whether the problem's cause was logged
)

const harmless = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// requestID sets the request's id. It uses the client's id only if that is safe
// in logs and headers.
func requestID(c *gin.Context) {
	id := c.GetHeader("X-Request-Id")
	if id == "" || len(id) > 64 || strings.Trim(id, harmless) != "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	c.Set(requestIDKey, id)
	c.Header("X-Request-Id", id)
	c.Header("X-Content-Type-Options", "nosniff")
}

// accessLog logs one line per request. It logs no header, query or body, which
// may contain secrets.
func accessLog(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		defer func() { // runs even if the handler aborts the connection
			route := c.FullPath()
			if route == "" {
				route = "none"
			}
			level := slog.LevelInfo
			gone := c.Request.Context().Err() != nil // the client disconnected before the end of the response
			switch {
			case route == livePath, route == readyPath:
				level = slog.LevelDebug // probes come every second
			case gone:
			case c.Writer.Status() == http.StatusServiceUnavailable:
				if !c.GetBool(explainedKey) { // overload; other causes are logged separately
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
			// Without the source position, which is constant and slow to find.
			if ctx := c.Request.Context(); log.Enabled(ctx, level) {
				line := slog.NewRecord(time.Now(), level, "request", 0)
				line.AddAttrs(fields...)
				_ = log.Handler().Handle(ctx, line)
			}
		}()
		c.Next()
	}
}

// requestTimeout is the deadline of a request. Its response follows within 20
// seconds: if the database hangs, the store returns slightly later.
const requestTimeout = 17 * time.Second

// deadline sets the deadline of the request's context, so that requests do not
// pile up while the database hangs. It keeps the context without a deadline for
// streams, which end when their client does not keep up.
func deadline(c *gin.Context) {
	request := c.Request
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	defer func() {
		cancel()
		c.Request = request // accessLog checks whether the original context is canceled
	}()
	c.Set(unlimitedKey, request.Context())
	c.Request = request.WithContext(ctx)
	c.Next()
}

// noStore keeps responses of the API, which may contain credentials, out of
// caches.
func noStore(c *gin.Context) { c.Header("Cache-Control", "no-store") }
