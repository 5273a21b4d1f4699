package server

import (
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
)

// NewStartupHandler returns a handler for a process that is starting. It is
// live, not ready because of check, and responds with 503 to all other
// requests. publicURL is as in Config.
func NewStartupHandler(log *slog.Logger, check Check, publicURL string) http.Handler {
	engine := newEngine()
	problems := newProblemWriter(log, publicURL)
	engine.Use(requestID, accessLog(log), problems.recovery)
	(&health{checks: []Check{check}}).register(headRouter{engine})
	engine.NoRoute(func(c *gin.Context) { problems.write(c, card.ErrUnavailable) })
	return http.MaxBytesHandler(engine, maxBody)
}
