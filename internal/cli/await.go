package cli

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

// askAgain is how long to wait before a database that was not there is looked
// for again.
const askAgain = 500 * time.Millisecond

// front is what a process serves: health until it has started, and then
// everything.
type front struct {
	handler atomic.Pointer[http.Handler]
	why     atomic.Pointer[error] // why it has not started
}

// newFront returns a front of a process that is starting.
func (g *globals) newFront(publicURL string) *front {
	f := &front{}
	f.wait(card.Unready("starting"))
	f.serve(server.NewStartupHandler(g.log,
		server.Check{Name: "database", Run: func(context.Context) error { return *f.why.Load() }}, publicURL))
	return f
}

func (f *front) wait(why error)       { f.why.Store(&why) }
func (f *front) serve(h http.Handler) { f.handler.Store(&h) }

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*f.handler.Load()).ServeHTTP(w, r)
}

// awaitStores opens the stores of a process that listens at url. If the
// database is a server that can't be used yet, it tries again until p.wait has
// passed. Other errors end it at once.
func (g *globals) awaitStores(ctx context.Context, p plan, f *front, url string) (stores, error) {
	start, last := time.Now(), ""
	for {
		dbs, err := g.migrateAndOpen(ctx, p.worker)
		if err == nil || p.wait <= 0 || !store.IsServer(g.DatabaseURL) || !mayCome(err) {
			return dbs, err
		}
		why := store.WhyUnready(err)
		if time.Since(start) > p.wait {
			return dbs, hint(fmt.Errorf("the database was not there within %s (%s): %w", p.wait, why, err),
				"start the database or check --database-url; --database-wait says how long to wait for it")
		}
		if why != last {
			g.log.Warn("waiting for the database", "reason", why, "at_most", p.wait, "error", err, "url", url)
			last = why
		}
		f.wait(fmt.Errorf("%w: %w", card.Unready(why), err))
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return dbs, ctx.Err()
		}
	}
}

// migrateAndOpen brings the schema up to date, and opens the stores of a
// process.
func (g *globals) migrateAndOpen(ctx context.Context, worker bool) (stores, error) {
	if _, err := g.migrate(ctx); err != nil {
		return stores{}, err
	}
	return g.openStores(ctx, worker)
}

// mayCome reports whether time can mend an error of opening the database.
func mayCome(err error) bool {
	return errors.Is(err, card.ErrUnavailable) && !errors.Is(err, store.ErrPoolMode) &&
		!errors.Is(err, store.ErrPoolParameters)
}
