package app

import (
	"context"
	"net/http"
	"time"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/server"
)

const (
	prepareEvery = time.Second
	markEvery    = time.Second
	issueEvery   = time.Second
	sendEvery    = time.Second
	feedEvery    = time.Second
	offersEvery  = 10 * time.Second
	stockEvery   = 5 * time.Second
	pruneEvery   = time.Minute
	usesEvery    = time.Minute
)

// wakeups are what loops wake each other by.
type wakeups struct {
	passes  wakes // by chain
	issuing wakes // by supplier
	sending wake
	feed    wake
}

// events wakes the loops that read new events.
func (w wakeups) events() { wakes{w.sending, w.feed}.notify() }

func newWakes(n int) wakes {
	all := make(wakes, n)
	for i := range all {
		all[i] = make(wake, 1)
	}
	return all
}

// wire creates the actors of a process, each with its connection pool, and the
// loops that drive them.
func (p *process) wire(ctx context.Context) (err error) {
	p.server = server.Config{Log: p.Log, Audit: p.Audit, Metrics: p.meter, Tracer: p.tracer,
		Checks: []server.Check{{Name: "database", Run: p.dbs.api.Ping}}}
	p.addMetrics()
	p.addClock()
	if p.accounts, err = p.openAccounts(ctx); err != nil {
		return err
	}
	if err := keys.CheckKeys(ctx, p.dbs.api, p.vault); err != nil {
		return err
	}
	if err := p.addKeys(); err != nil {
		return err
	}
	w := wakeups{newWakes(len(p.chains)), newWakes(len(p.suppliers.Entries)), make(wake, 1), make(wake, 1)}
	if p.live != nil {
		p.addRates(ctx)
	}
	if p.worker() {
		if err := p.wireWorker(w); err != nil {
			return err
		}
	}
	if !p.api() {
		return nil
	}
	if err := p.wireAPI(ctx, w); err != nil {
		return err
	}
	return p.addWeb(ctx)
}

// openAccounts returns the accounts after checking the keys.
func (p *process) openAccounts(ctx context.Context) (*account.Service, error) {
	accounts, err := account.New(p.dbs.api, p.vault, account.Config{Mode: p.Mode, Changed: p.meter.TokenChanged})
	if err != nil {
		return nil, err
	}
	if err := accounts.CheckKeys(ctx); err != nil {
		return nil, err
	}
	if !accounts.Sealed() {
		p.Log.WarnContext(ctx, "tokens are not sealed: run 'cardmint token seal' once all processes are upgraded")
	}
	return accounts, nil
}

// wireAPI adds the actors that serve requests, and their loops.
func (p *process) wireAPI(ctx context.Context, w wakeups) error {
	orders, err := order.New(p.dbs.api, p.vault, p.rates, p.sandbox, w.passes.notify, p.cfg.orders(p.Deployment))
	if err != nil {
		return err
	}
	webhooks, err := webhook.New(p.dbs.api, p.vault, p.poster, w.sending.notify,
		webhook.Config{Retention: p.cfg.Webhooks.Retention})
	if err != nil {
		return err
	}
	p.server.Orders, p.server.Accounts, p.server.Webhooks = orders, p.accounts, webhooks
	p.add(loop{name: "token uses", every: usesEvery, tick: p.accounts.SaveUses, close: p.accounts.SaveUses,
		grace: closeGrace, closeLast: true})
	p.addLimits()
	p.add(loop{name: "addresses", every: prepareEvery, wake: p.stocked, tick: orders.Prepare})
	p.add(loop{name: "feed", every: feedEvery, maxPause: feedEvery, wake: w.feed, tick: webhooks.Tick})
	_ = orders.RefreshOffers(ctx) // so that the first order can reserve; the loop logs errors
	p.add(loop{name: "follow offers", every: followEvery, wake: p.offered, tick: orders.RefreshOffers})
	for _, coin := range p.cfg.Coins {
		p.check("addresses "+coin.Code, coin.Code, func(context.Context) error { return orders.Stocked(coin.Code) })
		if !p.worker() { // a worker checks its own watchers
			p.check("watch "+coin.Code, coin.Code, func(context.Context) error { return orders.Health(coin.Code) })
		}
	}
	return nil
}

// wireWorker adds the loops of a worker: a watcher for each chain, the issuers
// and the sender.
func (p *process) wireWorker(w wakeups) error {
	for i, c := range p.chains {
		coin := c.chain.Currency().Code
		watcher, err := settle.New(p.dbs.worker, p.rates, c.chain,
			settle.Wake{Pass: w.passes[i].notify, Orders: p.stocked.notify, Issuer: w.issuing.notify, Sender: w.events},
			p.Log, p.settleConfig(c))
		if err != nil {
			return err
		}
		p.add(loop{name: "watch " + coin, coin: coin, every: c.every, maxPause: c.every, wake: w.passes[i],
			tick: watcher.Tick, close: watcher.Close, grace: closeGrace,
			health: func(context.Context) error { return watcher.Health() }})
		p.add(loop{name: "mark " + coin, every: markEvery, maxPause: markEvery, tick: watcher.Mark})
	}
	if err := p.wireIssuers(w); err != nil {
		return err
	}
	sender, err := webhook.NewSender(p.dbs.sender, p.vault, p.poster, w.sending.notify, p.Log,
		webhook.Config{Retention: p.cfg.Webhooks.Retention, Observe: p.meter.Attempt, Tracer: p.tracer.With(p.dbs.sender)})
	if err != nil {
		return err
	}
	p.add(loop{name: "send", every: sendEvery, wake: w.sending, tick: sender.Tick, close: sender.Close,
		grace: p.cfg.Webhooks.Timeout + closeGrace})
	p.add(loop{name: "prune", every: pruneEvery, tick: sender.Prune})
	p.addBooks()
	return p.addRetention()
}

// settleConfig returns how a chain is watched.
func (p *process) settleConfig(c chainRunner) settle.Config {
	coin := c.chain.Currency().Code
	cfg := settle.Config{FillBatch: c.fillBatch, PoolSize: p.cfg.Addresses.Pool, Tracer: p.tracer.With(p.dbs.worker),
		Observe: func(r settle.Report) {
			p.meter.Pass(coin, time.Now(), r)
			p.books.setLeading(coin, r.Leads)
			p.clock.block(coin, r)
		}}
	if c.wallet {
		cfg.AddressRate, cfg.Beacon, cfg.Quiet = p.cfg.Addresses.Rate, true, 3*c.every
	}
	return cfg
}

// wireIssuers adds the loops of each supplier.
func (p *process) wireIssuers(w wakeups) error {
	opened, routes, err := p.suppliers.Open(
		SupplierOptions{p.Mode, p.dbs.worker, p.vault, p.cfg.QuoteTTL, p.Log})
	if err != nil {
		return err
	}
	if err := p.addOffers(opened, routes); err != nil {
		return err
	}
	for _, e := range p.suppliers.Entries {
		if e.LowStock > 0 {
			p.meter.LowStock(e.Name, e.LowStock)
		}
	}
	p.server.Callbacks = map[string]http.Handler{}
	for i, s := range opened {
		issuer, err := issue.New(p.dbs.worker, p.vault, issue.Wake{Issuers: w.issuing.notify, Sender: w.events}, p.Log,
			issue.Config{Routes: routes, Index: i, Patience: p.suppliers.Patience, Tracer: p.tracer.With(p.dbs.worker),
				Observe: issue.Observe{Call: p.meter.Call, Issued: p.meter.Issued}})
		if err != nil {
			return err
		}
		p.add(loop{name: "issue " + s.Name(), every: issueEvery, wake: w.issuing[i], tick: issuer.Tick})
		if calls, ok := s.(interface{ Secrets() supplier.Secrets }); ok {
			p.server.Callbacks[supplier.CallbackPath(s.Name())] = supplier.NewCallback(calls.Secrets(),
				func(key string) {
					issuer.Expedite(key)
					w.issuing[i].notify()
				}, time.Now)
		}
	}
	return nil
}

// addOffers adds a loop that reads the offers of each supplier, and one for
// each stock.
func (p *process) addOffers(opened []Supplier, routes issue.Routes) error {
	for i, s := range opened {
		offers, err := issue.NewOffers(p.dbs.worker, routes, i)
		if err != nil {
			return err
		}
		if stock, ok := s.(*supplier.Stock); ok {
			p.add(loop{name: "stock " + s.Name(), every: stockEvery, tick: stock.Tick})
		}
		p.add(loop{name: "offers " + s.Name(), every: offersEvery, tick: func(ctx context.Context) error {
			defer p.offered.notify()
			return offers.Tick(ctx)
		}})
	}
	return nil
}

// add adds a loop and its readiness check.
func (p *process) add(l loop) {
	p.loops = append(p.loops, l)
	if l.health != nil {
		p.check(l.name, l.coin, l.health)
	}
}

// check adds a readiness check. coin is the coin that it concerns, or "".
func (p *process) check(name, coin string, ask func(context.Context) error) {
	p.server.Checks = append(p.server.Checks, server.Check{Name: name, Coin: coin, Run: ask})
}
