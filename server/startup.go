package server

import (
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
)

// NewStartupHandler returns a handler for a process that can't serve yet. It lives,
// and is not ready because of check. All other requests are told to come again.
// publicURL is as in Config.
func NewStartupHandler(log *slog.Logger, check Check, publicURL string) http.Handler {
	engine := newEngine()
	problems := newProblemWriter(log, publicURL)
	engine.Use(requestID, accessLog(log), problems.recovery)
	(&health{checks: []Check{check}}).register(headRouter{engine})
	engine.NoRoute(func(c *gin.Context) { problems.write(c, card.ErrUnavailable) })
	return http.MaxBytesHandler(engine, maxBody)
}
