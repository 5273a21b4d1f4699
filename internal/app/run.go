// Package app is the process: it wires the other packages together, runs their
// loops, serves the API, and shuts down. Only it and package cli import
// adapters.
//
// A killed process leaves leases and claims behind, which expire.
package app

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/trace"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/server"
)

// Database connections. Each part has its own pool, so that a flood of requests
// or of events cannot stop the detection of payments.
const (
	apiConns    = 16
	workerConns = 6
	senderConns = 4
)

// A process shuts down within 30 s: work in progress takes up to 22 s,
// releasing leases 5 s, and sending the last spans 3 s.
const (
	ShutdownGrace = 20 * time.Second // for accepted requests
	closeGrace    = 3 * time.Second  // for releasing leases
)

// process is a running process.
type process struct {
	*Deployment
	cfg Config

	suppliers     Suppliers
	rates         order.Rates
	live          *rate.Live // nil if rates are fixed
	chains        []chainRunner
	sandbox       map[string]order.Sandbox // by currency; nil if chains are real
	vault         *vault.Vault
	listener      net.Listener
	metricsServer net.Listener // nil to serve no metrics
	meter         *metrics.Metrics
	tracer        *trace.Tracer // nil for none
	books         *bookkeeper   // nil if this process does not reconcile
	clock         *clockCheck
	dbs           stores
	poster        *webhook.HTTPPoster
	accounts      *account.Service

	server  server.Config
	loops   []loop
	offered wake // this process has stored offers
	stocked wake // this process has stored addresses
}

// Run runs a process until ctx ends.
func Run(ctx context.Context, d *Deployment, cfg Config) error {
	p := &process{Deployment: d, cfg: cfg, offered: make(wake, 1), stocked: make(wake, 1)}
	if err := p.configure(); err != nil {
		return err
	}
	// The key file is local, so it is checked before other machines. In
	// development it is created, which waits for the listener.
	if !cfg.Dev {
		if err := p.openVault(ctx); err != nil {
			return err
		}
	}
	if p.worker() && !cfg.Simulated {
		closeNodes, err := p.openNodes(ctx)
		if err != nil {
			return err
		}
		defer closeNodes()
	}
	// Listening comes before anything lasting, so that a port in use leaves
	// nothing behind.
	if err := p.listen(); err != nil {
		return err
	}
	defer p.closeListeners()
	if cfg.Dev {
		if err := p.createVault(ctx); err != nil {
			return err
		}
	}
	return p.run(ctx)
}

func (p *process) api() bool    { return p.cfg.Role != RoleWorker }
func (p *process) worker() bool { return p.cfg.Role != RoleAPI }

// configure checks the configuration and reads the files that it names.
func (p *process) configure() (err error) {
	if err := p.cfg.validate(p.Mode); err != nil {
		return err
	}
	if err := p.checkLive(); err != nil {
		return err
	}
	if p.suppliers, err = p.cfg.Supplier.Read(p.Mode); err != nil {
		return err
	}
	p.rates, p.live, err = p.cfg.Rates.open(p.Log, p.Mode, currencies(p.cfg.Coins))
	if err != nil {
		return err
	}
	p.warnAboutBounds()
	return nil
}

func (p *process) openVault(ctx context.Context) (err error) {
	p.vault, err = p.OpenVault(ctx)
	return err
}

// createVault opens the vault, after creating a missing key file.
func (p *process) createVault(ctx context.Context) error {
	if err := vault.Create(p.Keys); err != nil && !errors.Is(err, vault.ErrExists) {
		return WithHint(err, "choose a directory that can be written with --keys")
	}
	return p.openVault(ctx)
}

// Tune configures the garbage collector for a process that serves. The live
// heap is a few MiB: letting it grow to five times that between collections
// costs little memory and saves much CPU time. GOGC takes precedence.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

func (p *process) run(ctx context.Context) error {
	Tune()
	p.meter = metrics.New(Version())
	p.books = newBookkeeper(p.cfg.Reconcile, p.meter)
	p.clock = p.newClockCheck()
	endTraces, err := p.openTracing(ctx)
	if err != nil {
		return err
	}
	defer endTraces() // after everything that may start a span
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	startup := p.newStartupHandler()
	group.Go(func() error { return server.Serve(ctx, p.listener, startup, p.Log, ShutdownGrace) })
	group.Go(func() error { return p.serveMetrics(ctx) })
	defer p.close()
	err = p.open(ctx, startup)
	if err == nil {
		defer closeRemaining(ctx, p.loops, p.Log)
		err = p.start(ctx, group, startup)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil { // stopped before it had started
		err = nil
	}
	if err != nil {
		cancel()
	}
	return errors.Join(err, group.Wait())
}

// open opens the database and wires the process.
func (p *process) open(ctx context.Context, startup *startupHandler) (err error) {
	if p.dbs, err = p.awaitStores(ctx, startup); err != nil {
		return err
	}
	p.poster = webhook.NewHTTPPoster(outbound.Guard{Insecure: p.cfg.Webhooks.Insecure, Timeout: p.cfg.Webhooks.Timeout})
	p.poster.Unlimited = p.cfg.Dev
	if p.cfg.Simulated {
		p.simulateChains()
	}
	return p.wire(ctx)
}

// close closes what the loops used.
func (p *process) close() {
	if p.poster != nil {
		p.poster.Close()
	}
	p.dbs.close()
}

// start starts the loops and serves the API.
func (p *process) start(ctx context.Context, group *errgroup.Group, startup *startupHandler) error {
	handler, err := server.New(p.server)
	if err != nil {
		return err
	}
	for _, l := range p.loops {
		group.Go(func() error { l.runAndClose(ctx, p.Log); return nil })
	}
	startup.set(handler)
	if p.cfg.Simulated {
		// Simulated chains depend on nothing else: the service is announced
		// once it can sell a card.
		awaitReady(ctx, p.server.Checks)
	}
	if err := p.announce(ctx); err != nil {
		return err
	}
	// Starting, for instance reading the contract, takes several times the
	// memory that serving needs.
	debug.FreeOSMemory()
	return nil
}

// url returns the service's address for clients on this machine.
func (p *process) url() string {
	address := p.listener.Addr().String()
	if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().IsUnspecified() {
		address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port()).String()
	}
	return "http://" + address
}

// announce reports that the service listens.
func (p *process) announce(ctx context.Context) error {
	if p.cfg.Started != nil {
		return p.cfg.Started(ctx, Running{p.url(), p.accounts, p.dbs.api})
	}
	if p.Mode == card.LiveMode {
		p.announceLive()
	}
	// The audit log has no level: operators need the address of the service.
	p.Audit.Info("started", "role", p.cfg.Role, "mode", p.Mode, "url", p.url())
	return nil
}

// stores are the connection pools of a process.
type stores struct{ api, worker, sender *store.Store }

// openStores opens a pool for each part of a process. All parts share one pool
// if the database allows only one writer.
func (p *process) openStores(ctx context.Context) (dbs stores, err error) {
	if dbs.api, err = p.OpenStore(ctx, apiConns); err != nil {
		return dbs, err
	}
	dbs.worker, dbs.sender = dbs.api, dbs.api
	dbs.api.RequireAttestation()
	if !p.worker() || dbs.api.SingleWriter() {
		if p.worker() {
			err = dbs.api.InvalidateEpochs(ctx)
		}
		return dbs, err
	}
	if dbs.worker, err = p.OpenStore(ctx, workerConns); err == nil {
		dbs.api.ShareDetector(dbs.worker)
		dbs.worker.RequireAttestation()
		if dbs.sender, err = p.OpenStore(ctx, senderConns); err == nil {
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
			_ = db.Close() // safe to repeat for a shared pool
		}
	}
}

// awaitReady waits up to five seconds for every check to pass.
func awaitReady(ctx context.Context, checks []server.Check) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for _, check := range checks {
		for check.Run(ctx) != nil {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
