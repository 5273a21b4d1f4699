package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
	"github.com/cardmint/cardmint/server"
)

const callbackEvery = 200 * time.Millisecond

type supplierServeCommand struct {
	Listen      string        `name:"listen" default:"127.0.0.1:8090" placeholder:"ADDRESS" help:"Address to listen on (${default})."`
	File        string        `default:"supplier.db" placeholder:"FILE" help:"SQLite file of requests and cards, with the ledger (${default})."`
	Secret      string        `env:"CARDMINT_SUPPLIER_SECRET" placeholder:"SECRET" help:"Secret that requests are signed with: whsec_ and base64. Better set in the environment. Defaults to a new one, which is printed."`
	CallbackURL string        `name:"callback-url" placeholder:"URL" help:"URL to notify when a pending card is made. Defaults to none."`
	Offer       []string      `placeholder:"MIN[-MAX][=LEFT]" help:"Amount, or range of amounts, in US dollars, and how many cards there are. May be repeated. Defaults to 50-750."`
	Be          []string      `placeholder:"RULE" help:"How to behave: a behavior, always or =0.25 (with that probability) or =3x (the next three times). May be repeated. Defaults to well."`
	Seed        uint64        `default:"1" placeholder:"N" help:"The same seed and the same requests make the same draws (${default})."`
	Slowness    time.Duration `default:"2s" placeholder:"DURATION" help:"How long answers take if slow (${default})."`
	PendingFor  time.Duration `name:"pending-for" default:"3s" placeholder:"DURATION" help:"How long cards take if pending (${default})."`
	ForgetAfter time.Duration `name:"forget-after" placeholder:"DURATION" help:"Forget keys after this time. A key that comes again then has a second card made, which the ledger shows. Defaults to never."`
	Control     string        `placeholder:"ADDRESS" help:"Address on this machine of an endpoint that changes the behavior. Defaults to none."`
}

func (supplierServeCommand) Help() string {
	var all []string
	for _, b := range reference.Behaviors() {
		all = append(all, string(b))
	}
	return `A supplier of cards that are not real, which keeps openapi/supplier.yaml. Try your cardmint with it, or compare your own supplier to it.

The same key always yields the same card. Every request, every card and every cancel is in a ledger that can't be changed: see 'supplier ledger'.

Behaviors: ` + strings.Join(all, ", ") + `. With --control, PUT /behaviour takes a JSON list of rules and replaces those in force, GET /behaviour answers them, and GET /ledger answers the ledger.

Examples:
  cardmint supplier serve
  cardmint supplier serve --be pending \
    --callback-url http://127.0.0.1:8080/supplier/acme/callback
  cardmint supplier serve --be ambiguous=0.2 --be slow=3x --seed 7
  cardmint supplier serve --offer 50-200 --offer 500=3
  cardmint supplier serve --control 127.0.0.1:8091
  curl -X PUT http://127.0.0.1:8091/behaviour \
    -d '["out-of-stock", "rate-limited=2x"]'`
}

// config reads the flags.
func (c supplierServeCommand) config(g *globals) (cfg reference.Config, made card.Secret, err error) {
	secret := card.Secret(c.Secret)
	if secret == "" {
		raw := make([]byte, 32)
		_, _ = rand.Read(raw) // never fails
		made = card.Secret("whsec_" + base64.StdEncoding.EncodeToString(raw))
		secret = made
	}
	secrets, err := supplier.ParseSecrets(secret)
	if err != nil {
		return cfg, "", app.WithHint(fmt.Errorf("--secret: %w", err), "leave it out to have one made")
	}
	cfg = reference.Config{File: c.File, Secrets: secrets, Seed: c.Seed, Slowness: c.Slowness, PendingFor: c.PendingFor,
		ForgetAfter: c.ForgetAfter,
		CallbackURL: c.CallbackURL, Log: g.Log}
	for _, text := range c.Be {
		rule, err := reference.ParseRule(text)
		if err != nil {
			return cfg, "", app.WithHint(fmt.Errorf("--be: %w", err),
				"for example --be slow, --be slow=0.25 or --be slow=3x; 'supplier serve --help' lists the behaviors")
		}
		cfg.Rules = append(cfg.Rules, rule)
	}
	for _, text := range c.Offer {
		offer, err := parseOffer(text)
		if err != nil {
			return cfg, "", app.WithHint(fmt.Errorf("--offer: %q %w", text, err),
				"for example --offer 100, --offer 50-200 or --offer 100=5")
		}
		cfg.Offers = append(cfg.Offers, offer)
	}
	if c.Slowness < 0 || c.PendingFor < 0 || c.ForgetAfter < 0 {
		return cfg, "", app.WithHint(errors.New("a duration is negative"),
			"--slowness, --pending-for and --forget-after take durations such as 3s")
	}
	if to, err := url.Parse(c.CallbackURL); c.CallbackURL != "" &&
		(err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https") {
		return cfg, "", app.WithHint(errors.New("--callback-url is not an address"),
			"it is something like http://127.0.0.1:8080/supplier/acme/callback")
	}
	return cfg, made, nil
}

// parseOffer reads 100, 50-200 or 100=5.
func parseOffer(text string) (o card.Offer, err error) {
	amounts, left, counted := strings.Cut(text, "=")
	least, most, ranged := strings.Cut(amounts, "-")
	if !ranged {
		most = least
	}
	if o.Min, err = card.ParseUSD(least); err != nil {
		return o, err
	}
	if o.Max, err = card.ParseUSD(most); err != nil {
		return o, err
	}
	if o.Left = card.Unlimited; counted {
		n, err := strconv.ParseUint(left, 10, 31)
		if err != nil {
			return o, errors.New("must have a number of cards after =")
		}
		o.Left = int64(n)
	}
	if o.Min > o.Max {
		return o, errors.New("must have the smaller amount first")
	}
	return o, nil
}

// Run runs the supplier until ctx ends.
func (c supplierServeCommand) Run(ctx context.Context, g *globals) error {
	cfg, made, err := c.config(g)
	if err != nil {
		return err
	}
	listener, err := app.Listen(c.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	control, err := c.listenControl()
	if err != nil {
		return err
	}
	if control != nil {
		defer func() { _ = control.Close() }()
	}
	s, err := reference.Open(cfg)
	if err != nil {
		return app.WithHint(err, "--file takes a file of this command, in a directory that can be written to")
	}
	defer func() { _ = s.Close() }()
	fmt.Fprintf(g.stdout, "supplier: http://%s\n", listener.Addr())
	if made != "" {
		fmt.Fprintf(g.stdout, "secret: %s\n", made.Reveal())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(ctx, listener, s, g.Log, app.ShutdownGrace) })
	if control != nil {
		fmt.Fprintf(g.stdout, "control: http://%s\n", control.Addr())
		group.Go(func() error { return server.Serve(ctx, control, s.Control(), g.Log, app.ShutdownGrace) })
	}
	if c.CallbackURL != "" {
		group.Go(func() error {
			app.Repeat(ctx, g.Log, "callbacks", callbackEvery, s.Tick)
			return nil
		})
	}
	return group.Wait()
}

// listenControl opens the listener that changes the behavior, or returns nil.
func (c supplierServeCommand) listenControl() (net.Listener, error) {
	if c.Control == "" {
		return nil, nil
	}
	const example = "it takes an address on this machine, such as 127.0.0.1:8091"
	host, _, err := net.SplitHostPort(c.Control)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, app.WithHint(errors.New("--control: must be a loopback address and a port"), example)
	}
	listener, err := net.Listen("tcp", c.Control)
	return listener, app.WithHint(err, example)
}

type supplierLedgerCommand struct {
	output `embed:""`

	File string `arg:"" help:"File of 'supplier serve'."`
}

func (supplierLedgerCommand) Help() string {
	return `Every request, every card that was made and every cancel, oldest first. Card numbers are masked. It works while the supplier runs.

A key with two cards means that it was asked for again after it was forgotten.

Example:
  cardmint supplier ledger supplier.db` + jsonHelp([]ledgerJSON{})
}

// ledgerJSON is an entry of the ledger.
type ledgerJSON struct {
	ID        int64    `json:"id"`
	At        instant  `json:"at"`
	What      string   `json:"what"`
	Key       string   `json:"key"`
	USDAmount card.USD `json:"usd_amount"`
	Number    optional `json:"number"`
	Detail    optional `json:"detail"`
}

// Run prints the ledger.
func (c supplierLedgerCommand) Run(ctx context.Context, g *globals) error {
	all, err := reference.ReadLedger(ctx, c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return app.WithHint(fmt.Errorf("%s does not exist", c.File), "name the --file of 'cardmint supplier serve'")
	}
	if err != nil {
		return app.WithHint(err, "name the --file of 'cardmint supplier serve'")
	}
	entries, keys, cards := []ledgerJSON{}, map[string]bool{}, 0
	for _, e := range all {
		entries = append(entries,
			ledgerJSON{e.ID, instant{e.At}, e.What, e.Key, e.USD, optional(e.Number), optional(e.Detail)})
		if e.What == reference.Made {
			keys[e.Key] = true
			cards++
		}
	}
	err = c.write(g, entries, func(table io.Writer) {
		fmt.Fprintln(table, "ID\tAT\tWHAT\tKEY\tUSD\tNUMBER\tDETAIL")
		for _, e := range all {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.At.Format(time.RFC3339), e.What, e.Key, e.USD, e.Number,
				e.Detail)
		}
	})
	if err == nil && !c.JSON {
		_, err = fmt.Fprintf(g.stdout, "%d cards for %d keys\n", cards, len(keys))
	}
	return err
}
