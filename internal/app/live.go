package app

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// checkLive returns an error if a process in live mode would use simulated
// money, or unencrypted connections to nodes and rate sources on other
// machines. Suppliers, rates and webhooks check their own settings.
func (p *process) checkLive() error {
	c := &p.cfg
	if p.Mode != card.LiveMode {
		return nil
	}
	if c.Simulated {
		return WithHint(errors.New("live mode: --simulated pays without money"), "leave --simulated out, or use --mode test")
	}
	if c.Supplier.File == "" {
		return WithHint(errors.New("live mode: no supplier of real cards"),
			"name at least one with --suppliers FILE; see docs/suppliers.md")
	}
	if err := p.CheckDatabase(); err != nil {
		return err
	}
	urls := map[string]string{}
	for _, coin := range c.Coins {
		maps.Copy(urls, coin.Settings.URLs())
	}
	for source, address := range c.Rates.Live.RateURL {
		urls["rate-url "+source] = address
	}
	for _, flag := range slices.Sorted(maps.Keys(urls)) {
		if readable(urls[flag]) {
			return WithHint(fmt.Errorf("live mode: --%s: plain http to another machine", flag),
				"use https, or a tunnel that ends on this machine")
		}
	}
	return nil
}

// readable reports whether requests to a URL can be read on the network: it is
// neither https nor on this machine.
func readable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && !loopback(u.Hostname())
}

// loopback reports whether a host is this machine. Names other than localhost
// are not resolved, because they may change.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// warnAboutBounds logs each coin whose rate is not bounded in live mode.
// Nothing else protects against sources that are all wrong at once.
func (p *process) warnAboutBounds() {
	if p.Mode != card.LiveMode {
		return
	}
	for _, coin := range p.cfg.Coins {
		var missing []string
		for _, bound := range []struct {
			flag string
			set  map[string]string
		}{{"--rate-floor", p.cfg.Rates.Live.RateFloor}, {"--rate-ceiling", p.cfg.Rates.Live.RateCeiling}} {
			if bound.set[coin.Code] == "" {
				missing = append(missing, bound.flag)
			}
		}
		if len(missing) > 0 {
			p.Log.Warn("the rate of a currency has no bounds: set them, so that no card is sold at an absurd rate",
				"currency", coin.Code, "missing", strings.Join(missing, ", "))
		}
	}
}

// announceLive prints in five lines what a process in live mode does with
// money.
func (p *process) announceLive() {
	c := &p.cfg
	takes, makes := make([]string, len(c.Coins)), make([]string, len(p.suppliers.Entries))
	for i, coin := range c.Coins {
		takes[i] = fmt.Sprintf("%s after %d confirmations", coin.Code, coin.Confirmations)
	}
	for i, e := range p.suppliers.Entries {
		makes[i] = fmt.Sprintf("%s (%s, %s to %s US dollars)", e.Name, e.Kind, e.Min, e.Max)
	}
	limit := "no limit"
	if c.MaxOpenUSD > 0 {
		limit = fmt.Sprintf("at most %d US dollars", c.MaxOpenUSD)
	}
	fmt.Fprintf(c.Stdout, `LIVE: real cards are sold for real coins.
It takes   %s.
It quotes  live rates on which %d sources agree, plus %s percent, for %s; %s for the open cards of an account.
It orders  cards of %s.
It refunds nothing by itself: what can't be issued within %s waits for you in 'cardmint card list --attention'.
`, strings.Join(takes, ", "), c.Rates.Live.RateQuorum, c.Rates.Markup, c.QuoteTTL, limit, strings.Join(makes, ", then "), p.suppliers.Patience)
}
