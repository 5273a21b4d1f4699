package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/trace"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/server"
)

// Connections to the database. Each part has a pool of its own, so that neither
// a flood of requests nor one of events can stop detection.
const (
	apiConns    = 16
	workerConns = 6
	senderConns = 4
)

// A process ends within 30 s: what it has begun takes at most 22 s, giving back
// what it holds 5 s, and sending its last spans 3 s.
const (
	shutdownGrace = 20 * time.Second // for the requests that were accepted
	closeGrace    = 3 * time.Second  // for giving back leases
	prepareEvery  = time.Second
	markEvery     = time.Second
	issueEvery    = time.Second
	sendEvery     = time.Second
	feedEvery     = time.Second
	offersEvery   = 10 * time.Second
	stockEvery    = 5 * time.Second
	pruneEvery    = time.Minute
	usesEvery     = time.Minute
)

// plan is what one process is to run.
type plan struct {
	listener    net.Listener     // closed by run
	metrics     net.Listener     // likewise; nil to serve none
	meter       *metrics.Metrics // made by run
	reconcile   time.Duration    // how often a worker reads the books; 0 for never
	books       *bookkeeper      // made by run; nil if nobody reads them
	clock       *clockCheck      // made by run
	tracing     tracingFlags
	tracer      *trace.Tracer // made by run; nil for none
	api         bool
	worker      bool
	rates       order.Rates
	live        *rate.Live // keeps rates fresh; nil if they are fixed
	ratesEvery  time.Duration
	webhooks    webhookFlags
	suppliers   suppliers
	orders      order.Config
	credentials credentialFlags
	retention   retentionFlags
	addresses   addressFlags
	limits      limitFlags
	web         webFlags
	token       tokenFor      // for the reference page; nil but in dev
	wait        time.Duration // for a database that is not there yet
	// chains returns the chains to watch, and pays without money where they are
	// simulated.
	chains func(*store.Store) ([]watched, map[string]order.Sandbox, error)
	// simulated chains need nobody else, so the service is announced only when
	// it can sell a card.
	simulated bool
	// started is called when the service listens.
	started func(ctx context.Context, r running) error
}

// running is a service that listens at url.
type running struct {
	url      string
	accounts *account.Service
	db       *store.Store
}

// watched is a chain and how it is watched.
type watched struct {
	chain     settle.Chain
	every     time.Duration
	fillBatch int
	wallet    bool // it has a wallet of its own, outside the database
}

// config returns how the chain is watched.
func (w watched) config(p plan, db *store.Store) settle.Config {
	coin, a := w.chain.Currency().Code, p.addresses
	cfg := settle.Config{FillBatch: w.fillBatch, PoolSize: a.Pool, Tracer: p.tracer.With(db),
		Observe: func(r settle.Report) {
			p.meter.Pass(coin, time.Now(), r)
			p.books.note(coin, r.Leads)
			p.clock.block(coin, r)
		}}
	if w.wallet {
		cfg.AddressRate, cfg.Beacon, cfg.Quiet = a.Rate, true, 3*w.every
	}
	return cfg
}

// Tune sets the garbage collector for a process that serves. The live heap is a
// few MiB: letting it grow to five times that between collections costs little
// memory and saves a good part of the time. GOGC, if it is set, wins.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// listen comes before anything that lasts, so that a port that is in use leaves
// nothing behind.
func listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	return listener, hint(err, "choose another address with --listen, for example 127.0.0.1:8081")
}

// run runs a plan until ctx ends.
func (g *globals) run(ctx context.Context, v *vault.Vault, p plan) error {
	Tune()
	p.meter = metrics.New(version())
	p.books = openBooks(p.reconcile, p.meter)
	p.clock = newClockCheck(p)
	defer func() { _ = p.listener.Close() }()
	tracer, endTraces, err := g.openTracing(ctx, p)
	if err != nil {
		return err
	}
	defer endTraces() // after everything that may still start a span
	p.tracer = tracer
	url := "http://" + p.listener.Addr().String()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	f := g.newFront(p.web.PublicURL)
	group.Go(func() error { return server.Serve(ctx, p.listener, f, g.log, shutdownGrace) })
	group.Go(func() error { return g.serveMetrics(ctx, p) })
	end := func(err error) error {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil { // told to end before it had started
			err = nil
		}
		cancel() // the loops use what is closed next
		return errors.Join(err, group.Wait())
	}
	dbs, err := g.awaitStores(ctx, p, f, url)
	if err != nil {
		return end(err)
	}
	defer dbs.close()
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: p.webhooks.Insecure, Timeout: p.webhooks.Timeout})
	poster.Unlimited = p.webhooks.Unlimited
	defer poster.Close()
	w, err := g.wire(ctx, v, dbs, poster, p)
	if err != nil {
		return end(err)
	}
	if err := w.addWeb(ctx, p); err != nil {
		return end(err)
	}
	handler, err := server.New(w.config)
	if err != nil {
		return end(err)
	}
	defer endLast(ctx, w.loops, g.log)
	for _, l := range w.loops {
		group.Go(func() error { return l.live(ctx, g.log) })
	}
	f.serve(handler)
	if p.simulated {
		awaitReady(ctx, w.config.Checks)
	}
	if err := p.started(ctx, running{url, w.accounts, dbs.api}); err != nil {
		return end(err)
	}
	debug.FreeOSMemory() // what starting took, for instance to read the contract, is several times what lasts
	return group.Wait()
}

// stores are the pools of connections of a process.
type stores struct{ api, worker, sender *store.Store }

// openStores opens a pool for each part of a process, or one for all where only
// one connection may write.
func (g *globals) openStores(ctx context.Context, worker bool) (dbs stores, err error) {
	if dbs.api, err = g.openStore(ctx, apiConns); err != nil {
		return dbs, err
	}
	dbs.worker, dbs.sender = dbs.api, dbs.api
	dbs.api.RequireAttestation()
	if !worker || dbs.api.SingleWriter() {
		if worker {
			err = dbs.api.InvalidateEpochs(ctx)
		}
		return dbs, err
	}
	if dbs.worker, err = g.openStore(ctx, workerConns); err == nil {
		dbs.api.ShareDetector(dbs.worker)
		dbs.worker.RequireAttestation()
		if dbs.sender, err = g.openStore(ctx, senderConns); err == nil {
			dbs.sender.RequireAttestation()
		}
	}
	if err != nil {
		dbs.close()
	}
	return dbs, err
}

func (s stores) close() {
	for _, db := range []*store.Store{s.api, s.worker, s.sender} {
		if db != nil {
			_ = db.Close() // the same one twice is no error
		}
	}
}

// wired is a process that is ready to run.
type wired struct {
	config   server.Config
	accounts *account.Service
	loops    []loop
	offered  wake // when this process has learned what suppliers offer
	stocked  wake // when this process has stored new addresses
}

// wire makes the actors of a process, each with its pool of connections, and
// the loops that drive them.
func (g *globals) wire(ctx context.Context, v *vault.Vault, dbs stores, poster *webhook.HTTPPoster, p plan) (*wired,
	error) {
	chains, sandbox, err := p.chains(dbs.worker)
	if err != nil {
		return nil, err
	}
	w := &wired{offered: make(wake, 1), stocked: make(wake, 1),
		config: server.Config{Log: g.log, Audit: g.audit, Metrics: p.meter, Tracer: p.tracer,
			Checks: []server.Check{{Name: "database", Run: dbs.api.Ping}}}}
	addMetrics(dbs, p)
	w.addClock(p.clock, dbs.api)
	if w.accounts, err = g.openAccounts(ctx, v, dbs, p); err != nil {
		return nil, err
	}
	if err := keys.CheckKeys(ctx, dbs.api, v); err != nil {
		return nil, err
	}
	if err := g.addKeys(w, v, dbs, p); err != nil {
		return nil, err
	}
	sending, told, passes := make(wake, 1), make(wake, 1), make(wakes, len(chains))
	for i := range passes {
		passes[i] = make(wake, 1)
	}
	if p.live != nil {
		w.addRates(ctx, p, dbs.worker)
	}
	if p.worker {
		if err := g.wireWorker(w, v, dbs, poster, p, chains, passes, sending, wakes{sending, told}); err != nil {
			return nil, err
		}
	}
	if p.api {
		p.orders.Log = g.log
		orders, err := order.New(dbs.api, v, p.rates, sandbox, passes.up, p.orders)
		if err != nil {
			return nil, err
		}
		webhooks, err := webhook.New(dbs.api, v, poster, sending.up, webhook.Config{Retention: p.webhooks.Retention})
		if err != nil {
			return nil, err
		}
		w.config.Orders, w.config.Accounts, w.config.Webhooks = orders, w.accounts, webhooks
		w.add(loop{name: "token uses", every: usesEvery, tick: w.accounts.SaveUses, close: w.accounts.SaveUses,
			grace: closeGrace, last: true})
		w.addLimits(dbs.api, p.limits)
		w.add(loop{name: "addresses", every: prepareEvery, woken: w.stocked, tick: orders.Prepare})
		w.add(loop{name: "feed", every: feedEvery, longest: feedEvery, woken: told, tick: webhooks.Tick})
		_ = orders.RefreshOffers(ctx) // so that the first order can reserve; the loop tells of errors
		w.add(loop{name: "follow offers", every: followEvery, woken: w.offered, tick: orders.RefreshOffers})
		for _, coin := range p.orders.Currencies {
			w.config.Checks = append(w.config.Checks, server.Check{Name: "addresses " + coin.Code, Coin: coin.Code,
				Run: func(context.Context) error { return orders.Stocked(coin.Code) }})
			if !p.worker { // which knows for itself
				w.config.Checks = append(w.config.Checks, server.Check{Name: "watch " + coin.Code, Coin: coin.Code,
					Run: func(context.Context) error { return orders.Health(coin.Code) }})
			}
		}
	}
	return w, nil
}

// openAccounts returns the accounts, once it has checked the keys.
func (g *globals) openAccounts(ctx context.Context, v *vault.Vault, dbs stores, p plan) (*account.Service, error) {
	accounts, err := account.New(dbs.api, v, account.Config{Mode: g.Mode, Changed: p.meter.TokenChanged})
	if err != nil {
		return nil, err
	}
	if err := accounts.CheckKeys(ctx); err != nil {
		return nil, err
	}
	if !accounts.Sealed() {
		g.log.WarnContext(ctx, "tokens are not sealed: run 'cardmint token seal' once all processes are upgraded")
	}
	return accounts, nil
}

// wireWorker adds the loops of a worker: a watcher for each chain, the issuer
// and the sender. events are woken by new events.
func (g *globals) wireWorker(w *wired, v *vault.Vault, dbs stores, poster *webhook.HTTPPoster, p plan,
	chains []watched, passes wakes, sending wake, events wakes) error {
	issuing := make(wakes, len(p.suppliers.entries))
	for i := range issuing {
		issuing[i] = make(wake, 1)
	}
	for i, c := range chains {
		name := "watch " + c.chain.Currency().Code
		watcher, err := settle.New(dbs.worker, p.rates, c.chain,
			settle.Wake{Pass: passes[i].up, Orders: w.stocked.up, Issuer: issuing.up, Sender: events.up}, g.log,
			c.config(p, dbs.worker))
		if err != nil {
			return err
		}
		w.add(loop{name: name, coin: c.chain.Currency().Code, every: c.every, longest: c.every, woken: passes[i],
			tick: watcher.Tick, close: watcher.Close, grace: closeGrace,
			health: func(context.Context) error { return watcher.Health() }})
		w.add(loop{name: "mark " + c.chain.Currency().Code, every: markEvery, longest: markEvery, tick: watcher.Mark})
	}
	if err := g.wireIssuers(w, v, dbs, p, issuing, events); err != nil {
		return err
	}
	sender, err := webhook.NewSender(dbs.sender, v, poster, sending.up, g.log,
		webhook.Config{Retention: p.webhooks.Retention, Observe: p.meter.Attempt,
			Tracer: p.tracer.With(dbs.sender)})
	if err != nil {
		return err
	}
	w.add(loop{name: "send", every: sendEvery, woken: sending, tick: sender.Tick, close: sender.Close,
		grace: p.webhooks.Timeout + closeGrace})
	w.add(loop{name: "prune", every: pruneEvery, tick: sender.Prune})
	g.addBooks(w, v, dbs, p)
	return g.addRetention(w, dbs, p)
}

// wireIssuers adds a loop for each supplier.
func (g *globals) wireIssuers(w *wired, v *vault.Vault, dbs stores, p plan, issuing, events wakes) error {
	makers, routes, err := p.suppliers.open(supplierNeeds{g.Mode, dbs.worker, v, p.orders.QuoteTTL, g.log})
	if err != nil {
		return err
	}
	if err := w.addOffers(dbs.worker, makers, routes); err != nil {
		return err
	}
	w.config.Callbacks = map[string]http.Handler{}
	for _, e := range p.suppliers.entries {
		if e.LowStock > 0 {
			p.meter.LowStock(e.Name, e.LowStock)
		}
	}
	for i, r := range routes {
		name := "issue " + r.Supplier.Name()
		issuer, err := issue.New(dbs.worker, v, issue.Wake{Issuers: issuing.up, Sender: events.up}, g.log,
			issue.Config{Routes: routes, Index: i, Patience: p.suppliers.patience, Tracer: p.tracer.With(dbs.worker),
				Observe: issue.Observe{Call: p.meter.Call, Issued: p.meter.Issued}})
		if err != nil {
			return err
		}
		w.add(loop{name: name, every: issueEvery, woken: issuing[i], tick: issuer.Tick})
		if calls, ok := makers[i].(interface{ Secrets() supplier.Secrets }); ok {
			w.config.Callbacks[supplier.CallbackPath(r.Supplier.Name())] = supplier.NewCallback(calls.Secrets(),
				func(key string) {
					issuer.Expedite(key)
					issuing[i].up()
				}, time.Now)
		}
	}
	return nil
}

// addOffers adds a loop for each supplier that asks what can be had, and one
// for each stock.
func (w *wired) addOffers(db *store.Store, makers []maker, routes issue.Routes) error {
	for i, m := range makers {
		offers, err := issue.NewOffers(db, routes, i)
		if err != nil {
			return err
		}
		if stock, ok := m.(*supplier.Stock); ok {
			w.add(loop{name: "stock " + m.Name(), every: stockEvery, tick: stock.Tick})
		}
		w.add(loop{name: "offers " + m.Name(), every: offersEvery, tick: func(ctx context.Context) error {
			defer w.offered.up()
			return offers.Tick(ctx)
		}})
	}
	return nil
}

// add adds a loop and its readiness check.
func (w *wired) add(l loop) {
	w.loops = append(w.loops, l)
	if l.health != nil {
		w.config.Checks = append(w.config.Checks, server.Check{Name: l.name, Coin: l.coin, Run: l.health})
	}
}

// awaitReady waits until every check passes, but not for long.
func awaitReady(ctx context.Context, checks []server.Check) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for _, check := range checks {
		for check.Run(ctx) != nil {
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
