package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/singleflight"

	"github.com/cardmint/cardmint/internal/card"
)

// Check is a condition of readiness.
type Check struct {
	Name string
	// Coin is the code of the only currency that a failure affects. Defaults to
	// none: a failure affects the whole service.
	Coin string
	// Warning means that the process stays ready while the check fails. The
	// response then lists the check and its reason under warnings.
	Warning bool
	// Run returns an error if the check fails. The response shows the error if
	// it is a card.Unready.
	Run func(context.Context) error
}

// health serves liveness, which has no conditions, and readiness. Neither needs
// a token, so concurrent requests share one run of the checks, which query the
// database.
type health struct {
	checks []Check
	probes singleflight.Group
}

const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

func (h *health) register(r gin.IRoutes) {
	r.GET(livePath, func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) })
	r.GET(readyPath, h.ready)
}

// readiness is the result of the checks.
type readiness struct {
	ready    bool
	response gin.H
}

func (h *health) ready(c *gin.Context) {
	result, _, _ := h.probes.Do("", func() (any, error) { return h.probe(context.WithoutCancel(c.Request.Context())), nil })
	r, status := result.(readiness), http.StatusOK
	if !r.ready {
		status = http.StatusServiceUnavailable
		c.Header("Retry-After", "5")
	}
	c.JSON(status, r.response)
}

// probe runs the checks, and lists the failed ones. It shows a reason only if
// it is a card.Unready; other reasons are in the operator's log. The process is
// ready while at least one coin is: orders in other coins are refused.
func (h *health) probe(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	failing, reasons, warnings := []string{}, map[string]string{}, map[string]string{}
	ready, coins := true, map[string]bool{} // coins: whether all checks of a coin pass
	for _, check := range h.checks {
		err := check.Run(ctx)
		reason, public := errors.AsType[card.Unready](err)
		if check.Warning {
			if public {
				warnings[check.Name] = string(reason)
			}
			continue
		}
		if check.Coin == "" {
			ready = ready && err == nil
		} else if passing, seen := coins[check.Coin]; passing || !seen {
			coins[check.Coin] = err == nil
		}
		if err != nil {
			failing = append(failing, check.Name)
		}
		if public {
			reasons[check.Name] = string(reason)
		}
	}
	if len(coins) > 0 {
		ready = ready && slices.Contains(slices.Collect(maps.Values(coins)), true)
	}
	response := gin.H{"status": "ready"}
	if !ready {
		response["status"] = "not ready"
	}
	if len(failing) > 0 {
		response["failing"] = failing
	}
	if len(reasons) > 0 {
		response["reasons"] = reasons
	}
	if len(warnings) > 0 {
		response["warnings"] = warnings
	}
	return readiness{ready, response}
}
