package app

import (
	"net/netip"
	"time"

	"github.com/cardmint/cardmint/internal/limit"
)

const limitsEvery = time.Second

// LimitConfig limits the number of requests.
type LimitConfig struct {
	Token   limit.Policy   `name:"limit-token" env:"CARDMINT_LIMIT_TOKEN" default:"10000/10s" placeholder:"LIMIT" help:"How many requests a token may send: 10000/10s means 10000 at once, and 10000 in each 10 seconds after that. Also /s, /min and /h; off for no limit (${default})."`
	Account limit.Policy   `name:"limit-account" env:"CARDMINT_LIMIT_ACCOUNT" default:"20000/10s" placeholder:"LIMIT" help:"How many requests all tokens of an account may send (${default})."`
	Create  limit.Policy   `name:"limit-create" env:"CARDMINT_LIMIT_CREATE" default:"2000/10s" placeholder:"LIMIT" help:"How many cards an account may create (${default})."`
	Address limit.Policy   `name:"limit-address" env:"CARDMINT_LIMIT_ADDRESS" default:"600/min" placeholder:"LIMIT" help:"How many requests without a valid token an address may send: an IPv4 address, or an IPv6 network of 64 bits (${default})."`
	Proxies []netip.Prefix `name:"trusted-proxies" env:"CARDMINT_TRUSTED_PROXIES" placeholder:"CIDR" help:"Networks of reverse proxies in front of the service, for example 10.0.0.0/8, whose X-Forwarded-For is trusted. Defaults to none."`
}

// addLimits adds the limits of requests, and the loop that shares their counts
// with other processes.
func (p *process) addLimits() {
	c := p.cfg.Limits
	limits := limit.New(p.dbs.api, limit.Config{Token: c.Token, Account: c.Account, Create: c.Create,
		Address: c.Address, Process: uniqueName()})
	p.server.Limits, p.server.Proxies = limits, c.Proxies
	if c.Token.On() || c.Account.On() || c.Create.On() {
		p.add(loop{name: "limits", every: limitsEvery, maxPause: limitsEvery, tick: limits.Tick, close: limits.Close,
			grace: closeGrace, closeLast: true})
	}
}
