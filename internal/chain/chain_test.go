package chain_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rate"
)

// A coin that can be paid with lacks nothing that the rest of the program
// relies on without a check.
func TestCoins_EveryCoin_IsComplete(t *testing.T) {
	flags := map[string]string{}
	for _, c := range chain.Coins() {
		for missing, is := range map[string]bool{
			"Name":         c.Name == "",
			"Decimals":     c.Decimals <= 0,
			"BlockTime":    c.BlockTime <= 0,
			"AmountKey":    c.AmountKey == "",
			"Every":        c.Every <= 0,
			"CheckAddress": c.CheckAddress == nil,
			"CheckTxID":    c.CheckTxID == nil,
			"Example":      !strings.HasPrefix(c.Example, "--"+c.Code+"-"),
		} {
			if is {
				t.Errorf("%s: %s is missing or wrong", c.Code, missing)
			}
		}
		settings := c.Settings()
		var cli struct{ kong.Plugins }
		cli.Plugins = kong.Plugins{settings}
		parser, err := kong.New(&cli)
		if err != nil {
			t.Fatalf("%s: %v", c.Code, err)
		}
		if _, err := parser.Parse(nil); err != nil {
			t.Fatalf("%s: %v", c.Code, err)
		}
		if n := settings.RequiredConfirmations(); n != c.Confirmations || n < 1 || n > c.MaxConfirmations() {
			t.Errorf("%s: %d confirmations by default, but Confirmations is %d", c.Code, n, c.Confirmations)
		}
		for _, f := range parser.Model.Flags {
			if f.Name == "help" {
				continue
			}
			if !strings.HasPrefix(f.Name, c.Code+"-") || flags[f.Name] != "" {
				t.Errorf("%s: flag --%s must be the coin's own, and begin with its code", c.Code, f.Name)
			}
			flags[f.Name] = c.Code
		}
		for name := range settings.URLs() {
			if flags[name] != c.Code {
				t.Errorf("%s: URLs names --%s, which is no flag of it", c.Code, name)
			}
		}
	}
}

// A default quorum of sources has a market for every coin, also for those that
// have only rates.
func TestMarkets_EveryCoin_HasQuorum(t *testing.T) {
	const quorum = 2 // rate.Config.Quorum
	known := rate.Known()
	for code, markets := range chain.Markets() {
		if len(markets) < quorum {
			t.Errorf("%s: %d sources have a market for it, want at least %d", code, len(markets), quorum)
		}
		for _, source := range slices.Sorted(maps.Keys(markets)) {
			if known[source] == "" {
				t.Errorf("%s: %q is no rate source", code, source)
			}
		}
	}
}

func TestByCode_EachCurrency_IsUnique(t *testing.T) {
	seen := map[string]bool{}
	for code := range chain.Markets() {
		seen[code] = true
	}
	for _, c := range chain.Currencies() {
		coin, known := chain.ByCode(c.Code)
		if !known || coin.Currency != c || !seen[c.Code] {
			t.Errorf("%s: known %t, %+v", c.Code, known, coin.Currency)
		}
		delete(seen, c.Code) // a second coin with the code is not found
	}
}
