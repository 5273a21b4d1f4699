package order

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// No request waits for a wallet. The wallet makes addresses ahead of time, and the watcher stores them in the address pool (package
// settle). Each process takes batches of them from there (Prepare), and hands them out from memory (takeAddress). When a process ends,
// the addresses it has not handed out are lost: an address costs nothing, but one that is used twice costs money.
const (
	smallestBatch = 32
	largestBatch  = 2048
)

// addressPool has the addresses of one currency that this process has taken.
type addressPool struct {
	mu      sync.Mutex
	free    []string
	batch   int  // size of the last batch; it doubles while full batches are used up fast
	full    bool // whether the last batch was full
	takenAt time.Time
	filling chan struct{} // lets one request at a time take a batch
	blind   bool          // passes over the chain have failed for too long: a payment might not be seen
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

// wants returns how many addresses to take from the store now; 0 if there are enough.
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

// takeAddress returns an address from memory. It asks the store only if there is none left. The error is card.ErrNoAddress if the store
// has none either, or the pool is blind.
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
	select { // concurrent requests wait for one batch, instead of taking one each
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

// Prepare takes addresses ahead of the requests that will need them. It also stops handing out addresses of a currency while payments to
// them might not be seen for too long (Config.MaxBlind). Call it about every second. A failure of one currency does not affect the others.
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
	if errors.Is(err, card.ErrNoRow) {
		return nil // no addresses either
	}
	if err != nil {
		return err
	}
	s.pools[currency].setBlind(age > s.cfg.MaxBlind)
	return s.fillMemory(ctx, currency)
}
