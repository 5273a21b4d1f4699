package cli

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
)

// checkLive returns an error if a process in live mode would use what is only
// for tests, or send what is worth money over connections that others can read.
// What suppliers, rates and webhooks refuse in live mode they refuse
// themselves.
func (c serveCommand) checkLive(g *globals, coins []enabled) error {
	if g.Mode != card.LiveMode {
		return nil
	}
	if c.Simulated {
		return hint(errors.New("live mode: --simulated pays without money"), "leave --simulated out, or use --mode test")
	}
	if c.Supplier.File == "" {
		return hint(errors.New("live mode: no supplier of real cards"),
			"name at least one with --suppliers FILE; docs/suppliers.md says how")
	}
	if err := g.checkDatabase(); err != nil {
		return err
	}
	urls := map[string]string{}
	for _, coin := range coins {
		maps.Copy(urls, coin.settings.URLs())
	}
	for source, address := range c.Rates.Live.RateURL {
		urls["rate-url "+source] = address
	}
	for _, flag := range slices.Sorted(maps.Keys(urls)) {
		if readable(urls[flag]) {
			return hint(fmt.Errorf("live mode: --%s: plain http to another machine", flag),
				"use https, or a tunnel that ends on this machine")
		}
	}
	return nil
}

// readable reports whether others can read what is sent to a URL: it is neither
// https nor on this machine.
func readable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && !loopback(u.Hostname())
}

// loopback reports whether a host is this machine. Names other than localhost
// are not looked up: they may change.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// checkDatabase returns an error if a process in live mode would connect to a
// PostgreSQL on another machine without a check of its certificate.
func (g *globals) checkDatabase() error {
	if g.Mode != card.LiveMode || g.AllowUnverified {
		return nil
	}
	hosts, err := store.UnverifiedHosts(g.DatabaseURL)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(hosts, func(host string) bool { return !loopback(host) }) {
		return hint(errors.New("live mode: --database-url: the certificate of PostgreSQL is not verified"),
			"let it end in sslmode=verify-full; docs/flags.md says what --allow-unverified-database risks")
	}
	return nil
}

// warnOfBounds logs each coin whose rate is not bounded in live mode: nothing
// else stops sources that are all wrong at once.
func (c serveCommand) warnOfBounds(g *globals, coins []enabled) {
	if g.Mode != card.LiveMode {
		return
	}
	for _, coin := range coins {
		var missing []string
		for _, bound := range []struct {
			flag string
			set  map[string]string
		}{{"--rate-floor", c.Rates.Live.RateFloor}, {"--rate-ceiling", c.Rates.Live.RateCeiling}} {
			if bound.set[coin.Code] == "" {
				missing = append(missing, bound.flag)
			}
		}
		if len(missing) > 0 {
			g.log.Warn("the rate of a currency has no bounds: set them, so that no card is sold at an absurd rate", "currency",
				coin.Code,
				"missing", strings.Join(missing, ", "))
		}
	}
}

// announceLive says in five lines what a process in live mode does with money.
func (c serveCommand) announceLive(g *globals, coins []enabled, made suppliers) {
	takes, makes := make([]string, len(coins)), make([]string, len(made.entries))
	for i, coin := range coins {
		takes[i] = fmt.Sprintf("%s after %d confirmations", coin.Code, coin.Confirmations)
	}
	for i, e := range made.entries {
		makes[i] = fmt.Sprintf("%s (%s, %s to %s US dollars)", e.Name, e.Kind, e.min, e.max)
	}
	limit := "no limit"
	if c.MaxOpenUSD > 0 {
		limit = fmt.Sprintf("at most %d US dollars", c.MaxOpenUSD)
	}
	fmt.Fprintf(g.stdout, `LIVE: real cards are sold for real coins.
It takes   %s.
It quotes  live rates on which %d sources agree, plus %s percent, for %s; %s for the open cards of an account.
It orders  cards of %s.
It refunds nothing by itself: what can't be issued within %s waits for you in 'cardmint card list --attention'.
`, strings.Join(takes, ", "), c.Rates.Live.RateQuorum, c.Rates.Markup, c.QuoteTTL, limit, strings.Join(makes, ", then "), made.patience)
}
