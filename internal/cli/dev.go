package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
)

type devCommand struct {
	Listen  string `env:"CARDMINT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address to listen on (${default})."`
	Metrics string `name:"metrics-listen" env:"CARDMINT_METRICS_LISTEN" default:"off" placeholder:"ADDRESS" help:"Address to serve metrics for Prometheus on, at /metrics, for example 127.0.0.1:9464 (${default})."`
	Rate    string `env:"CARDMINT_DEV_RATE" default:"150" placeholder:"USD" help:"What one coin of each currency is worth, in US dollars (${default})."`
	Demo    bool   `name:"seed-demo" help:"Create a card in each of the nine states of a payment, unless the database has cards already."`
	Open    bool   `help:"Open the documentation of the API in a browser, when standard output is a terminal."`

	Limits   devLimitFlags      `embed:""`
	Supplier app.SupplierConfig `embed:""`
	Tracing  app.TracingConfig  `embed:""`
}

func (devCommand) Help() string {
	return `The chain is simulated, the cards are not real, and the exchange rate is fixed. The first start creates the key file, an account and a token; the token stays the same. Everything is kept in the database and survives a restart.

While it runs, 'card create', 'card pay', 'card watch', 'listen' and 'trigger' of the same user find its address and token in the file cardmint/dev.json of $XDG_STATE_HOME or ~/.local/state. The log begins once it has started; --log-level debug shows the start too.

Examples:
  cardmint dev
  cardmint dev --seed-demo --open
  cardmint dev --listen 127.0.0.1:9000 --database-url sqlite:try.db`
}

// Run runs the sandbox until ctx ends.
func (c devCommand) Run(ctx context.Context, g *globals) error {
	if !strings.HasPrefix(g.DatabaseURL, "sqlite:") || g.Mode != card.TestMode {
		return app.WithHint(errors.New("dev works on SQLite, in test mode"), "for PostgreSQL use: cardmint serve --simulated")
	}
	var coins []app.Coin
	worth := map[string]string{}
	for _, coin := range chain.Coins() {
		coins, worth[coin.Code] = append(coins, app.Coin{Coin: coin}), c.Rate
	}
	if _, err := rate.NewFixed(worth, time.Now); err != nil {
		return app.WithHint(err, "--rate takes US dollars for one coin, for example 152.52")
	}
	removeState := func() {}
	defer func() { removeState() }()
	return app.Run(ctx, &g.Deployment, app.Config{Listen: c.Listen, Metrics: c.Metrics, Role: app.RoleAll,
		Simulated: true, Rates: app.RateConfig{Rate: worth, Markup: "0"}, MaxBlind: 15 * time.Minute,
		Addresses: app.AddressConfig{Pool: app.SimulatedPool}, Limits: app.LimitConfig(c.Limits), Supplier: c.Supplier,
		Webhooks: app.WebhookConfig{Insecure: true, Timeout: 15 * time.Second, Retention: 30 * 24 * time.Hour},
		Tracing:  c.Tracing, Coins: coins, Dev: true,
		Started: func(ctx context.Context, r app.Running) (err error) {
			removeState, err = c.started(ctx, g, r, coins[0].Currency)
			return err
		}})
}

// devLimitFlags are the flags of app.LimitConfig, but without limits by
// default.
type devLimitFlags struct {
	Token   limit.Policy   `name:"limit-token" env:"CARDMINT_LIMIT_TOKEN" default:"off" placeholder:"LIMIT" help:"How many requests a token may send, for example 1000/10s (${default})."`
	Account limit.Policy   `name:"limit-account" env:"CARDMINT_LIMIT_ACCOUNT" default:"off" placeholder:"LIMIT" help:"How many requests all tokens of an account may send (${default})."`
	Create  limit.Policy   `name:"limit-create" env:"CARDMINT_LIMIT_CREATE" default:"off" placeholder:"LIMIT" help:"How many cards an account may create (${default})."`
	Address limit.Policy   `name:"limit-address" env:"CARDMINT_LIMIT_ADDRESS" default:"off" placeholder:"LIMIT" help:"How many requests without a valid token an address may send (${default})."`
	Proxies []netip.Prefix `name:"trusted-proxies" env:"CARDMINT_TRUSTED_PROXIES" placeholder:"CIDR" help:"Networks of reverse proxies whose X-Forwarded-For is trusted."`
}

// started creates the cards of --seed-demo, prints how to use the service, and
// starts the log. It returns the function that removes the state that other
// commands read.
func (c devCommand) started(ctx context.Context, g *globals, r app.Running, coin card.Currency) (func(), error) {
	nothing := func() {}
	token, err := r.Accounts.DevToken(ctx)
	if err != nil {
		return nothing, err
	}
	var seeded string
	if c.Demo {
		if seeded, err = seedDemo(ctx, r, token, coin); err != nil {
			return nothing, app.WithHint(fmt.Errorf("--seed-demo: %w", err),
				"try it with a database of its own: cardmint dev --seed-demo --database-url sqlite:demo.db --keys demo.keys")
		}
	}
	state := devState{URL: r.URL, Token: token.Reveal(), PID: os.Getpid()}
	remove, unwritten := state.write()
	if unwritten != nil {
		remove = nothing
	}
	if err := printWelcome(g.stdout, state, unwritten == nil, seeded); err != nil {
		return remove, err
	}
	if c.Open && isTerminal(g.stdout) {
		if err := browse(ctx, r.URL+"/docs"); err != nil {
			fmt.Fprintf(g.stderr, "no browser could be opened (%v): open %s/docs yourself\n", err, r.URL)
		}
	}
	g.startLog()
	return remove, nil
}

// Programs parse this text: api, token and docs have their own lines.
const welcome = `api: %[1]s
token: %[2]s
docs: %[1]s/docs
%[3]s
cardmint runs with simulated money. Try it in a second terminal%[4]s:

%[5]s  %[6]s card create 150
  %[6]s card pay
  %[6]s listen --after 0

%[7]sCtrl-C stops it.

`

// exports are the commands that prepare a shell for programs.
const exports = "  export CARDMINT_URL=%[1]s\n  export CARDMINT_TOKEN=%[2]s\n"

// printWelcome prints how to use the service. found reports whether other
// commands find its address and token by themselves.
func printWelcome(w io.Writer, s devState, found bool, seeded string) error {
	program, where := self()
	first, later := "", fmt.Sprintf(exports, s.URL, s.Token)
	if found {
		later = "For curl and programs of your own:\n\n" + later + "\n"
	} else {
		first, later = later, ""
	}
	_, err := fmt.Fprintf(w, welcome, s.URL, s.Token, seeded, where, first, program, later)
	return err
}

// self returns the command that runs this program in a shell, and the phrase
// that names its working directory, or "" for any directory.
func self() (program, where string) {
	const here = " in this directory"
	path, err := os.Executable()
	switch {
	case !strings.ContainsRune(os.Args[0], filepath.Separator): // found by the shell
		return os.Args[0], ""
	case err != nil:
		return "cardmint", ""
	// go run deletes the binary when it ends
	case filepath.Base(filepath.Dir(path)) == "exe" && strings.Contains(path, "go-build"):
		return "go run -tags nomsgpack ./cmd/cardmint", here
	case !filepath.IsAbs(os.Args[0]) && plain.MatchString(os.Args[0]):
		return os.Args[0], here
	case plain.MatchString(path):
		return path, ""
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'", ""
}

// programName returns the command that runs this program in a shell.
func programName() string {
	program, _ := self()
	return program
}

// browse opens a page in the user's browser.
func browse(ctx context.Context, url string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	return exec.CommandContext(ctx, opener, url).Start()
}

// demo creates the cards of --seed-demo, through the API where possible.
type demo struct {
	api    *client.Client
	db     *store.Store
	coin   card.Currency
	unpaid uuid.UUID // the card that old ones are copied from
}

const (
	demoPatience = 15 * time.Second // for a card to reach its state
	demoAge      = 2 * time.Hour    // of a card whose quote has expired
)

// seedDemo creates a card in every state, unless the database has cards. It
// returns a text about them.
func seedDemo(ctx context.Context, r app.Running, token card.Secret, coin card.Currency) (string, error) {
	cards, err := r.Store.FindCards(ctx, operator.Search{Limit: 1})
	if err != nil {
		return "", err
	}
	if len(cards) > 0 {
		return "\n--seed-demo created no cards, because the database has cards already.\n", nil
	}
	api, err := client.New(r.URL, token.Reveal())
	if err != nil {
		return "", err
	}
	d := &demo{api: api, db: r.Store, coin: coin}
	required := coin.Confirmations
	text := "\nA card in every state:\n\n"
	// Each payment extends the chain. The reorganization comes first, and the
	// payments with few confirmations last.
	for _, step := range []struct {
		to   card.PaymentState
		make func() (uuid.UUID, error)
	}{
		{card.Unpaid, func() (uuid.UUID, error) { return d.unpaid, d.order(ctx, &d.unpaid) }},
		{card.Reversed, func() (uuid.UUID, error) { return d.reversed(ctx) }},
		{card.Paid, func() (uuid.UUID, error) { return d.paying(ctx, "1", required) }},
		{card.Canceled, func() (uuid.UUID, error) { return d.canceled(ctx) }},
		{card.Expired, func() (uuid.UUID, error) { return d.old(ctx) }},
		{card.Late, func() (uuid.UUID, error) { return d.late(ctx) }},
		{card.Underpaid, func() (uuid.UUID, error) { return d.paying(ctx, "0.5", required) }},
		{card.Confirming, func() (uuid.UUID, error) { return d.paying(ctx, "1", 1) }},
		{card.Detected, func() (uuid.UUID, error) { return d.paying(ctx, "1", 0) }},
	} {
		id, err := step.make()
		if err != nil {
			return "", fmt.Errorf("%s: %w", step.to, err)
		}
		made, err := d.await(ctx, id, step.to)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("  %s  %-10s  %s\n", id, made.State, made.Status)
	}
	return text, nil
}

func (d *demo) order(ctx context.Context, id *uuid.UUID) error {
	c, err := d.api.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: d.coin.Code})
	if err == nil {
		*id = c.UUID
	}
	return err
}

// paying orders a card and pays a share of its price.
func (d *demo) paying(ctx context.Context, share string, confirmations int) (id uuid.UUID, err error) {
	if err := d.order(ctx, &id); err != nil {
		return id, err
	}
	return id, d.pay(ctx, id, share, confirmations)
}

func (d *demo) pay(ctx context.Context, id uuid.UUID, share string, confirmations int) error {
	c, err := d.api.GetCard(ctx, id)
	if err != nil {
		return err
	}
	confirmed := int32(confirmations)
	return payShare(ctx, d.api, c, int32(d.coin.Decimals), share, &confirmed)
}

// await waits until a card is in a state and, if paid, issued.
func (d *demo) await(ctx context.Context, id uuid.UUID, want card.PaymentState) (*card.Card, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("card %s did not become %s in time", id, want))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		r, err := d.db.CardDetail(ctx, id) // the log would name every request to the API
		if err == nil && r.Card.State == want && (want != card.Paid || r.Card.Status == card.Generated) {
			return r.Card, nil
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reversed issues a card, and removes its payment from the chain.
func (d *demo) reversed(ctx context.Context) (uuid.UUID, error) {
	id, err := d.paying(ctx, "1", d.coin.Confirmations)
	if err != nil {
		return id, err
	}
	if _, err := d.await(ctx, id, card.Paid); err != nil {
		return id, err
	}
	return id, d.db.SimulatedReorg(ctx, d.coin.Code, d.coin.Confirmations, true)
}

// canceled orders a card and cancels it.
func (d *demo) canceled(ctx context.Context) (id uuid.UUID, err error) {
	if err := d.order(ctx, &id); err != nil {
		return id, err
	}
	_, err = d.api.CancelCard(ctx, id)
	return id, err
}

// late pays half of the price after the quote has expired. The full price would
// still buy the card.
func (d *demo) late(ctx context.Context) (uuid.UUID, error) {
	id, err := d.old(ctx)
	if err != nil {
		return id, err
	}
	return id, d.pay(ctx, id, "0.5", d.coin.Confirmations)
}

// old stores a copy of the unpaid card with an older creation time, which the
// API can't do.
func (d *demo) old(ctx context.Context) (id uuid.UUID, err error) {
	r, err := d.db.CardDetail(ctx, d.unpaid)
	if err != nil {
		return id, err
	}
	addresses, err := d.db.TakeAddresses(ctx, d.coin.Code, 1)
	if err != nil {
		return id, err
	}
	if len(addresses) == 0 {
		return id, errors.New("no address is free")
	}
	c := r.Card
	id = aged(demoAge)
	c.UUID, c.CreatedAt, c.IdempotencyKey, c.RequestHash = id, card.TimeOf(id), "", nil
	c.ExpiresAt, c.Rate.At, c.Address = c.ExpiresAt.Add(-demoAge), c.Rate.At.Add(-demoAge), addresses[0]
	stored, err := d.db.InsertCard(ctx, c, 0)
	if err == nil && !stored {
		err = errors.New("the address is taken")
	}
	return id, err
}

// aged returns a UUID version 7 whose time is in the past by the given
// duration.
func aged(by time.Duration) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(time.Now().Add(-by).UnixMilli()))
	copy(id[:6], millis[2:])
	return id
}
