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

// Source is a public source of exchange rates.
type Source interface {
	// Name returns a unique name of one word.
	Name() string
	// Serves reports whether the source has a market for a coin.
	Serves(coin string) bool
	// Fetch returns quotes for coins that the source serves. It must return
	// when ctx is canceled. An error means that there are no quotes at all; the
	// failure of a single quote is in its Err.
	Fetch(ctx context.Context, coins []string) (map[string]Quote, error)
}

// Quote is the price of one whole coin at one source.
type Quote struct {
	USD card.Decimal // Scale is card.RateScale
	At  time.Time    // by the source's own clock
	Err error        // if not nil, USD and At are not set
}

// The reasons to drop a source.
var (
	errImplausible  = errors.New("quote is not a plain number of " + plausibleRange)
	errNoQuote      = errors.New("answer has no quote for it")
	errNoTime       = errors.New("quote has no time")
	errUndocumented = errors.New("answer is not what the source documents")
)

// plausibleRange is the range of plausible rates.
const plausibleRange = "0.01 to 100000000 US dollars"

// plausible reports whether usd is in that range, and at the scale of rates.
func plausible(usd card.Decimal) bool {
	const dollar = 100_000_000 // in units of 10^-8
	return usd.Scale == card.RateScale && usd.Units >= dollar/100 && usd.Units <= 100_000_000*dollar
}

// newQuote parses the price of a source.
func newQuote(price text, at time.Time) Quote {
	whole, fraction, point := strings.Cut(string(price), ".")
	if point && fraction == "" || strings.Trim(fraction, "0123456789") != "" {
		return Quote{Err: errImplausible}
	}
	// Further decimals are cut off, which rounds down.
	fraction = (fraction + strings.Repeat("0", card.RateScale))[:card.RateScale]
	usd, err := card.ParseDecimal(whole+"."+fraction, card.RateScale)
	if err != nil || !plausible(usd) {
		return Quote{Err: errImplausible}
	}
	return Quote{USD: usd, At: at}
}

// text is a number in a source's JSON, with or without quotes. Any other JSON
// value becomes a text that is not a number, so that a bad value affects only
// its own quote.
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

// known returns all sources, by name. To add one, write a file for it and add a
// line here.
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

// Sources returns the sources with the given names. If names is empty, it
// returns all sources with a market for one of the coins. urls overrides the
// URLs of sources, for instance with a mirror's; they must be https, or http on
// this machine. markets contains the sources' names of the markets, by currency
// code and source name. A source in names without any market is an error,
// because the operator relies on it.
func Sources(names []string, urls map[string]string, markets map[string]map[string]string) ([]Source, error) {
	addresses := Known()
	all := make([]string, 0, len(addresses))
	for _, k := range known() {
		all = append(all, k.name)
	}
	if len(names) == 0 {
		names = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return len(marketsOf(name, markets)) == 0 })
	}
	for i, name := range names {
		switch {
		case !slices.Contains(all, name):
			return nil, fmt.Errorf("rate source %q is not known, only %s", name, strings.Join(all, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("rate source %s is listed twice", name)
		case len(marketsOf(name, markets)) == 0:
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
					markets: marketsOf(k.name, markets),
					date:    &serverDate{}}))
		}
	}
	return sources, nil
}

// marketsOf returns a source's names of its markets, by currency code.
func marketsOf(source string, markets map[string]map[string]string) map[string]string {
	here := map[string]string{}
	for coin, names := range markets {
		if name, has := names[source]; has {
			here[coin] = name
		}
	}
	return here
}

// checkURL returns an error unless a connection to address is protected against
// tampering. Errors do not quote the address.
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

// site is the common part of all sources.
type site struct {
	name    string
	base    string // the base URL, without a trailing slash
	client  *http.Client
	markets map[string]string // its names of the markets against US dollars, by currency code
	date    *serverDate
}

// Name implements Source.
func (s site) Name() string { return s.name }

// Serves implements Source.
func (s site) Serves(coin string) bool {
	_, has := s.markets[coin]
	return has
}

// each calls quote for the market of every coin that has one, and returns the
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

// list returns the markets of coins, joined by commas.
func (s site) list(coins []string) string {
	var markets []string
	for _, coin := range coins {
		if market, has := s.markets[coin]; has {
			markets = append(markets, market)
		}
	}
	return strings.Join(markets, ",")
}
