package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/watcher"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/server"
)

// Connections to the database. Each part has a pool of its own, so that neither a flood of requests nor one of events can stop detection.
const (
	apiConns    = 16
	workerConns = 6
	senderConns = 4
)

const (
	shutdownGrace = 20 * time.Second // for the requests that were accepted
	closeGrace    = 5 * time.Second  // for giving back leases
	prepareEvery  = time.Second
	issueEvery    = time.Second
	sendEvery     = time.Second
	pruneEvery    = time.Minute
)

// plan is what one process is to run.
type plan struct {
	listen     string
	api        bool
	worker     bool
	rates      card.Rates
	live       *rate.Live // keeps rates fresh; nil if they are fixed
	ratesEvery time.Duration
	webhooks   webhookFlags
	service    card.Config // what is not wired in here
	// chains returns the chains to watch, and pays without money where they are simulated.
	chains func(*store.Store) ([]watched, map[string]card.Sandbox, error)
	// simulated chains need nobody else: the service is announced only once it could make a card.
	simulated bool
	// started is called when the service answers at url.
	started func(ctx context.Context, accounts *account.Service, url string) error
}

// watched is a chain and how it is watched.
type watched struct {
	chain     watcher.Chain
	every     time.Duration
	fillBatch int
}

// Tune sets the garbage collector for a process that serves. The live heap is a few MiB: letting it grow to five times that between
// collections costs little memory and saves a good part of the time. GOGC, if it is set, wins.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// run runs a plan until ctx ends.
func (g *globals) run(ctx context.Context, v *vault.Vault, p plan) error {
	Tune()
	// Listening first: a port that is taken is found out before anything else happens.
	listener, err := net.Listen("tcp", p.listen)
	if err != nil {
		return hint(err, "choose another address with --listen, for example 127.0.0.1:8081")
	}
	defer func() { _ = listener.Close() }()
	apiStore, err := g.openStore(ctx, apiConns)
	if err != nil {
		return err
	}
	defer func() { _ = apiStore.Close() }()
	workerStore, senderStore := apiStore, apiStore
	if p.worker && !apiStore.SingleWriter() {
		if workerStore, err = g.openStore(ctx, workerConns); err != nil {
			return err
		}
		defer func() { _ = workerStore.Close() }()
		if senderStore, err = g.openStore(ctx, senderConns); err != nil {
			return err
		}
		defer func() { _ = senderStore.Close() }()
	}
	chains, sandbox, err := p.chains(workerStore)
	if err != nil {
		return err
	}
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: p.webhooks.Insecure, Timeout: p.webhooks.Timeout})
	defer poster.Close()
	wakeIssuing, wakeSender, wakeWatchers := make(wake, 1), make(wake, 1), make([]wake, len(chains))
	for i := range wakeWatchers {
		wakeWatchers[i] = make(wake, 1)
	}
	wakeAll := func() {
		for _, w := range wakeWatchers {
			w.up()
		}
	}
	cfg := p.service
	cfg.Sandbox, cfg.Wake = sandbox, wakeAll
	cfg.WakeSender = wakeSender.up
	webhooks, err := webhook.New(apiStore, v, poster, wakeSender.up, webhook.Config{Retention: p.webhooks.Retention})
	if err != nil {
		return err
	}
	apiService, err := card.New(apiStore, v, p.rates, cfg)
	if err != nil {
		return err
	}
	workerService, err := card.New(workerStore, v, p.rates, cfg)
	if err != nil {
		return err
	}
	accounts, err := account.New(apiStore, v, account.Config{Mode: g.Mode})
	if err != nil {
		return err
	}
	if err := accounts.CheckKeys(ctx); err != nil {
		return err
	}

	checks := map[string]func(context.Context) error{"database": apiStore.Ping}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if p.live != nil {
		checks["rates"] = func(context.Context) error { return freshRates(p.live, p.service.Currencies) }
		group.Go(func() error {
			loop(ctx, p.ratesEvery, nil, p.live.Tick)
			return nil
		})
	}
	if p.worker {
		for i, c := range chains {
			w := watcher.New(workerService, c.chain, watcher.Config{FillBatch: c.fillBatch, Wake: wakeWatchers[i].up})
			defer closing(ctx, closeGrace, w.Close)
			checks["watch "+c.chain.Currency()] = func(context.Context) error { return w.Health() }
			group.Go(func() error {
				loop(ctx, c.every, wakeWatchers[i], func(ctx context.Context) error {
					err := w.Tick(ctx)
					wakeIssuing.up()
					return err
				})
				return nil
			})
		}
		issuing := issue.New(workerStore, v, supplier.NewSandbox(time.Now), wakeSender.up, slog.Default(), time.Now)
		group.Go(func() error {
			loop(ctx, issueEvery, wakeIssuing, issuing.Tick)
			return nil
		})
	}
	if p.worker {
		sender, err := webhook.NewSender(senderStore, v, poster, wakeSender.up, slog.Default(), webhook.Config{Retention: p.webhooks.Retention})
		if err != nil {
			return err
		}
		defer closing(ctx, p.webhooks.Timeout+closeGrace, sender.Close)
		group.Go(func() error {
			loop(ctx, sendEvery, wakeSender, sender.Tick)
			return nil
		})
		group.Go(func() error {
			loop(ctx, pruneEvery, nil, sender.Prune)
			return nil
		})
	}
	var api *card.Service
	if p.api {
		api = apiService
		group.Go(func() error {
			loop(ctx, prepareEvery, nil, apiService.Prepare)
			return nil
		})
	}
	handler, err := server.New(server.Config{Service: api, Accounts: accounts, Webhooks: webhooks, Checks: checks})
	if err != nil {
		return err
	}
	group.Go(func() error { return server.Serve(ctx, listener, handler, shutdownGrace) })
	if p.simulated {
		awaitReady(ctx, checks)
	}
	if err := p.started(ctx, accounts, "http://"+listener.Addr().String()); err != nil {
		cancel() // the loops use what is closed next
		return errors.Join(err, group.Wait())
	}
	return group.Wait()
}

// awaitReady waits until every check is passed, or for a while.
func awaitReady(ctx context.Context, checks map[string]func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for _, check := range checks {
		for check(ctx) != nil {
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// freshRates says of which coins there is no fresh rate. Why, which may name addresses and bounds of ours, is for the log.
func freshRates(live *rate.Live, coins []card.Currency) error {
	why := live.Health()
	if why == nil {
		return nil
	}
	var without []string
	for _, coin := range coins {
		if _, err := live.Rate(coin.Code); err != nil {
			without = append(without, coin.Code)
		}
	}
	return fmt.Errorf("%w: %w", card.Unready("no fresh rate of "+strings.Join(without, ", ")), why)
}

// closing runs f even though ctx has ended.
func closing(ctx context.Context, grace time.Duration, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := f(ctx); err != nil {
		slog.Warn("closing", "error", err)
	}
}

// wake lets one loop tell another that there is work. Calls while the other is busy count as one.
type wake chan struct{}

func (w wake) up() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// longestPause is between two attempts of a loop that keeps failing.
const longestPause = 10 * time.Second

// loop calls tick until ctx ends: at once, when it is woken, and after every interval, which varies by a tenth so that replicas
// do not work in step, and doubles with each failure in a row up to longestPause. An error is logged when it is new, and once a minute
// as long as it lasts.
func loop(ctx context.Context, every time.Duration, woken wake, tick func(context.Context) error) {
	var last string
	var lastAt time.Time
	wait := every
	for ctx.Err() == nil {
		err := tick(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (err.Error() != last || time.Since(lastAt) > time.Minute):
			slog.Error("worker", "error", err)
			last, lastAt = err.Error(), time.Now()
		case err == nil && last != "":
			slog.Info("worker is well again", "after", last)
			last = ""
		}
		if err == nil {
			wait = every
		} else {
			wait = max(every, min(2*wait, longestPause))
		}
		pause := time.NewTimer(wait*9/10 + rand.N(wait/5))
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-woken:
		}
		pause.Stop()
	}
}
