package cli

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/store"
)

const limitsEvery = time.Second

// limitFlags limit the number of requests.
type limitFlags struct {
	Token   limit.Policy   `name:"limit-token" env:"CARDMINT_LIMIT_TOKEN" default:"10000/10s" placeholder:"LIMIT" help:"How many requests a token may send: 10000/10s means 10000 at once, and 10000 in each 10 seconds after that. Also /s, /min and /h; off for no limit (${default})."`
	Account limit.Policy   `name:"limit-account" env:"CARDMINT_LIMIT_ACCOUNT" default:"20000/10s" placeholder:"LIMIT" help:"How many requests all tokens of an account may send (${default})."`
	Create  limit.Policy   `name:"limit-create" env:"CARDMINT_LIMIT_CREATE" default:"2000/10s" placeholder:"LIMIT" help:"How many cards an account may create (${default})."`
	Address limit.Policy   `name:"limit-address" env:"CARDMINT_LIMIT_ADDRESS" default:"600/min" placeholder:"LIMIT" help:"How many requests without a valid token an address may send: an IPv4 address, or an IPv6 network of 64 bits (${default})."`
	Proxies []netip.Prefix `name:"trusted-proxies" env:"CARDMINT_TRUSTED_PROXIES" placeholder:"CIDR" help:"Networks of reverse proxies in front of the service, for example 10.0.0.0/8, whose X-Forwarded-For says where requests come from. Without it, nobody's does."`
}

// devLimitFlags are the same for trying things out: there are no limits unless
// they are asked for.
type devLimitFlags struct {
	Token   limit.Policy   `name:"limit-token" env:"CARDMINT_LIMIT_TOKEN" default:"off" placeholder:"LIMIT" help:"How many requests a token may send, for example 1000/10s (${default})."`
	Account limit.Policy   `name:"limit-account" env:"CARDMINT_LIMIT_ACCOUNT" default:"off" placeholder:"LIMIT" help:"How many requests all tokens of an account may send (${default})."`
	Create  limit.Policy   `name:"limit-create" env:"CARDMINT_LIMIT_CREATE" default:"off" placeholder:"LIMIT" help:"How many cards an account may create (${default})."`
	Address limit.Policy   `name:"limit-address" env:"CARDMINT_LIMIT_ADDRESS" default:"off" placeholder:"LIMIT" help:"How many requests without a valid token an address may send (${default})."`
	Proxies []netip.Prefix `name:"trusted-proxies" env:"CARDMINT_TRUSTED_PROXIES" placeholder:"CIDR" help:"Networks of reverse proxies whose X-Forwarded-For says where requests come from."`
}

// addLimits adds the limits of requests, and the loop in which processes tell
// each other what they let pass.
func (w *wired) addLimits(db *store.Store, f limitFlags) {
	limits := limit.New(db, limit.Config{
		Token: f.Token, Account: f.Account, Create: f.Create, Address: f.Address,
		Process: fmt.Sprintf("%s#%06x", processName(), rand.Uint32N(1<<24)),
	})
	w.config.Limits, w.config.Proxies = limits, f.Proxies
	if f.Token.On() || f.Account.On() || f.Create.On() {
		w.add(loop{name: "limits", every: limitsEvery, longest: limitsEvery, tick: limits.Tick, close: limits.Close,
			grace: closeGrace, last: true})
	}
}
