package app

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/driver"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

const maxOpenUSD = 1_000_000_000_000

// Roles of a process.
const (
	RoleAPI    = "api"
	RoleWorker = "worker"
	RoleAll    = "all"
)

// Config configures a process. Its tags define the flags of 'cardmint serve'.
type Config struct {
	Listen      string           `env:"CARDMINT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address to listen on (${default}). A worker serves only /livez and /readyz there."`
	Metrics     string           `name:"metrics-listen" env:"CARDMINT_METRICS_LISTEN" default:"${metrics_address}" placeholder:"ADDRESS" help:"Address to serve metrics for Prometheus on, at /metrics; off for none (${default}; left out if another process uses that). They name no card, account or address, but whoever reaches it can read them."`
	Role        string           `env:"CARDMINT_ROLE" default:"all" enum:"api,worker,all" placeholder:"ROLE" help:"What this process does: api, worker (watches the chains, issues cards and sends webhooks) or all (${default})."`
	Wait        time.Duration    `name:"database-wait" env:"CARDMINT_DATABASE_WAIT" default:"1m" placeholder:"DURATION" help:"How long to wait at start until PostgreSQL is available (${default})."`
	Simulated   bool             `env:"CARDMINT_SIMULATED" help:"Simulate the chains, so that cards are paid without money. Only in test mode."`
	Rates       RateConfig       `embed:""`
	QuoteTTL    time.Duration    `name:"quote-ttl" env:"CARDMINT_QUOTE_TTL" default:"60m" placeholder:"DURATION" help:"How long a quote is valid (${default})."`
	Addresses   AddressConfig    `embed:""`
	MaxOpenUSD  int64            `name:"max-open-usd" env:"CARDMINT_MAX_OPEN_USD" default:"0" placeholder:"USD" help:"Limit of US dollars in unpaid cards of an account; 0 for no limit (${default})."`
	Freeze      bool             `name:"freeze-reversed" env:"CARDMINT_FREEZE_REVERSED" default:"true" negatable:"" help:"Sell no new cards to an account while one of its issued cards is reversed (on)."`
	MaxBlind    time.Duration    `name:"max-blind" env:"CARDMINT_MAX_BLIND" default:"15m" placeholder:"DURATION" help:"How long orders are accepted while no worker can watch the chain (${default})."`
	Reconcile   time.Duration    `name:"reconcile-every" env:"CARDMINT_RECONCILE_EVERY" default:"1h" placeholder:"DURATION" help:"How often the worker reconciles, for metrics and alarms; 0 for never (${default})."`
	Credentials CredentialConfig `embed:""`
	Retention   RetentionConfig  `embed:""`
	Limits      LimitConfig      `embed:""`
	Webhooks    WebhookConfig    `embed:""`
	Supplier    SupplierConfig   `embed:""`
	Web         WebConfig        `embed:""`
	Tracing     TracingConfig    `embed:""`

	Coins  []Coin    `kong:"-"` // the coins that are sold
	Stdout io.Writer `kong:"-"` // receives the announcement of a process in live mode

	// Dev is set by 'cardmint dev'. The key file is created if it does not
	// exist, the reference page offers a token, and webhooks have no limits.
	Dev bool `kong:"-"`
	// Started is called when the service listens, instead of the announcement.
	Started func(context.Context, Running) error `kong:"-"`
}

// Running is a service that listens.
type Running struct {
	URL      string
	Accounts *account.Service
	Store    *store.Store
}

// Coin is a coin that is sold, with its settings. Confirmations is the number
// that the operator requires.
type Coin struct {
	driver.Coin
	Settings driver.Settings
}

// CredentialConfig configures how long and how openly credentials are kept.
type CredentialConfig struct {
	Retention time.Duration `name:"credentials-retention" env:"CARDMINT_CREDENTIALS_RETENTION" default:"0" placeholder:"DURATION" help:"How long credentials are kept after a card is issued, for example 720h; 0 to keep them (${default}). The same for all workers."`
	Mask      bool          `name:"mask-credentials" env:"CARDMINT_MASK_CREDENTIALS" help:"Mask card number, security code and password wherever cards are read, except by revealCard. The same for all APIs."`
}

// AddressConfig configures how many addresses wallets make.
type AddressConfig struct {
	Pool int     `name:"address-pool" env:"CARDMINT_ADDRESS_POOL" default:"200" placeholder:"N" help:"Free addresses to keep ahead, per coin (${default})."`
	Rate float64 `name:"address-rate" env:"CARDMINT_ADDRESS_RATE" default:"10" placeholder:"N" help:"Long-term limit of addresses per second for each coin's wallet (${default}). After a start, the addresses that may have been used since the last known one are skipped."`
}

// validate returns an error if a setting is out of bounds. It normalizes URLs.
func (c *Config) validate(mode string) error {
	return errors.Join(c.checkBounds(mode), c.Web.validate(mode))
}

func (c *Config) checkBounds(mode string) error {
	if c.MaxBlind <= 0 || c.MaxOpenUSD < 0 || c.MaxOpenUSD > maxOpenUSD {
		return WithHint(errors.New("--max-blind and --max-open-usd: out of bounds"),
			"--max-blind takes more than 0, and --max-open-usd 0 to %d US dollars", int64(maxOpenUSD))
	}
	if c.Reconcile < 0 {
		return WithHint(errors.New("--reconcile-every: out of bounds"), "it takes a duration such as 1h, or 0")
	}
	if err := keys.CheckRetention(c.Credentials.Retention); err != nil {
		return WithHint(err, "--credentials-retention takes a duration such as 720h, or 0")
	}
	if err := c.Retention.validate(); err != nil {
		return err
	}
	return c.Webhooks.validate(mode)
}

// orders returns the configuration of orders.
func (c *Config) orders(d *Deployment) order.Config {
	coins := currencies(c.Coins)
	return order.Config{Currencies: coins, Known: chain.Currencies(), QuoteTTL: c.QuoteTTL,
		MaxOpenUSD: card.USD(c.MaxOpenUSD * 100), FreezeReversed: c.Freeze, MaxBlind: c.MaxBlind,
		NeedOffers: d.Mode == card.LiveMode, MaskCredentials: c.Credentials.Mask,
		CheckAddress: addressChecks(coins, c.Simulated), Log: d.Log}
}
