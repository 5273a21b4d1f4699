package app

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/driver"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
)

// SimulatedPool is the number of free addresses to keep of a simulated chain,
// where they cost nothing.
const SimulatedPool = 1000

// chainRunner is a chain and how it is watched.
type chainRunner struct {
	chain     settle.Chain
	every     time.Duration
	fillBatch int
	wallet    bool // has its own wallet, outside the database
}

func currencies(coins []Coin) []card.Currency {
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

// openNodes opens the nodes of the coins, and returns a function that closes
// them. It returns an error if a node or wallet can never be used. One that
// does not answer yet is no error: the watcher retries, and readiness reports
// it.
func (p *process) openNodes(ctx context.Context) (end func(), err error) {
	var open []driver.Node
	end = func() {
		for _, n := range open {
			n.Close()
		}
	}
	for _, c := range p.cfg.Coins {
		n, err := c.Settings.Open()
		if err != nil {
			end()
			return nil, err
		}
		open = append(open, n)
		report, err := n.Check(ctx)
		for _, row := range report {
			if row.Name == driver.Warning {
				p.Log.Warn(row.Text, "currency", c.Code)
			}
		}
		switch {
		case errors.Is(err, driver.ErrUnfit):
			end()
			return nil, err
		case err != nil:
			p.Log.Warn("node or wallet does not answer yet, or is not ready", "currency", c.Code, "error", err)
		}
		p.chains = append(p.chains, chainRunner{chain: n, every: c.Every, wallet: true})
	}
	return end, nil
}

// simulateChains simulates the chains of the coins in the database.
func (p *process) simulateChains() {
	p.sandbox = map[string]order.Sandbox{}
	for _, coin := range p.cfg.Coins {
		c := simulated.New(coin.Currency, p.dbs.worker, time.Now)
		p.chains = append(p.chains, chainRunner{chain: c, every: time.Second, fillBatch: SimulatedPool})
		p.sandbox[coin.Code] = c
	}
}
