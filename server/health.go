package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
)

// health answers whether the process lives, which depends on nothing else, and whether it is ready for work.
type health struct {
	checks map[string]func(context.Context) error
}

const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

func (h health) register(r gin.IRoutes) {
	r.GET(livePath, func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) })
	r.GET(readyPath, h.ready)
}

// ready names the checks that fail. It says why as far as that may be shown to anybody (card.Unready); the rest is in the log of
// whoever runs the service.
func (h health) ready(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), 2*time.Second)
	defer cancel()
	failing, reasons := []string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(h.checks)) {
		if err := h.checks[name](ctx); err != nil {
			failing = append(failing, name)
			if why, ok := errors.AsType[card.Unready](err); ok {
				reasons[name] = string(why)
			}
		}
	}
	if len(failing) > 0 {
		c.Header("Retry-After", "5")
		answer := gin.H{"status": "not ready", "failing": failing}
		if len(reasons) > 0 {
			answer["reasons"] = reasons
		}
		c.JSON(http.StatusServiceUnavailable, answer)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ready"})
}
