package webhook

import (
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/cardmint/cardmint/internal/limit"
)

// Limits for a network address that has accepted no event: accounts could
// otherwise flood a stranger.
const (
	unprovenRate  = 20 // requests per second
	unprovenShare = 5  // of these for one account
	unprovenBurst = 4  // seconds
)

const (
	// provenAccounts is how many accounts may send to one address at
	// Config.Rate each.
	provenAccounts = 5
	maxFailures    = 20 // consecutive failures that make an endpoint unproven again
	maxProven      = 16 // addresses of an endpoint
	forgetAfter    = 10 * time.Minute
)

// destinations limits the requests of all accounts to one network address,
// regardless of the host name. An endpoint that has accepted an event from the
// account at that address is proven, and gets a much higher limit.
// It is safe for concurrent use.
type destinations struct {
	mu        sync.Mutex
	rate      float64 // requests per second of an account at a proven endpoint
	addresses map[netip.Prefix]*destination
	endpoints map[endpointKey]*endpoint
	sweptAt   time.Time
}

// destination contains the limits of one address.
type destination struct {
	unproven, proven *rate.Limiter // of all accounts
	accounts         map[uuid.UUID]*accountLimits
	usedAt           time.Time
}

type accountLimits struct{ unproven, proven *rate.Limiter }

// endpointKey is an account and the scheme, host and port of its webhook.
type endpointKey struct {
	account uuid.UUID
	host    string
}

// endpointOf returns the endpoint of a URL, which may be invalid.
func endpointOf(account uuid.UUID, raw string) endpointKey {
	u, err := url.Parse(raw)
	if err != nil {
		return endpointKey{account: account}
	}
	return endpointKey{account, u.Scheme + "://" + u.Host}
}

// endpoint is the state of an endpoint.
type endpoint struct {
	last   netip.Addr            // the address of the last connection; invalid if there was none
	proven map[netip.Prefix]bool // the addresses that have accepted events
	failed int                   // consecutive attempts that were rejected or unanswered
	usedAt time.Time
}

func newDestinations() *destinations {
	return &destinations{rate: defaultRate, addresses: map[netip.Prefix]*destination{},
		endpoints: map[endpointKey]*endpoint{}}
}

func limiter(perSecond, burst float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), int(max(1, burst)))
}

// setRate sets the rate of an account at a proven endpoint.
func (d *destinations) setRate(perSecond float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rate = perSecond
}

// admitLast counts a request to the address of the endpoint's last connection,
// which the next request probably uses again. It returns this address, which is
// invalid if there is none, and how long to wait if the limit is reached.
func (d *destinations) admitLast(key endpointKey) (last netip.Addr, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.endpoints[key]; e != nil && e.last.IsValid() {
		return e.last, d.admitLocked(key, e.last)
	}
	return netip.Addr{}, 0
}

// admit counts a request to an address. If the limit is reached, it counts
// nothing, and returns how long to wait.
func (d *destinations) admit(key endpointKey, address netip.Addr) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.admitLocked(key, address)
}

func (d *destinations) admitLocked(key endpointKey, address netip.Addr) time.Duration {
	now, network := time.Now(), limit.Network(address)
	d.sweep(now)
	to, known := d.addresses[network]
	if !known {
		to = &destination{unproven: limiter(unprovenRate, unprovenBurst*unprovenRate),
			proven:   limiter(provenAccounts*d.rate, provenAccounts*d.rate),
			accounts: map[uuid.UUID]*accountLimits{}}
		d.addresses[network] = to
	}
	own, known := to.accounts[key.account]
	if !known {
		own = &accountLimits{unproven: limiter(unprovenShare, unprovenBurst*unprovenShare), proven: limiter(d.rate, d.rate)}
		to.accounts[key.account] = own
	}
	to.usedAt = now
	if e := d.endpoints[key]; e != nil && e.proven[network] {
		return reserve(now, own.proven, to.proven)
	}
	return reserve(now, own.unproven, to.unproven)
}

// reserve takes a token from each limiter, or none and returns how long to
// wait.
func reserve(now time.Time, limiters ...*rate.Limiter) time.Duration {
	var taken []*rate.Reservation
	for _, l := range limiters {
		r := l.ReserveN(now, 1)
		taken = append(taken, r)
		if wait := r.DelayFrom(now); wait > 0 {
			for _, r := range taken {
				r.CancelAt(now)
			}
			return wait
		}
	}
	return 0
}

// report records an attempt that was admitted. The address is not valid if
// there was no connection.
func (d *destinations) report(key endpointKey, address netip.Addr, a Attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.endpoints[key]
	if e == nil {
		if !address.IsValid() {
			return
		}
		e = &endpoint{proven: map[netip.Prefix]bool{}}
		d.endpoints[key] = e
	}
	e.last, e.usedAt = address, time.Now()
	if !a.Unreachable() && !a.Rejected() {
		e.failed = 0
	} else if e.failed++; e.failed >= maxFailures {
		clear(e.proven)
	}
	if a.OK() {
		if len(e.proven) == maxProven {
			clear(e.proven)
		}
		e.proven[limit.Network(address)] = true
	}
}

// sweep deletes entries that were not used for forgetAfter, once a minute.
// Their limiters have recovered all tokens.
func (d *destinations) sweep(now time.Time) {
	if now.Sub(d.sweptAt) < time.Minute {
		return
	}
	d.sweptAt = now
	for network, to := range d.addresses {
		if now.Sub(to.usedAt) > forgetAfter {
			delete(d.addresses, network)
		}
	}
	for key, e := range d.endpoints {
		if now.Sub(e.usedAt) > forgetAfter {
			delete(d.endpoints, key)
		}
	}
}
