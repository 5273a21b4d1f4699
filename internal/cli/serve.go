package cli

import (
	"context"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/chain"
)

type serveCommand struct {
	app.Config `embed:""`
	CoinFlags  coinFlags `embed:""`
}

func (serveCommand) Help() string {
	return `Any number of processes may serve one database: APIs side by side, and workers of which one watches each chain while the others stand by.

Examples:
  cardmint serve --database-url postgres://cardmint@localhost/cardmint \
    --markup 1.5
  cardmint serve ` + chain.Coins()[0].Example + `
  cardmint serve --role api --listen 0.0.0.0:8080
  cardmint serve --simulated --rate ` + chain.Coins()[0].Code + `=152.52`
}

// Run runs the service until ctx ends.
func (c *serveCommand) Run(ctx context.Context, g *globals) (err error) {
	if c.Coins, err = c.CoinFlags.enabled(); err != nil {
		return err
	}
	c.Stdout = g.stdout
	return app.Run(ctx, &g.Deployment, c.Config)
}
