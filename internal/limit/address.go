package limit

import (
	"net/netip"
	"sync"
	"time"
)

const (
	mostAddresses = 10_000 // that are counted apart
	sweepEvery    = time.Second
)

// failures counts failures to authenticate by address. Anybody can have any number of addresses, so those that come when mostAddresses are
// counted share one bucket.
type failures struct {
	policy  Policy
	mu      sync.Mutex
	fullAt  map[netip.Prefix]time.Duration
	sweptAt time.Duration
}

// Network returns what counts as one client: an IPv4 address, or an IPv6 network of 64 bits, which is what one customer of a provider has at
// least. All addresses that are not valid count as one.
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

// Blocked returns how long a client must wait before it may try to authenticate with a token that is not known to be good. 0 means that it
// may do so now.
func (l *Limiter) Blocked(from netip.Prefix) time.Duration {
	f := &l.failures
	if !f.policy.On() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fullAt) == 0 {
		return 0
	}
	now := l.clock()
	return f.policy.wait(f.fullAt[f.place(from, now)] - now)
}

// Fail counts a failure to authenticate. Requests that are authenticated at the same time can fail beyond the limit, and wait for it.
func (l *Limiter) Fail(from netip.Prefix) {
	f := &l.failures
	if !f.policy.On() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := l.clock()
	if f.fullAt == nil {
		f.fullAt = map[netip.Prefix]time.Duration{}
	}
	place := f.place(from, now)
	f.fullAt[place] = min(max(f.fullAt[place], now)+f.policy.interval(), now+2*f.policy.Window)
}

// place returns where a client is counted. When all places are taken, it first drops those that are full again.
func (f *failures) place(from netip.Prefix, now time.Duration) netip.Prefix {
	if _, known := f.fullAt[from]; known || len(f.fullAt) < mostAddresses {
		return from
	}
	if now-f.sweptAt >= sweepEvery {
		f.sweptAt = now
		for a, fullAt := range f.fullAt {
			if fullAt <= now {
				delete(f.fullAt, a)
			}
		}
		if len(f.fullAt) < mostAddresses {
			return from
		}
	}
	return netip.Prefix{}
}
