package rate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Source quotes what coins are worth.
type Source interface {
	// Name returns one word that no other source has.
	Name() string
	// Serves reports whether the source has a market for a coin.
	Serves(coin string) bool
	// Fetch returns a quote for each of the coins, all of which it serves. It
	// must return when ctx ends. An error means that there are no quotes at
	// all; if a single quote fails, that quote's Err says why.
	Fetch(ctx context.Context, coins []string) (map[string]Quote, error)
}

// Quote is what one whole coin is worth, according to one source.
type Quote struct {
	USD card.Decimal // Scale is card.RateScale
	At  time.Time    // by the source's own clock
	Err error        // if not nil, there is no quote, and USD and At are not set
}

// Why a source is dropped.
var (
	errImplausible  = errors.New("quote is not a plain number of " + believed)
	errNoQuote      = errors.New("answer has no quote for it")
	errNoTime       = errors.New("quote has no time")
	errUndocumented = errors.New("answer is not what the source documents")
)

// believed is the range of plausible rates.
const believed = "0.01 to 100000000 US dollars"

// plausible reports whether usd is in that range, and at the scale of rates.
func plausible(usd card.Decimal) bool {
	const dollar = 100_000_000 // in units of 10^-8
	return usd.Scale == card.RateScale && usd.Units >= dollar/100 && usd.Units <= 100_000_000*dollar
}

// newQuote parses a price as a source wrote it.
func newQuote(price text, at time.Time) Quote {
	whole, fraction, point := strings.Cut(string(price), ".")
	if point && fraction == "" || strings.Trim(fraction, "0123456789") != "" {
		return Quote{Err: errImplausible}
	}
	// Surplus decimals are cut off, which rounds down.
	fraction = (fraction + strings.Repeat("0", card.RateScale))[:card.RateScale]
	usd, err := card.ParseDecimal(whole+"."+fraction, card.RateScale)
	if err != nil || !plausible(usd) {
		return Quote{Err: errImplausible}
	}
	return Quote{USD: usd, At: at}
}

// text is a number as a source wrote it, bare or as a JSON string. Any other
// JSON value becomes a text that is not a number, so that a bad value affects
// only its own quote.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	*t = text(bytes.Trim(raw, `"`))
	return nil
}

// definition defines a source.
type definition struct {
	name, url string
	open      func(site) Source
}

// known returns every source, by name. To add one, write a file for it and add
// a line here.
func known() []definition {
	return []definition{
		{"bitfinex", "https://api-pub.bitfinex.com", newBitfinex},
		{"coinbase", "https://api.exchange.coinbase.com", newCoinbase},
		{"coingecko", "https://api.coingecko.com", newCoinGecko},
		{"kraken", "https://api.kraken.com", newKraken},
	}
}

// Known returns the default URLs of all sources, by name.
func Known() map[string]string {
	addresses := map[string]string{}
	for _, k := range known() {
		addresses[k.name] = k.url
	}
	return addresses
}

// Sources returns the sources with the given names, or, if names is empty, all
// that have a market for one of the coins. urls overrides the URLs of sources,
// for instance with a mirror's; they must be https, or http on this machine.
// markets has the sources' names for the markets of the coins to fetch, by
// currency code and source name. A named source without any of them is an
// error: whoever names it relies on it.
func Sources(names []string, urls map[string]string, markets map[string]map[string]string) ([]Source, error) {
	addresses := Known()
	all := make([]string, 0, len(addresses))
	for _, k := range known() {
		all = append(all, k.name)
	}
	if len(names) == 0 {
		names = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return len(at(name, markets)) == 0 })
	}
	for i, name := range names {
		switch {
		case !slices.Contains(all, name):
			return nil, fmt.Errorf("rate source %q is not known, only %s", name, strings.Join(all, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("rate source %s is listed twice", name)
		case len(at(name, markets)) == 0:
			return nil, fmt.Errorf("rate source %s has no market for %s", name,
				strings.Join(slices.Sorted(maps.Keys(markets)), " or "))
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
			sources = append(sources,
				k.open(site{name: k.name, base: strings.TrimSuffix(addresses[k.name], "/"), client: client,
					markets: at(k.name, markets),
					date:    &serverDate{}}))
		}
	}
	return sources, nil
}

// at returns one source's names for the markets of coins, by currency code.
func at(source string, markets map[string]map[string]string) map[string]string {
	here := map[string]string{}
	for coin, names := range markets {
		if name, has := names[source]; has {
			here[coin] = name
		}
	}
	return here
}

// checkURL returns an error unless rates from address are safe from tampering
// on the way. Errors do not quote the address.
func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("address must look like https://example.com, without a login or a query")
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()),
		u.Scheme == "https":
		return nil
	}
	return errors.New("address must begin with https://")
}

// site is what all sources have in common.
type site struct {
	name    string
	base    string // the base URL, without a trailing slash
	client  *http.Client
	markets map[string]string // its names for the markets of coins against US dollars, by currency code
	date    *serverDate
}

// Name implements Source.
func (s site) Name() string { return s.name }

// Serves implements Source.
func (s site) Serves(coin string) bool {
	_, has := s.markets[coin]
	return has
}

// each calls quote for every market that coins have here, and returns the
// quotes by currency code.
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
