package rate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Source says what coins are worth.
type Source interface {
	// Name is one word, different from the other sources'.
	Name() string
	// Fetch returns a quote for each of coins that the source has a market for, and must return when ctx ends. An error means that
	// there is none at all; what is wrong with a single quote is in its Err.
	Fetch(ctx context.Context, coins []string) (map[string]Quote, error)
}

// Quote is what one source says that one whole coin is worth.
type Quote struct {
	USD card.Decimal // Scale is card.RateScale
	At  time.Time    // by the source's own clock
	Err error        // why there is no quote after all
}

// Why a source is dropped.
var (
	errImplausible  = errors.New("quote is not a plain number of " + believed)
	errNoMarket     = errors.New("has no market for it")
	errNoQuote      = errors.New("answer has no quote for it")
	errNoTime       = errors.New("quote has no time")
	errTwoQuotes    = errors.New("answer has several quotes for it")
	errUndocumented = errors.New("answer is not what the source documents")
)

// believed is what any coin may be worth.
const believed = "0.01 to 100000000 US dollars"

// plausible reports whether a decimal at the scale of rates is believed.
func plausible(usd card.Decimal) bool {
	const dollar = 100_000_000 // in units of 10^-8
	return usd.Scale == card.RateScale && usd.Units >= dollar/100 && usd.Units <= 100_000_000*dollar
}

// newQuote reads a source's own text for a price.
func newQuote(price text, at time.Time) Quote {
	whole, fraction, point := strings.Cut(string(price), ".")
	if point && fraction == "" || strings.Trim(fraction, "0123456789") != "" {
		return Quote{Err: errImplausible}
	}
	// Decimals that a rate has no room for are cut, which rounds down.
	fraction = (fraction + strings.Repeat("0", card.RateScale))[:card.RateScale]
	usd, err := card.ParseDecimal(whole+"."+fraction, card.RateScale)
	if err != nil || !plausible(usd) {
		return Quote{Err: errImplausible}
	}
	return Quote{USD: usd, At: at}
}

// text is a number as its source wrote it, bare or as a string. Whatever else is in its place becomes a text that is no number, so
// that a bad value spoils its own quote only.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	*t = text(bytes.Trim(raw, `"`))
	return nil
}

// definition is how a source is made.
type definition struct {
	name, url string
	open      func(site) Source
}

// known is every source there is, by name. A further one is a file of its own and a line here.
func known() []definition {
	return []definition{
		{"bitfinex", "https://api-pub.bitfinex.com", newBitfinex},
		{"coinbase", "https://api.exchange.coinbase.com", newCoinbase},
		{"coingecko", "https://api.coingecko.com", newCoinGecko},
		{"kraken", "https://api.kraken.com", newKraken},
	}
}

// Known returns the names of all sources, each with the address it is asked at.
func Known() map[string]string {
	addresses := map[string]string{}
	for _, k := range known() {
		addresses[k.name] = k.url
	}
	return addresses
}

// Sources returns the sources of these names, or all if there are none. A source is asked at its entry in urls, if it has one, such as
// a mirror's: https, or http on this machine. markets are what the sources call the markets of coins, by the currency's code and the
// source's name.
func Sources(names []string, urls map[string]string, markets map[string]map[string]string) ([]Source, error) {
	addresses := Known()
	all := make([]string, 0, len(addresses))
	for _, k := range known() {
		all = append(all, k.name)
	}
	if len(names) == 0 {
		names = all
	}
	for i, name := range names {
		switch {
		case !slices.Contains(all, name):
			return nil, fmt.Errorf("rate source %q is not known, only %s", name, strings.Join(all, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("rate source %s is there twice", name)
		}
	}
	for name, address := range urls {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("rate source %q has an address but is not used", name)
		}
		if err := checkURL(address); err != nil {
			return nil, fmt.Errorf("rate source %s: %w", name, err)
		}
		addresses[name] = address
	}
	client := newClient()
	var sources []Source
	for _, k := range known() {
		if slices.Contains(names, k.name) {
			sources = append(sources, k.open(site{name: k.name, base: strings.TrimSuffix(addresses[k.name], "/"), client: client, markets: at(k.name, markets)}))
		}
	}
	return sources, nil
}

// at returns the markets of one source, by the currency's code.
func at(source string, markets map[string]map[string]string) map[string]string {
	here := map[string]string{}
	for coin, names := range markets {
		if name, has := names[source]; has {
			here[coin] = name
		}
	}
	return here
}

// checkURL keeps rates from being read over a line on which anybody could change them. Errors don't repeat the address.
func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("address must be such as https://example.com, without a login or a query")
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()), u.Scheme == "https":
		return nil
	}
	return errors.New("address must begin with https://")
}

// site is what all sources are made of.
type site struct {
	name    string
	base    string // of its addresses, without a slash at the end
	client  *http.Client
	markets map[string]string // what it calls the markets of coins against US dollars, by the currency's code
}

// Name implements Source.
func (s site) Name() string { return s.name }

// each returns what quote says of every market that coins have here.
func (s site) each(coins []string, quote func(market string) Quote) map[string]Quote {
	quotes := map[string]Quote{}
	for _, coin := range coins {
		if market, has := s.markets[coin]; has {
			quotes[coin] = quote(market)
		}
	}
	return quotes
}

// list returns the markets that coins have here, joined by commas.
func (s site) list(coins []string) string {
	var markets []string
	for _, coin := range coins {
		if market, has := s.markets[coin]; has {
			markets = append(markets, market)
		}
	}
	return strings.Join(markets, ",")
}
