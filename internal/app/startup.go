package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/server"
)

// databaseRetry is the pause between two attempts to open a database.
const databaseRetry = 500 * time.Millisecond

// startupHandler serves only health checks until the process has started, and
// then the API.
type startupHandler struct {
	handler atomic.Pointer[http.Handler]
	reason  atomic.Pointer[error] // why the process has not started
}

func (p *process) newStartupHandler() *startupHandler {
	h := &startupHandler{}
	h.wait(card.Unready("starting"))
	h.set(server.NewStartupHandler(p.Log,
		server.Check{Name: "database", Run: func(context.Context) error { return *h.reason.Load() }}, p.cfg.Web.PublicURL))
	return h
}

func (h *startupHandler) wait(reason error)        { h.reason.Store(&reason) }
func (h *startupHandler) set(handler http.Handler) { h.handler.Store(&handler) }

// ServeHTTP implements http.Handler.
func (h *startupHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*h.handler.Load()).ServeHTTP(w, r)
}

// awaitStores migrates and opens the database. If it is a server that is not
// available yet, awaitStores retries until Config.Wait has passed.
func (p *process) awaitStores(ctx context.Context, startup *startupHandler) (stores, error) {
	start, last := time.Now(), ""
	for {
		dbs, err := p.migrateAndOpen(ctx)
		if err == nil || p.cfg.Wait <= 0 || !store.IsServer(p.DatabaseURL) || !transient(err) {
			return dbs, err
		}
		reason := store.WhyUnready(err)
		if time.Since(start) > p.cfg.Wait {
			return dbs, WithHint(fmt.Errorf("the database was not there within %s (%s): %w", p.cfg.Wait, reason, err),
				"start the database or check --database-url; --database-wait limits the wait")
		}
		if reason != last {
			p.Log.Warn("waiting for the database", "reason", reason, "at_most", p.cfg.Wait, "error", err, "url", p.url())
			last = reason
		}
		startup.wait(fmt.Errorf("%w: %w", card.Unready(reason), err))
		select {
		case <-time.After(databaseRetry):
		case <-ctx.Done():
			return dbs, ctx.Err()
		}
	}
}

func (p *process) migrateAndOpen(ctx context.Context) (stores, error) {
	if _, err := p.Migrate(ctx); err != nil {
		return stores{}, err
	}
	return p.openStores(ctx)
}

// transient reports whether an error of opening the database may pass.
func transient(err error) bool {
	return errors.Is(err, card.ErrUnavailable) && !errors.Is(err, store.ErrPoolMode) &&
		!errors.Is(err, store.ErrPoolParameters)
}
