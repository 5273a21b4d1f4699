package cli

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

const mostOpenUSD = 1_000_000_000_000

type serveCommand struct {
	Listen      string          `env:"CARDMINT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address to listen on (${default}). A worker serves only /livez and /readyz there."`
	Metrics     string          `name:"metrics-listen" env:"CARDMINT_METRICS_LISTEN" default:"${metrics_address}" placeholder:"ADDRESS" help:"Address to serve metrics for Prometheus on, at /metrics; off for none (${default}; left out if another process uses that). They name no card, account or address, but whoever reaches it can read them."`
	Role        string          `env:"CARDMINT_ROLE" default:"all" enum:"api,worker,all" placeholder:"ROLE" help:"What this process does: api, worker (watches the chains, issues cards and sends webhooks) or all (${default})."`
	Wait        time.Duration   `name:"database-wait" env:"CARDMINT_DATABASE_WAIT" default:"1m" placeholder:"DURATION" help:"How long to wait at the start for a PostgreSQL that is not there yet (${default})."`
	Simulated   bool            `env:"CARDMINT_SIMULATED" help:"Simulate the chains, so that cards can be paid for without money. Only in test mode."`
	Rates       rateFlags       `embed:""`
	QuoteTTL    time.Duration   `name:"quote-ttl" env:"CARDMINT_QUOTE_TTL" default:"60m" placeholder:"DURATION" help:"How long amount and rate of a card are locked (${default})."`
	Addresses   addressFlags    `embed:""`
	MaxOpenUSD  int64           `name:"max-open-usd" env:"CARDMINT_MAX_OPEN_USD" default:"0" placeholder:"USD" help:"US dollars that an account may have open in cards that are not paid yet; 0 for no limit (${default})."`
	Freeze      bool            `name:"freeze-reversed" env:"CARDMINT_FREEZE_REVERSED" default:"true" negatable:"" help:"Sell no new cards to an account while one of its issued cards is reversed (on)."`
	MaxBlind    time.Duration   `name:"max-blind" env:"CARDMINT_MAX_BLIND" default:"15m" placeholder:"DURATION" help:"How long cards are accepted while nobody can watch their chain (${default})."`
	Reconcile   time.Duration   `name:"reconcile-every" env:"CARDMINT_RECONCILE_EVERY" default:"1h" placeholder:"DURATION" help:"How often the worker reads the books, as the command reconcile does, for metrics and alarms; 0 for never (${default})."`
	Credentials credentialFlags `embed:""`
	Retention   retentionFlags  `embed:""`
	Limits      limitFlags      `embed:""`
	Webhooks    webhookFlags    `embed:""`
	Supplier    supplierFlags   `embed:""`
	Web         webFlags        `embed:""`
	Tracing     tracingFlags    `embed:""`
	Coins       coinFlags       `embed:""`
}

// credentialFlags say how long and how openly credentials are kept.
type credentialFlags struct {
	Retention time.Duration `name:"credentials-retention" env:"CARDMINT_CREDENTIALS_RETENTION" default:"0" placeholder:"DURATION" help:"Delete the credentials of cards so long after they were issued, for example 720h; 0 to keep them for good (${default}). The same for all workers."`
	Mask      bool          `name:"mask-credentials" env:"CARDMINT_MASK_CREDENTIALS" help:"Mask card number, security code and password wherever cards are read, except by revealCard. The same for all APIs."`
}

// addressFlags say how many addresses wallets make.
type addressFlags struct {
	Pool int     `name:"address-pool" env:"CARDMINT_ADDRESS_POOL" default:"200" placeholder:"N" help:"Free addresses to keep ahead, per coin (${default})."`
	Rate float64 `name:"address-rate" env:"CARDMINT_ADDRESS_RATE" default:"10" placeholder:"N" help:"Addresses per second that each coin's wallet hands out in the long run at most (${default}). After a start, as many are skipped as the time can have used of which nothing is known."`
}

func (serveCommand) Help() string {
	return `Any number of processes may serve one database: APIs side by side, and workers of which one watches each chain while the others stand by.

Examples:
  cardmint serve --database-url postgres://cardmint@localhost/cardmint --markup 1.5 ` + chain.Coins()[0].Example + `
  cardmint serve --role api --listen 0.0.0.0:8080
  cardmint serve --simulated --rate ` + chain.Coins()[0].Code + `=152.52`
}

// check returns an error if a flag has a value that is out of bounds.
func (c serveCommand) check(mode string) error {
	if c.MaxBlind <= 0 || c.MaxOpenUSD < 0 || c.MaxOpenUSD > mostOpenUSD {
		return hint(errors.New("--max-blind and --max-open-usd: out of bounds"),
			"--max-blind takes more than 0, and --max-open-usd 0 to %d US dollars", int64(mostOpenUSD))
	}
	if c.Reconcile < 0 {
		return hint(errors.New("--reconcile-every: out of bounds"), "it takes a duration such as 1h, or 0")
	}
	if err := keys.CheckRetention(c.Credentials.Retention); err != nil {
		return hint(err, "--credentials-retention takes a duration such as 720h, or 0")
	}
	if err := c.Retention.check(); err != nil {
		return err
	}
	return c.Webhooks.check(mode)
}

// Run runs the service until ctx ends.
func (c serveCommand) Run(ctx context.Context, g *globals) error {
	if err := errors.Join(c.check(g.Mode), c.Web.check(g.Mode)); err != nil {
		return err
	}
	coins, err := c.Coins.enabled()
	if err != nil {
		return err
	}
	if err := c.checkLive(g, coins); err != nil {
		return err
	}
	made, err := c.Supplier.read(g.Mode)
	if err != nil {
		return err
	}
	rates, live, err := c.Rates.open(g.log, g.Mode, currencies(coins))
	if err != nil {
		return err
	}
	c.warnOfBounds(g, coins)
	v, err := g.openVault(ctx)
	if err != nil {
		return err
	}
	p := plan{
		api: c.Role != "worker", worker: c.Role != "api",
		rates: rates, live: live, ratesEvery: c.Rates.Live.RateEvery,
		webhooks: c.Webhooks, credentials: c.Credentials, reconcile: c.Reconcile, retention: c.Retention,
		suppliers: made,
		orders: order.Config{Currencies: currencies(coins), Known: chain.Currencies(), QuoteTTL: c.QuoteTTL,
			MaxOpenUSD: card.USD(c.MaxOpenUSD * 100), FreezeReversed: c.Freeze, MaxBlind: c.MaxBlind,
			NeedOffers:      g.Mode == card.LiveMode,
			MaskCredentials: c.Credentials.Mask, CheckAddress: addressChecks(currencies(coins), c.Simulated)},
		addresses: c.Addresses, limits: c.Limits, tracing: c.Tracing, wait: c.Wait, web: c.Web,
		started: func(_ context.Context, r running) error {
			if g.Mode == card.LiveMode {
				c.announceLive(g, coins, made)
			}
			// whatever the level: without it nobody finds the service
			g.audit.Info("started", "role", c.Role, "mode", g.Mode, "url", r.url)
			return nil
		},
	}
	switch {
	case c.Simulated:
		p.chains, p.simulated = simulatedChains(currencies(coins)), true
	case !p.worker:
		p.chains = func(*store.Store) ([]watched, map[string]order.Sandbox, error) { return nil, nil, nil }
	default:
		chains, end, err := nodes(ctx, g.log, coins)
		if err != nil {
			return err
		}
		defer end()
		p.chains = func(*store.Store) ([]watched, map[string]order.Sandbox, error) { return chains, nil, nil }
	}
	if p.listener, p.metrics, err = g.listenAll(c.Listen, c.Metrics); err != nil {
		return err
	}
	return g.run(ctx, v, p)
}
