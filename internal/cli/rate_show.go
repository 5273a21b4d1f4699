package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rate"
)

type rateShowCommand struct {
	output `embed:""`

	Coins []string           `arg:"" optional:"" default:"${default_coin}" help:"Codes of currencies (${default})."`
	Flags app.LiveRateConfig `embed:""`
}

func (rateShowCommand) Help() string {
	var sources []string
	for code, names := range chain.Markets() {
		sources = append(sources, "\n  "+code+": "+strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	slices.Sort(sources)
	return "Asks every source once and prints the resulting rates, the last accepted rate of each coin with its process or operator, and the rates that wait for an operator. Nothing is changed. The sources with a market are, for" + strings.Join(sources, "") +
		"\n\nExamples:\n  cardmint rate show\n  cardmint rate show " +
		strings.Join(slices.Sorted(maps.Keys(chain.Markets())), " ") + " --rate-max-spread 1" + jsonHelp([]coinRateJSON{})
}

// coinRateJSON has the rates of a coin. Unknown parts are null.
type coinRateJSON struct {
	Currency string        `json:"currency"`
	Rate     *rateJSON     `json:"rate"`
	Accepted *acceptedJSON `json:"accepted"`
	Waiting  []parkedJSON  `json:"waiting"`
}

type acceptedJSON struct {
	USD    card.Decimal `json:"usd"`
	At     instant      `json:"at"`
	Source string       `json:"source"`
	By     string       `json:"by"`
	Note   optional     `json:"note"`
}

type parkedJSON struct {
	USD   card.Decimal `json:"usd"`
	Since instant      `json:"since"`
	By    string       `json:"by"`
	Why   string       `json:"why"`
}

// known returns the rates in JSON.
func (c rateShowCommand) known(live *rate.Live, known *storedRates) []coinRateJSON {
	all := []coinRateJSON{}
	for _, coin := range c.Coins {
		one := coinRateJSON{Currency: coin, Waiting: []parkedJSON{}}
		if r, err := live.Rate(coin); err == nil {
			one.Rate = &rateJSON{r.USD, instant{r.At}, r.Source}
		}
		if last, ok := known.last(coin); ok {
			one.Accepted = &acceptedJSON{last.USD, instant{last.At}, last.Source, last.By, optional(last.Note)}
		}
		for _, p := range known.waiting(coin) {
			one.Waiting = append(one.Waiting, parkedJSON{p.USD, instant{p.Since}, p.By, p.Why})
		}
		all = append(all, one)
	}
	return all
}

// Run fetches the rates of all sources.
func (c rateShowCommand) Run(ctx context.Context, g *globals) error {
	live, err := c.Flags.Open(g.Log, c.Coins)
	if err != nil {
		return err
	}
	known, err := g.storedRates(ctx, c.Coins)
	if err != nil {
		fmt.Fprintln(g.stderr, "accepted rates can't be read, so new rates are compared with nothing:", err)
	}
	live.UseBook(known, app.ProcessName())
	fmt.Fprintln(g.stderr, "asking", strings.Join(live.Sources(), ", "), "...")
	failed := errors.Join(live.Follow(ctx), live.Tick(ctx))
	advice := "leave a source out with --rate-sources, or move a bound: cardmint rate show --help"
	for _, coin := range c.Coins {
		if len(known.waiting(coin)) > 0 {
			advice = "no card is sold for it: look at the market, then run: cardmint rate accept " + coin + ` --note "..."`
		}
	}
	if err := c.write(g, c.known(live, known), func(table io.Writer) { c.print(table, live, known) }); err != nil {
		return err
	}
	return app.WithHint(failed, "%s", advice)
}

func (c rateShowCommand) print(table io.Writer, live *rate.Live, known *storedRates) {
	for _, coin := range c.Coins {
		if r, err := live.Rate(coin); err == nil {
			fmt.Fprintf(table, "%s\t%s USD\t%s\t%s\n", coin, r.USD, formatTime(&r.At), r.Source)
		}
		if last, ok := known.last(coin); ok {
			fmt.Fprintf(table, "%s\taccepted: %s USD\t%s\tby %s: %s %s\n", coin, last.USD, formatTime(&last.At),
				oneLine(last.By),
				last.Source, oneLine(last.Note))
		}
		for _, p := range known.waiting(coin) {
			fmt.Fprintf(table, "%s\twaits for an operator: %s USD\t%s\tat %s: %s\n", coin, p.USD, formatTime(&p.Since),
				oneLine(p.By),
				p.Why)
		}
	}
}

// storedRates is a read-only snapshot of the rates in the database. It
// implements rate.Book.
type storedRates struct {
	accepted []card.AcceptedRate
	parked   []card.ParkedRate
}

// storedRates reads the rates of currencies. On an error, the rates are empty.
func (g *globals) storedRates(ctx context.Context, currencies []string) (*storedRates, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := g.OpenStore(ctx, 1)
	if err != nil {
		return &storedRates{}, err
	}
	defer func() { _ = db.Close() }()
	var all storedRates
	if all.accepted, err = db.AcceptedRates(ctx, currencies, time.Hour); err != nil {
		return &storedRates{}, err
	}
	all.parked, err = db.ParkedRates(ctx)
	return &all, err
}

// AcceptedRates implements rate.Book.
func (b *storedRates) AcceptedRates(context.Context, []string, time.Duration) ([]card.AcceptedRate, error) {
	return b.accepted, nil
}

// InsertAcceptedRates implements rate.Book.
func (b *storedRates) InsertAcceptedRates(context.Context, []card.AcceptedRate, time.Duration) error {
	return nil
}

// SaveParkedRates implements rate.Book.
func (b *storedRates) SaveParkedRates(context.Context, string, []card.ParkedRate) error { return nil }

// last returns the last accepted rate of a currency, if there is one.
func (b *storedRates) last(currency string) (card.AcceptedRate, bool) {
	for _, r := range slices.Backward(b.accepted) {
		if r.Currency == currency {
			return r, true
		}
	}
	return card.AcceptedRate{}, false
}

// waiting returns the parked rates of a currency, last seen first.
func (b *storedRates) waiting(currency string) []card.ParkedRate {
	return slices.DeleteFunc(slices.Clone(b.parked), func(p card.ParkedRate) bool { return p.Currency != currency })
}
