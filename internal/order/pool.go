package order

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Addresses are made by the wallet ahead of time and kept in the store (FillAddresses), taken from there by each process in
// batches (Prepare), and handed out from its memory (takeAddress), so that no request waits for a wallet. What a process
// took and did not hand out when it ends is lost: addresses cost nothing, and one that is used twice costs money.
const (
	smallestBatch = 32
	largestBatch  = 2048
)

// addressPool is what this process took of one currency.
type addressPool struct {
	mu      sync.Mutex
	free    []string
	batch   int // size of the last one: it doubles as long as full ones are used up fast
	full    bool
	takenAt time.Time
	filling chan struct{} // holds the right to fill
	blind   bool          // the chain's watcher is not well for too long: a payment might not be seen
}

func (p *addressPool) setBlind(blind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blind = blind
}

func (p *addressPool) take() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 || p.blind {
		return "", false
	}
	last := len(p.free) - 1
	address := p.free[last]
	p.free = p.free[:last]
	return address, true
}

func (p *addressPool) add(addresses ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, addresses...)
}

// wants returns how many addresses to take now.
func (p *addressPool) wants(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.batch > 0 && len(p.free) > p.batch/2 {
		return 0
	}
	if p.full && now.Sub(p.takenAt) < 5*time.Second {
		p.batch *= 2
	}
	p.batch, p.takenAt = min(max(p.batch, smallestBatch), largestBatch), now
	return p.batch
}

// takeAddress returns an address from memory; only if there is none left does it ask the store.
func (s *Service) takeAddress(ctx context.Context, currency string) (string, error) {
	pool := s.pools[currency]
	if address, ok := pool.take(); ok {
		return address, nil
	}
	if err := s.fillMemory(ctx, currency); err != nil {
		return "", err
	}
	if address, ok := pool.take(); ok {
		return address, nil
	}
	return "", card.ErrNoAddress
}

func (s *Service) fillMemory(ctx context.Context, currency string) error {
	pool := s.pools[currency]
	select { // the others wait for this one batch instead of each asking for one
	case pool.filling <- struct{}{}:
		defer func() { <-pool.filling }()
	case <-ctx.Done():
		return card.ErrUnavailable.Because(ctx.Err())
	}
	n := pool.wants(s.cfg.Now())
	if n == 0 {
		return nil
	}
	addresses, err := s.store.TakeAddresses(ctx, currency, n)
	if err != nil {
		return fmt.Errorf("take addresses: %w", err)
	}
	pool.add(addresses...)
	if pool.full = len(addresses) == n; !pool.full {
		s.wake() // the watcher fills the store's pool
	}
	return nil
}

// Prepare takes addresses ahead of the requests that will need them, and hands out none while nobody could see what they
// receive. It is to be called every second or so. What fails for one currency does not keep the others from theirs.
func (s *Service) Prepare(ctx context.Context) error {
	var failed []error
	for _, coin := range s.cfg.Currencies {
		if err := s.prepare(ctx, coin.Code); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", coin.Code, err))
		}
	}
	return errors.Join(failed...)
}

func (s *Service) prepare(ctx context.Context, currency string) error {
	age, err := s.store.PoolAge(ctx, currency)
	if errors.Is(err, card.ErrNotFound) {
		return nil // no addresses either
	}
	if err != nil {
		return err
	}
	s.pools[currency].setBlind(age > s.cfg.MaxBlind)
	return s.fillMemory(ctx, currency)
}
