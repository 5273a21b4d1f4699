package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/singleflight"

	"github.com/cardmint/cardmint/internal/card"
)

// Check is something that readiness depends on.
type Check struct {
	Name string
	// Coin is the code of the only currency that is affected while the check
	// fails. Defaults to none: the whole service is affected.
	Coin string
	// Warning means that the process stays ready while the check fails.
	// Readiness then names the check and its reason under warnings.
	Warning bool
	// Run returns an error if the check fails. Its reason is shown to anybody
	// if it is a card.Unready.
	Run func(context.Context) error
}

// health serves liveness, which depends on nothing else, and readiness. Anybody
// may ask, as often as they like: the checks, which ask the database, are made
// for all who ask at the same time.
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

// readiness is what the checks said.
type readiness struct {
	ready    bool
	response gin.H
}

func (h *health) ready(c *gin.Context) {
	found, _, _ := h.probes.Do("", func() (any, error) { return h.probe(context.WithoutCancel(c.Request.Context())), nil })
	is, status := found.(readiness), http.StatusOK
	if !is.ready {
		status = http.StatusServiceUnavailable
		c.Header("Retry-After", "5")
	}
	c.JSON(status, is.response)
}

// probe lists the checks that fail. It gives a reason only if anybody may see it
// (card.Unready); the rest is in the operator's log. The process is ready as
// long as one coin is: only orders to pay with the others are refused.
func (h *health) probe(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	failing, reasons, warnings := []string{}, map[string]string{}, map[string]string{}
	coins := map[string]bool{} // whether all checks of a coin succeed
	ready := true
	for _, check := range h.checks {
		err := check.Run(ctx)
		if check.Warning {
			if why, ok := errors.AsType[card.Unready](err); ok {
				warnings[check.Name] = string(why)
			}
			continue
		}
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
	is := readiness{ready && well, gin.H{"status": "ready"}}
	if !is.ready {
		is.response["status"] = "not ready"
	}
	if len(failing) > 0 {
		is.response["failing"] = failing
	}
	if len(reasons) > 0 {
		is.response["reasons"] = reasons
	}
	if len(warnings) > 0 {
		is.response["warnings"] = warnings
	}
	return is
}
