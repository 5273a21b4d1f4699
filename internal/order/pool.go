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

// No request waits for a wallet. The watcher creates addresses in advance, and
// stores them in the address pool (package settle). Each process takes batches
// from the pool (Prepare), and hands them out from memory (takeAddress). When a
// process ends, its remaining addresses are lost: an address costs nothing, but
// an address that is used twice costs money.
const (
	smallestBatch = 32
	largestBatch  = 2048
	// While addresses are short and several accounts order cards, an account
	// can't take the last keptForOthers addresses in memory. They are at most
	// half of a batch: Prepare takes another batch below that.
	keptForOthers = smallestBatch / 2
)

// addressPool has the addresses of one currency that this process has taken.
type addressPool struct {
	mu      sync.Mutex
	free    []string
	batch   int               // size of the last batch; doubles while full batches are used up quickly
	full    bool              // whether the last batch was full
	share   int               // addresses that one account may take during a shortage
	taken   map[uuid.UUID]int // by account, since the shortage began or addresses were added; nil if there are enough
	first   uuid.UUID         // first account that requested an address
	several bool              // other accounts have requested addresses, too
	stocked bool              // there has been an address
	takenAt time.Time
	filling chan struct{} // held by the request that takes a batch
	blind   bool          // passes have failed for longer than MaxBlind: a payment might not be seen
	epoch   int64         // of the addresses
	health  error         // why the chain is not being watched; nil if it is
	checks  int           // consecutive checks with this health
}

// observe drops the addresses if the epoch has changed, or the database has gone
// back in time.
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

// take returns an address, if there is one for the account. During a shortage
// that affects several accounts, an account gets no more than its share, and the
// last address only if it has taken none.
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

// add returns an unused address of an account to the pool.
func (p *addressPool) add(account uuid.UUID, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, address)
	if p.taken[account] > 0 {
		p.taken[account]--
	}
}

// fill adds a batch. If it is not full, the store has no more addresses.
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

// takeAddress returns an address from memory. It takes a batch from the store
// only if there is none. The error is card.ErrNoAddress if the store has none
// for the account either, or the pool is blind.
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
	select { // concurrent requests share one batch
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

// Addresses are taken from the store only while both are fresh.
const (
	MarkTTL  = 10 * time.Second // of the watcher's last attestation
	CheckTTL = time.Minute      // of the last comparison of wallet and address pool
)

// Prepare takes addresses before requests need them. After the payments of a
// currency have not been watched for Config.MaxBlind, it withholds the
// addresses. Call it about once a second. A failure of one currency does not
// affect another.
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
		s.recordHealth(ctx, currency, card.Unready("no worker has watched "+currency+" yet"))
		return nil // no addresses either
	}
	if err != nil {
		return err
	}
	pool.observe(state)
	pool.setBlind(state.Conflict || max(state.CheckedAgo, state.MarkedAgo) > s.cfg.MaxBlind)
	s.recordHealth(ctx, currency, state.health(currency))
	return s.fillMemory(ctx, currency)
}

// health returns why the chain is not being watched; nil if it is.
func (p PoolState) health(currency string) error {
	switch {
	case p.Conflict:
		return card.Unready("another database uses the wallet of " + currency +
			": run 'cardmint wallet claim' for the database that owns it")
	case p.MarkedAgo > MarkTTL:
		return card.Unready("no worker watches " + currency)
	case p.CheckedAgo > CheckTTL:
		return card.Unready(currency + " is not watched: node or wallet is not ready")
	}
	return nil
}

// settledChecks is how many consecutive checks must agree before a problem is
// logged. A process that starts together with its worker still finds the marks
// of the previous worker.
const settledChecks = 3

// recordHealth records the health of a currency, and logs changes. Without a
// watched chain, orders are accepted for Config.MaxBlind only.
func (s *Service) recordHealth(ctx context.Context, currency string, health error) {
	pool := s.pools[currency]
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if health != nil && pool.health != nil && health.Error() == pool.health.Error() {
		pool.checks++
	} else {
		if health == nil && pool.checks >= settledChecks {
			s.cfg.Log.InfoContext(ctx, "orders accepted without a time limit again", "currency", currency, "after",
				pool.health)
		}
		pool.checks = 1
	}
	if health != nil && pool.checks == settledChecks {
		s.cfg.Log.WarnContext(ctx, "orders accepted for a limited time only", "currency", currency, "reason", health, "limit",
			s.cfg.MaxBlind)
	}
	pool.health = health
}

// Stocked returns an error until this process has taken the first address of a
// currency: until then it can't accept an order. If addresses run out later, the
// process stays ready, because it can still serve reads. The error is a
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
