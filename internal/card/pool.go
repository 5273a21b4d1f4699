package card

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Addresses are made by the wallet ahead of time and kept in the store (FillAddresses), leased by each process in batches
// (Prepare), and handed out from its memory (takeAddress), so that no request waits for a wallet.
const (
	addressLease     = 10 * time.Minute
	addressLeaseUsed = 8 * time.Minute // after that the process no longer hands out what it leased
	smallestLease    = 32
	largestLease     = 2048
)

// addressPool is what this process leased of one currency.
type addressPool struct {
	mu        sync.Mutex
	free      []string
	goodUntil time.Time
	lease     int // size of the last one: it doubles as long as leases are used up fast
	leasedAt  time.Time
	filling   sync.Mutex
}

func (p *addressPool) take(now time.Time) (address string, left int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.After(p.goodUntil) {
		p.free = nil
	}
	if len(p.free) == 0 {
		return "", 0, false
	}
	last := len(p.free) - 1
	address, p.free = p.free[last], p.free[:last]
	return address, last, true
}

func (p *addressPool) giveBack(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, address)
}

// wants returns how many addresses to lease now.
func (p *addressPool) wants(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.After(p.goodUntil) {
		p.free, p.lease = nil, smallestLease
		return p.lease
	}
	if len(p.free) > p.lease/2 {
		return 0
	}
	if now.Sub(p.leasedAt) < 5*time.Second {
		p.lease = min(2*p.lease, largestLease)
	}
	return p.lease
}

func (p *addressPool) add(addresses []string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leasedAt = now
	if goodUntil := now.Add(addressLeaseUsed); len(p.free) == 0 {
		p.goodUntil = goodUntil
	}
	p.free = append(p.free, addresses...)
}

// takeAddress returns an address from memory; only if there is none left does it ask the store.
func (s *Service) takeAddress(ctx context.Context, currency string) (string, error) {
	pool := s.pools[currency]
	if address, _, ok := pool.take(s.cfg.Now()); ok {
		return address, nil
	}
	if err := s.lease(ctx, currency); err != nil {
		return "", err
	}
	if address, _, ok := pool.take(s.cfg.Now()); ok {
		return address, nil
	}
	return "", ErrNoAddress
}

func (s *Service) lease(ctx context.Context, currency string) error {
	pool := s.pools[currency]
	pool.filling.Lock() // the others wait for this one lease instead of each asking for one
	defer pool.filling.Unlock()
	now := s.cfg.Now()
	n := pool.wants(now)
	if n == 0 {
		return nil
	}
	addresses, err := s.store.LeaseAddresses(ctx, currency, s.cfg.Replica, n, addressLease)
	if err != nil {
		return fmt.Errorf("lease addresses: %w", err)
	}
	if len(addresses) < n {
		s.cfg.Wake() // the watcher fills the pool
	}
	pool.add(addresses, now)
	return nil
}

// Prepare leases addresses ahead of the requests that will need them. It is to be called every second or so.
func (s *Service) Prepare(ctx context.Context) error {
	for _, coin := range s.cfg.Currencies {
		if err := s.lease(ctx, coin.Code); err != nil {
			return err
		}
	}
	return nil
}

// Close gives back the addresses this process leased and did not use. No card may be created after it.
func (s *Service) Close(ctx context.Context) error {
	return s.store.ReturnAddresses(ctx, s.cfg.Replica)
}
