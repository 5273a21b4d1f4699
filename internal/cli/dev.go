package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	Listen  string `env:"CARDMINT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address to listen on (${default})."`
	Metrics string `name:"metrics-listen" env:"CARDMINT_METRICS_LISTEN" default:"off" placeholder:"ADDRESS" help:"Address to serve metrics for Prometheus on, at /metrics, for example 127.0.0.1:9464 (${default})."`
	Rate    string `env:"CARDMINT_DEV_RATE" default:"150" placeholder:"USD" help:"What one coin of each currency is worth, in US dollars (${default})."`
	Demo    bool   `name:"seed-demo" help:"Make a card in every state that a payment can be in. Does nothing if the database has cards already."`
	Open    bool   `help:"Open the documentation of the API in a browser, when standard output is a terminal."`

	Limits   devLimitFlags `embed:""`
	Supplier supplierFlags `embed:""`
	Tracing  tracingFlags  `embed:""`
}

func (devCommand) Help() string {
	return "The chain is simulated, the cards are not real, and the exchange rate is fixed. The first start creates the key file, an account and a token; the token stays the same. Everything is kept in the database and survives a restart. What it prints can be pasted into a second terminal.\n\nExamples:\n  cardmint dev\n  cardmint dev --seed-demo --open\n  cardmint dev --listen 127.0.0.1:9000 --database-url sqlite:/tmp/try.db --keys /tmp/try.keys"
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
	listener, metering, err := g.listenAll(c.Listen, c.Metrics)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if err := vault.Create(g.Keys); err != nil && !errors.Is(err, vault.ErrExists) {
		return hint(err, "choose a directory that can be written with --keys")
	}
	v, err := g.openVault(ctx)
	if err != nil {
		return err
	}
	return g.run(ctx, v, plan{
		listener: listener, metrics: metering, api: true, worker: true, rates: rates, chains: simulatedChains(coins),
		simulated: true,
		webhooks:  webhookFlags{Insecure: true, Unlimited: true, Timeout: 15 * time.Second, Retention: defaultRetention},
		suppliers: made, tracing: c.Tracing, limits: limitFlags(c.Limits),
		web: webFlags{PublicURL: "http://" + listener.Addr().String()},
		token: func(ctx context.Context, accounts *account.Service) (card.Secret, error) {
			return accounts.DevToken(ctx)
		},
		orders:    order.Config{Currencies: coins, CheckAddress: addressChecks(coins, true)},
		addresses: addressFlags{Pool: devPool},
		started:   func(ctx context.Context, r running) error { return c.welcome(ctx, g, r, coins[0]) },
	})
}

// welcome prints what to do with the service that runs, after the cards of the
// demonstration are there.
func (c devCommand) welcome(ctx context.Context, g *globals, r running, coin card.Currency) error {
	token, err := r.accounts.DevToken(ctx)
	if err != nil {
		return err
	}
	if c.Demo {
		if err := c.seedDemo(ctx, g, r, token, coin); err != nil {
			return hint(fmt.Errorf("--seed-demo: %w", err),
				"try it with a database of its own: cardmint dev --seed-demo --database-url sqlite:/tmp/demo.db --keys /tmp/demo.keys")
		}
	}
	program, where := self()
	if _, err := fmt.Fprintf(g.stdout, welcome, r.url, token.Reveal(), coin.Code, program, where); err != nil {
		return err
	}
	if c.Open && isTerminal(g.stdout) {
		if err := browse(ctx, r.url+"/docs"); err != nil {
			fmt.Fprintf(g.stderr, "no browser could be opened (%v): open %s/docs yourself\n", err, r.url)
		}
	}
	return nil
}

// self returns what a shell can run this program by, and which directory it
// must be in; "" for any.
func self() (program, where string) {
	path, err := os.Executable()
	switch {
	case !strings.ContainsRune(os.Args[0], filepath.Separator): // found by the shell
		return os.Args[0], ""
	case err != nil:
		return "cardmint", ""
	// which go run deletes at the end
	case filepath.Base(filepath.Dir(path)) == "exe" && strings.Contains(path, "go-build"):
		return "go run ./cmd/cardmint", " in this directory"
	case plain.MatchString(path):
		return path, ""
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'", ""
}

// browse opens a page in the user's browser.
func browse(ctx context.Context, url string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	return exec.CommandContext(ctx, opener, url).Start()
}

// What it prints is read by programs too: api and token keep lines of their
// own.
const welcome = `api: %[1]s
token: %[2]s
docs: %[1]s/docs

This terminal is in use now. Open a second one%[5]s and paste into it, first of all:

  export CARDMINT_URL=%[1]s CARDMINT_TOKEN=%[2]s

Create a card, pay for it, read it with its credentials:

  card=$(curl -sS "$CARDMINT_URL/api/cards" -H "Authorization: Bearer $CARDMINT_TOKEN" -H "Content-Type: application/json" -d '{"usd_amount": "150", "currency": "%[3]s"}' | tee /dev/stderr | sed 's/.*"uuid":"\([^"]*\)".*/\1/')

  curl -sS -X POST "$CARDMINT_URL/api/sandbox/cards/$card/payments" -H "Authorization: Bearer $CARDMINT_TOKEN"

  curl -sS "$CARDMINT_URL/api/cards/$card" -H "Authorization: Bearer $CARDMINT_TOKEN"

See its events as they come, or have them sent to a program of your own:

  %[4]s listen --after 0

  %[4]s listen --forward-to localhost:3000/hook

Stop with Ctrl-C.
`
