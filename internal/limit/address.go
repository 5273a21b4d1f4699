package limit

import (
	"net/netip"
	"sync"
	"time"
)

const (
	maxAddresses  = 10_000 // addresses that are counted separately
	sweepInterval = time.Second
)

// failures counts failed authentications by address. A client can have any
// number of addresses, so the addresses beyond maxAddresses share one bucket.
type failures struct {
	policy  Policy
	mu      sync.Mutex
	clients map[netip.Prefix]client
	sweptAt time.Duration
}

// client has the buckets of an address.
type client struct{ failed, refused bucket }

// Network returns the network that counts as one client: an IPv4 address, or an
// IPv6 network of 64 bits, the smallest that providers assign to a customer.
// All invalid addresses count as one.
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

// Blocked returns how long a client must wait before it may authenticate with a
// token that is not known to be valid, and how long to delay the refusal. A wait
// of 0 means that it may authenticate now.
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
	key := f.key(from, now)
	c := f.clients[key]
	if wait = c.failed.wait(f.policy, now); wait > 0 {
		delay = c.refused.refuse(now)
		f.clients[key] = c
	}
	return wait, delay
}

// Fail counts a failed authentication. Concurrent requests can fail beyond the
// limit; they prolong the wait, up to two windows.
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
	key := f.key(from, now)
	c := f.clients[key]
	c.failed.charge(f.policy, 1, now)
	c.failed = min(c.failed, bucket(now+2*f.policy.Window))
	f.clients[key] = c
}

// key returns the key of an address in clients: the address itself, or the zero
// Prefix once clients has maxAddresses. It first drops full buckets.
func (f *failures) key(from netip.Prefix, now time.Duration) netip.Prefix {
	if _, known := f.clients[from]; known || len(f.clients) < maxAddresses {
		return from
	}
	if now-f.sweptAt >= sweepInterval {
		f.sweptAt = now
		for a, c := range f.clients {
			if c.failed.missing(now) == 0 {
				delete(f.clients, a)
			}
		}
		if len(f.clients) < maxAddresses {
			return from
		}
	}
	return netip.Prefix{}
}
