package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/vault"
)

// devPool is how many addresses are kept ahead. Simulated ones cost nothing.
const devPool = 1000

type devCommand struct {
	Listen string `env:"CARDMINT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address to listen on (${default})."`
	Rate   string `env:"CARDMINT_DEV_RATE" default:"150" placeholder:"USD" help:"What one coin of each currency is worth, in US dollars (${default})."`

	Limits   devLimitFlags `embed:""`
	Supplier supplierFlags `embed:""`
}

func (devCommand) Help() string {
	return "The chain is simulated, the cards are not real, and the exchange rate is fixed. The first start creates the key file, an account and a token; the token stays the same. Everything is kept in the database and survives a restart.\n\nExamples:\n  cardmint dev\n  cardmint dev --listen 127.0.0.1:9000 --database-url sqlite:/tmp/try.db --keys /tmp/try.keys"
}

// Run runs the sandbox until ctx ends.
func (c devCommand) Run(ctx context.Context, g *globals) error {
	if !strings.HasPrefix(g.DatabaseURL, "sqlite:") || g.Mode != card.TestMode {
		return hint(errors.New("dev works on SQLite, in test mode"), "for PostgreSQL use: cardmint serve --simulated")
	}
	coins, worth := chain.Currencies(), map[string]string{}
	for _, coin := range coins {
		worth[coin.Code] = c.Rate
	}
	rates, err := rate.NewFixed(worth, time.Now)
	if err != nil {
		return hint(err, "--rate takes US dollars for one coin, for example 152.52")
	}
	made, err := c.Supplier.read(g.Mode)
	if err != nil {
		return err
	}
	listener, err := listen(c.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if err := vault.Create(g.Keys); err != nil && !errors.Is(err, vault.ErrExists) {
		return hint(err, "choose a directory that can be written with --keys")
	}
	v, err := g.openVault()
	if err != nil {
		return err
	}
	return g.run(ctx, v, plan{
		listener: listener, api: true, worker: true, rates: rates, chains: simulated(coins), simulated: true,
		webhooks:  webhookFlags{Insecure: true, Timeout: 15 * time.Second, Retention: defaultRetention},
		suppliers: made, limits: limitFlags(c.Limits), web: webFlags{PublicURL: "http://" + listener.Addr().String()},
		token: func(ctx context.Context, accounts *account.Service) (card.Secret, error) {
			return accounts.DevToken(ctx)
		},
		orders: order.Config{Currencies: coins, CheckAddress: addressChecks(coins, true)}, addresses: addressFlags{Pool: devPool},
		started: func(ctx context.Context, accounts *account.Service, url string) error {
			token, err := accounts.DevToken(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(g.stdout, welcome, url, token.Reveal(), coins[0].Code)
			return err
		},
	})
}

const welcome = `api: %[1]s
token: %[2]s
docs: %[1]s/docs

Create a card, pay for it, read it with its credentials:

  card=$(curl -sS %[1]s/api/cards -H "Authorization: Bearer %[2]s" -H "Content-Type: application/json" -d '{"usd_amount": "150", "currency": "%[3]s"}' | tee /dev/stderr | sed 's/.*"uuid":"\([^"]*\)".*/\1/')

  curl -sS -X POST %[1]s/api/sandbox/cards/$card/payments -H "Authorization: Bearer %[2]s"

  curl -sS %[1]s/api/cards/$card -H "Authorization: Bearer %[2]s"

Have its events sent to your own program:

  CARDMINT_URL=%[1]s CARDMINT_TOKEN=%[2]s cardmint listen --forward-to http://localhost:3000/hook

Stop with Ctrl-C.
`
