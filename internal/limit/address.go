package limit

import (
	"net/netip"
	"sync"
	"time"
)

const (
	maxAddresses = 10_000 // that are counted apart
	sweepEvery   = time.Second
)

// failures counts failures to authenticate by address. Anybody can have any
// number of addresses, so those that come when maxAddresses are counted share
// one bucket.
type failures struct {
	policy  Policy
	mu      sync.Mutex
	clients map[netip.Prefix]client
	sweptAt time.Duration
}

// client is a bucket of failures.
type client struct {
	fullAt   time.Duration
	refusals refusalDelay
}

// Network returns what counts as one client: an IPv4 address, or an IPv6
// network of 64 bits, which is what one customer of a provider has at least.
// All addresses that are not valid count as one.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Blocked returns how long a client must wait before it may try to authenticate
// with a token that is not known to be good, and how long to keep that answer
// back. 0 means that it may do so now.
func (l *Limiter) Blocked(from netip.Prefix) (wait, delay time.Duration) {
	f := &l.failures
	if !f.policy.On() {
		return 0, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.clients) == 0 {
		return 0, 0
	}
	now := l.clock()
	place := f.place(from, now)
	c := f.clients[place]
	if wait = f.policy.wait(c.fullAt - now); wait > 0 {
		delay = c.refusals.next(now)
		f.clients[place] = c
	}
	return wait, delay
}

// Fail counts a failure to authenticate. Requests that are authenticated at the
// same time can fail beyond the limit, and wait for it.
func (l *Limiter) Fail(from netip.Prefix) {
	f := &l.failures
	if !f.policy.On() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := l.clock()
	if f.clients == nil {
		f.clients = map[netip.Prefix]client{}
	}
	place := f.place(from, now)
	c := f.clients[place]
	c.fullAt = min(max(c.fullAt, now)+f.policy.interval(), now+2*f.policy.Window)
	f.clients[place] = c
}

// place returns where a client is counted. When all places are taken, it first
// drops those that are full again.
func (f *failures) place(from netip.Prefix, now time.Duration) netip.Prefix {
	if _, known := f.clients[from]; known || len(f.clients) < maxAddresses {
		return from
	}
	if now-f.sweptAt >= sweepEvery {
		f.sweptAt = now
		for a, c := range f.clients {
			if c.fullAt <= now {
				delete(f.clients, a)
			}
		}
		if len(f.clients) < maxAddresses {
			return from
		}
	}
	return netip.Prefix{}
}
