package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/driver"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// coinFlags are the flags of every coin, in the order of the registry.
type coinFlags struct {
	Enabled  []string     `name:"coins" env:"CARDMINT_COINS" default:"${default_coin}" placeholder:"COIN" help:"Coins that cards can be paid with, out of: ${coins} (${default})."`
	Settings kong.Plugins `embed:""` // of driver.Settings
}

func newCoinFlags() coinFlags {
	var f coinFlags
	for _, c := range chain.Coins() {
		f.Settings = append(f.Settings, c.Settings())
	}
	return f
}

// coinVars are the variables in the texts of help: of coins, and of events.
func coinVars() kong.Vars {
	var codes []string
	for _, c := range chain.Coins() {
		codes = append(codes, c.Code)
	}
	var events []string
	for _, e := range card.EventTypes() {
		events = append(events, string(e))
	}
	return kong.Vars{"default_coin": codes[0], "coins": strings.Join(codes, ", "),
		"event_types": strings.Join(events, ", "), "metrics_address": metricsAddress}
}

// enabled is a coin that is used, with its settings.
type enabled struct {
	driver.Coin
	settings driver.Settings
}

// enabled returns the coins that are used, with the confirmations that the
// operator requires.
func (f coinFlags) enabled() ([]enabled, error) {
	var all []enabled
	for i, c := range chain.Coins() {
		for _, code := range f.Enabled {
			if code == c.Code {
				settings := f.Settings[i].(driver.Settings)
				c.Confirmations = settings.RequiredConfirmations()
				all = append(all, enabled{c, settings})
				break
			}
		}
	}
	for _, code := range f.Enabled {
		if _, known := chain.ByCode(code); !known {
			return nil, hint(fmt.Errorf("--coins: %q is not a coin of this program", code), "it knows: %s", coinVars()["coins"])
		}
	}
	if len(all) == 0 {
		return nil, hint(errors.New("--coins: none"), "name at least one of: %s", coinVars()["coins"])
	}
	return all, nil
}

func currencies(coins []enabled) []card.Currency {
	all := make([]card.Currency, len(coins))
	for i, c := range coins {
		all[i] = c.Currency
	}
	return all
}

// addressChecks returns the functions that check customers' addresses, by
// currency.
func addressChecks(coins []card.Currency, sandbox bool) map[string]func(address, ours string) error {
	checks := map[string]func(address, ours string) error{}
	for _, c := range coins {
		coin, _ := chain.ByCode(c.Code)
		checks[c.Code] = coin.CheckAddress
		if sandbox {
			checks[c.Code] = simulated.CheckAddress(coin.CheckAddress)
		}
	}
	return checks
}

// nodes opens the real chains of a process, and returns what closes them. It
// refuses a node or wallet that can never be used. One that does not answer yet
// is no error: the watcher keeps trying, and readiness says so.
func nodes(ctx context.Context, log *slog.Logger, coins []enabled) ([]watched, func(), error) {
	var all []watched
	var open []driver.Node
	end := func() {
		for _, n := range open {
			n.Close()
		}
	}
	for _, c := range coins {
		n, err := c.settings.Open()
		if err != nil {
			end()
			return nil, nil, err
		}
		open = append(open, n)
		report, err := n.Check(ctx)
		for _, row := range report {
			if row.Name == driver.Warning {
				log.Warn(row.Text, "currency", c.Code)
			}
		}
		switch {
		case errors.Is(err, driver.ErrUnfit):
			end()
			return nil, nil, err
		case err != nil:
			log.Warn("node or wallet does not answer yet, or is not ready", "currency", c.Code, "error", err)
		}
		all = append(all, watched{chain: n, every: c.Every, wallet: true})
	}
	return all, end, nil
}

// simulatedChains returns a function that makes the simulated chains of currencies.
func simulatedChains(coins []card.Currency) func(*store.Store) ([]watched, map[string]order.Sandbox, error) {
	return func(db *store.Store) ([]watched, map[string]order.Sandbox, error) {
		var all []watched
		sandbox := map[string]order.Sandbox{}
		for _, coin := range coins {
			c := simulated.New(coin, db, time.Now)
			all, sandbox[coin.Code] = append(all, watched{chain: c, every: time.Second, fillBatch: devPool}), c
		}
		return all, sandbox, nil
	}
}
