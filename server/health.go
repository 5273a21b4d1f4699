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
	// Coin is the code of the only currency that is affected while the check fails. Defaults to none: the whole service is affected.
	Coin string
	// Ask returns an error if the check fails. Its reason is shown to anybody if it is a card.Unready.
	Ask func(context.Context) error
}

// health serves liveness, which depends on nothing else, and readiness.
type health struct{ checks []Check }

const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

func (h health) register(r gin.IRoutes) {
	r.GET(livePath, func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) })
	r.GET(readyPath, h.ready)
}

// ready lists the checks that fail. It gives a reason only if anybody may see it (card.Unready); the rest is in the operator's log.
// The process is ready as long as one coin is: only orders to pay with the others are refused.
func (h health) ready(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), 2*time.Second)
	defer cancel()
	failing, reasons := []string{}, map[string]string{}
	coins := map[string]bool{} // whether all checks of a coin succeed
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
