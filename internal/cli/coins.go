package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/driver"
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

// coinVars are the variables in help texts.
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
		"event_types": strings.Join(events, ", "), "metrics_address": app.DefaultMetrics}
}

// enabled returns the coins that are sold, with the confirmations that the
// operator requires.
func (f coinFlags) enabled() ([]app.Coin, error) {
	var all []app.Coin
	for i, c := range chain.Coins() {
		for _, code := range f.Enabled {
			if code == c.Code {
				settings := f.Settings[i].(driver.Settings)
				c.Confirmations = settings.RequiredConfirmations()
				all = append(all, app.Coin{Coin: c, Settings: settings})
				break
			}
		}
	}
	for _, code := range f.Enabled {
		if _, known := chain.ByCode(code); !known {
			return nil, app.WithHint(fmt.Errorf("--coins: %q is not a coin of this program", code), "it knows: %s",
				coinVars()["coins"])
		}
	}
	if len(all) == 0 {
		return nil, app.WithHint(errors.New("--coins: none"), "name at least one of: %s", coinVars()["coins"])
	}
	return all, nil
}
