package order

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// No request waits for a wallet. The wallet makes addresses ahead of time, and
// the watcher stores them in the address pool (package settle). Each process
// takes batches of them from there (Prepare), and hands them out from memory
// (takeAddress). When a process ends, the addresses it has not handed out are
// lost: an address costs nothing, but one that is used twice costs money.
const (
	smallestBatch = 32
	largestBatch  = 2048
	// While addresses are short and several accounts order cards, one account
	// leaves up to keptForOthers of those in memory. It is no more than half of
	// a batch, below which Prepare asks for another one.
	keptForOthers = smallestBatch / 2
)

// addressPool has the addresses of one currency that this process has taken.
type addressPool struct {
	mu      sync.Mutex
	free    []string
	batch   int               // size of the last batch; it doubles while full batches are used up fast
	full    bool              // whether the last batch was full
	share   int               // addresses that one account may take while they are short
	taken   map[uuid.UUID]int // since they became short or some were added; nil while there are enough
	first   uuid.UUID         // the first account that asked for an address
	several bool              // others have asked too
	stocked bool              // whether there has been an address
	takenAt time.Time
	filling chan struct{} // lets one request at a time take a batch
	blind   bool          // passes over the chain have failed for too long: a payment might not be seen
	epoch   int64         // in which the addresses were taken
	health  error         // why orders can't go on for long; nil if they can
	checks  int           // consecutive checks that found that reason
}

// observe forgets the addresses if they were taken in another epoch, or from a
// database that has gone back since.
func (p *addressPool) observe(s PoolState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch > 0 && p.epoch != s.Epoch || s.WentBack {
		p.free = nil
	}
	p.epoch = s.Epoch
}

func (p *addressPool) setBlind(blind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blind = blind
}

// take returns an address, if there is one for the account. While addresses are
// short and several accounts order cards, an account takes no more than its
// share, and the last one only if it has taken none.
func (p *addressPool) take(account uuid.UUID) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == uuid.Nil {
		p.first = account
	}
	p.several = p.several || account != p.first
	if len(p.free) == 0 || p.blind {
		return "", false
	}
	if p.taken != nil {
		if n := p.taken[account]; p.several && (n >= p.share || n > 0 && len(p.free) == 1) {
			return "", false
		}
		p.taken[account]++
	}
	last := len(p.free) - 1
	address := p.free[last]
	p.free = p.free[:last]
	return address, true
}

// peek returns an address without taking it; "" if there is none.
func (p *addressPool) peek() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return ""
	}
	return p.free[0]
}

// add returns an address that an account took and does not need.
func (p *addressPool) add(account uuid.UUID, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, address)
	if p.taken[account] > 0 {
		p.taken[account]--
	}
}

// fill adds a batch, which is full or shows that the store has no more.
func (p *addressPool) fill(full bool, addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, addresses...)
	p.stocked = p.stocked || len(addresses) > 0
	switch p.full = full; {
	case full:
		p.taken = nil
	case p.taken == nil || len(addresses) > 0:
		p.taken = map[uuid.UUID]int{}
		p.share = len(p.free) - min(len(p.free)/2, keptForOthers)
	}
}

// wants returns how many addresses to take from the store now; 0 if there are
// enough.
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

// takeAddress returns an address from memory. It asks the store only if there
// is none left. The error is card.ErrNoAddress if the store has none for the
// account either, or the pool is blind.
func (s *Service) takeAddress(ctx context.Context, account uuid.UUID, currency string) (string, error) {
	pool := s.pools[currency]
	if address, ok := pool.take(account); ok {
		return address, nil
	}
	if err := s.fillMemory(ctx, currency); err != nil {
		return "", err
	}
	if address, ok := pool.take(account); ok {
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
		return card.ErrUnavailable.WithCause(ctx.Err())
	}
	n := pool.wants(s.cfg.Now())
	if n == 0 {
		return nil
	}
	addresses, err := s.store.TakeAddresses(ctx, currency, n)
	if err != nil {
		return fmt.Errorf("take addresses: %w", err)
	}
	full := len(addresses) == n
	if pool.fill(full, addresses); !full {
		s.wake() // the watcher fills the store's pool
	}
	return nil
}

// Addresses are taken from the store only while both are younger than that.
const (
	MarkLasts  = 10 * time.Second // the last mark of whoever watches the chain
	CheckLasts = time.Minute      // the last comparison of wallet and address pool
)

// Prepare takes addresses ahead of the requests that will need them. It also
// stops handing out addresses of a currency while payments to them might not be
// seen for too long (Config.MaxBlind). Call it about every second. A failure of
// one currency does not affect the others.
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
	pool := s.pools[currency]
	state, err := s.store.PoolState(ctx, currency)
	if errors.Is(err, card.ErrNoRow) {
		s.recordHealth(ctx, currency, card.Unready("nobody has watched "+currency+" yet"))
		return nil // no addresses either
	}
	if err != nil {
		return err
	}
	pool.observe(state)
	pool.setBlind(state.Conflict || max(state.CheckedAgo, state.MarkedAgo) > s.cfg.MaxBlind)
	s.recordHealth(ctx, currency, state.trouble(currency))
	return s.fillMemory(ctx, currency)
}

// trouble returns why orders can't go on for long; nil if they can.
func (p PoolState) trouble(currency string) error {
	switch {
	case p.Conflict:
		return card.Unready("another database uses the wallet of " + currency +
			": run 'cardmint wallet claim' for the one that shall have it")
	case p.MarkedAgo > MarkLasts:
		return card.Unready("no worker watches " + currency)
	case p.CheckedAgo > CheckLasts:
		return card.Unready(currency + " is not watched: node or wallet is not ready")
	}
	return nil
}

// settledChecks is how many looks in a row must find the same trouble before it
// is logged: a process that starts with its worker finds the marks of the last
// one.
const settledChecks = 3

// recordHealth records why orders can't go on for long, and logs it when that changes.
func (s *Service) recordHealth(ctx context.Context, currency string, why error) {
	pool := s.pools[currency]
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if why != nil && pool.health != nil && why.Error() == pool.health.Error() {
		pool.checks++
	} else {
		if why == nil && pool.checks >= settledChecks {
			s.cfg.Log.InfoContext(ctx, "orders are taken without a limit of time again", "currency", currency, "after",
				pool.health)
		}
		pool.checks = 1
	}
	if why != nil && pool.checks == settledChecks {
		s.cfg.Log.WarnContext(ctx, "orders are taken for a limited time only", "currency", currency, "reason", why, "limit",
			s.cfg.MaxBlind)
	}
	pool.health = why
}

// Stocked returns an error until this process has taken the first address of a
// currency: before, it can't take an order. That addresses run out later is no
// reason to withdraw a process that reads can still use. The error is a
// card.Unready.
func (s *Service) Stocked(currency string) error {
	pool := s.pools[currency]
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if !pool.stocked {
		return card.Unready("there has been no payment address of " + currency + " yet")
	}
	return nil
}

// Health returns an error if the chain of a currency is not being watched. The
// error is a card.Unready.
func (s *Service) Health(currency string) error {
	pool := s.pools[currency]
	pool.mu.Lock()
	defer pool.mu.Unlock()
	return pool.health
}
