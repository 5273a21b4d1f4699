package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
)

type serveCommand struct {
	Listen      string            `env:"CARDMINT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Where to answer (${default}). A worker alone answers /livez and /readyz there."`
	Role        string            `env:"CARDMINT_ROLE" default:"all" enum:"api,worker,all" placeholder:"ROLE" help:"What this process does: api, worker (watches the chains and has cards made) or all (${default})."`
	Simulated   bool              `env:"CARDMINT_SIMULATED" help:"Simulate the chains: whoever has a card may pay for it without money. Only in test mode."`
	Rate        map[string]string `env:"CARDMINT_RATE" placeholder:"COIN=USD" help:"Fixed rates, in US dollars for one coin, for example monero=152.52. Only in test mode."`
	QuoteTTL    time.Duration     `name:"quote-ttl" env:"CARDMINT_QUOTE_TTL" default:"60m" placeholder:"DURATION" help:"How long amount and rate of a card are locked (${default})."`
	AddressPool int               `name:"address-pool" env:"CARDMINT_ADDRESS_POOL" default:"1000" placeholder:"N" help:"Free addresses to keep ahead, per coin (${default})."`
	Monero      moneroFlags       `embed:"" prefix:"monero-" envprefix:"CARDMINT_MONERO_"`
}

func (serveCommand) Help() string {
	return `Any number of processes may serve one database: APIs side by side, and workers of which one watches each chain while the others stand by.

Examples:
  cardmint serve --database-url postgres://cardmint@localhost/cardmint --rate monero=152.52 --monero-daemon-url http://127.0.0.1:18081 --monero-wallet-url http://127.0.0.1:18083
  cardmint serve --role api --listen 0.0.0.0:8080 --rate monero=152.52
  cardmint serve --simulated --rate monero=152.52`
}

// Run runs the service until ctx ends.
func (c serveCommand) Run(ctx context.Context, g *globals) error {
	if g.Mode == card.LiveMode {
		return hint(errors.New("live mode needs an issuer of real cards and live rates, and this version has neither yet"),
			"use --mode test; how to build in an issuer stands in the README")
	}
	coin := card.Monero()
	coin.Confirmations = c.Monero.Confirmations
	if c.Rate[coin.Code] == "" {
		return hint(fmt.Errorf("no rate for %s", coin.Code), "set it with --rate %s=152.52", coin.Code)
	}
	rates, err := rate.NewFixed(c.Rate, time.Now)
	if err != nil {
		return hint(err, "--rate takes US dollars for one coin, for example monero=152.52")
	}
	v, err := g.openVault()
	if err != nil {
		return err
	}
	p := plan{
		listen: c.Listen, api: c.Role != "worker", worker: c.Role != "api",
		currencies: []card.Currency{coin}, rates: rates, quoteTTL: c.QuoteTTL, poolSize: c.AddressPool,
		started: func(_ context.Context, _ *card.Service, url string) error {
			slog.Info("started", "role", c.Role, "url", url)
			return nil
		},
	}
	switch {
	case c.Simulated:
		p.chains = simulated
	case !p.worker:
		p.chains = func(*store.Store) ([]watched, map[string]card.Sandbox, error) { return nil, nil, nil }
	default:
		monero, err := c.Monero.start(ctx)
		if err != nil {
			return err
		}
		p.chains = func(*store.Store) ([]watched, map[string]card.Sandbox, error) {
			return []watched{{chain: monero, every: moneroEvery}}, nil, nil
		}
	}
	return g.run(ctx, v, p)
}
