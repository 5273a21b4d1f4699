package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
)

// Check is something that readiness depends on.
type Check struct {
	Name string
	// Coin is the currency that can't be sold for while the check fails. Defaults to none: nothing works then.
	Coin string
	Ask  func(context.Context) error
}

// health answers whether the process lives, which depends on nothing else, and whether it is ready for work.
type health struct{ checks []Check }

const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

func (h health) register(r gin.IRoutes) {
	r.GET(livePath, func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) })
	r.GET(readyPath, h.ready)
}

// ready names the checks that fail. It says why as far as that may be shown to anybody (card.Unready); the rest is in the log of
// whoever runs the service. The process is ready as long as one coin is well: a sick one refuses its own cards, and the others sell on.
func (h health) ready(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), 2*time.Second)
	defer cancel()
	failing, reasons := []string{}, map[string]string{}
	coins := map[string]bool{} // whether each is well
	ready := true
	for _, check := range h.checks {
		err := check.Ask(ctx)
		if check.Coin == "" {
			ready = ready && err == nil
		} else if well, seen := coins[check.Coin]; well || !seen {
			coins[check.Coin] = err == nil
		}
		if err != nil {
			failing = append(failing, check.Name)
			if why, ok := errors.AsType[card.Unready](err); ok {
				reasons[check.Name] = string(why)
			}
		}
	}
	well := len(coins) == 0
	for _, is := range coins {
		well = well || is
	}
	status, response := http.StatusOK, gin.H{"status": "ready"}
	if !ready || !well {
		status, response["status"] = http.StatusServiceUnavailable, "not ready"
		c.Header("Retry-After", "5")
	}
	if len(failing) > 0 {
		response["failing"] = failing
	}
	if len(reasons) > 0 {
		response["reasons"] = reasons
	}
	c.JSON(status, response)
}
