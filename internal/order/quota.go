package order

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// exposureTTL is how long an exposure is cached. Orders that this process
// accepts are added to the cached exposure. Orders of other processes are not:
// the store checks the quota again when it inserts a card.
const exposureTTL = 5 * time.Second

// exposures caches the exposure of accounts, so that most requests do not query
// it. Its zero value is ready for use.
type exposures struct{ entries sync.Map } // of *exposureEntry, by account

type exposureEntry struct {
	// turn admits one request at a time: for the account's first query, and
	// while an order is stored that a quota applies to. PostgreSQL does not
	// count orders that are being stored at the same time.
	turn       chan struct{}
	mu         sync.Mutex
	exposure   Exposure
	readAt     time.Time // zero if unknown
	refreshing bool      // a request is querying the store; concurrent ones use the cached value
}

// acquireTurn waits for the account's turn.
func (e *exposureEntry) acquireTurn(ctx context.Context) (release func(), err error) {
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }, nil
	case <-ctx.Done():
		return nil, card.ErrUnavailable.WithCause(ctx.Err())
	}
}

// reserve reserves an account's quota for an order of usd. The error is
// card.ErrQuotaExceeded if the open orders would exceed the quota, and
// card.ErrAccountFrozen if the payment of an issued card is reversed. Otherwise
// the caller must call release, and report whether the card was stored.
func (s *Service) reserve(ctx context.Context, account uuid.UUID, usd card.USD) (release func(stored bool), err error) {
	if s.cfg.MaxOpenUSD == 0 && !s.cfg.FreezeReversed {
		return func(bool) {}, nil
	}
	e := s.exposureOf(account)
	if err := s.refresh(ctx, account, e); err != nil {
		return nil, err
	}
	releaseTurn := func() {}
	if s.cfg.MaxOpenUSD > 0 {
		if releaseTurn, err = e.acquireTurn(ctx); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err = s.checkQuota(e.exposure, usd)
	if s.cfg.FreezeReversed && e.exposure.Reversed {
		err = card.ErrAccountFrozen
	}
	if err != nil {
		releaseTurn()
		return nil, err
	}
	reservedAt := e.readAt
	return func(stored bool) {
		defer releaseTurn()
		e.mu.Lock()
		defer e.mu.Unlock()
		if stored && e.readAt.Equal(reservedAt) { // an exposure that was read later may include usd
			e.exposure.OpenUSD += usd
		}
	}, nil
}

// forgetExposure drops the cached exposure of an account that may have fewer
// open orders now.
func (s *Service) forgetExposure(account uuid.UUID) {
	found, ok := s.exposures.entries.Load(account)
	if !ok {
		return
	}
	e := found.(*exposureEntry)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readAt = time.Time{}
}

func (s *Service) exposureOf(account uuid.UUID) *exposureEntry {
	found, ok := s.exposures.entries.Load(account)
	if !ok {
		found, _ = s.exposures.entries.LoadOrStore(account, &exposureEntry{turn: make(chan struct{}, 1)})
	}
	return found.(*exposureEntry)
}

// checkQuota returns card.ErrQuotaExceeded if a card of usd would exceed the
// quota of an account with this exposure.
func (s *Service) checkQuota(e Exposure, usd card.USD) error {
	left := s.cfg.MaxOpenUSD - e.OpenUSD
	if s.cfg.MaxOpenUSD == 0 || usd <= left {
		return nil
	}
	return card.ErrQuotaExceeded.WithMessage(
		fmt.Sprintf("Cards worth %s US dollars wait for their payment; your account may have %s open. "+
			"Pay some of them, or try again when they have expired.", e.OpenUSD, s.cfg.MaxOpenUSD)).
		WithQuota(card.Quota{Name: "open-usd", Limit: int64(s.cfg.MaxOpenUSD / 100), Left: int64(max(0, left) / 100)})
}

// recheck reads the exposure of an account after the store rejected a card. The
// error is card.ErrQuotaExceeded if the quota was the reason.
func (s *Service) recheck(ctx context.Context, account uuid.UUID, usd card.USD) error {
	e := s.exposureOf(account)
	if err := s.readExposure(ctx, account, e); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.checkQuota(e.exposure, usd)
}

// refresh reads the exposure unless it is cached and younger than exposureTTL.
func (s *Service) refresh(ctx context.Context, account uuid.UUID, e *exposureEntry) error {
	e.mu.Lock()
	known, fresh := !e.readAt.IsZero(), e.refreshing || s.cfg.Now().Sub(e.readAt) < exposureTTL
	if known && !fresh {
		e.refreshing = true
	}
	e.mu.Unlock()
	switch {
	case !known:
		return s.readFirst(ctx, account, e)
	case fresh:
		return nil
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.refreshing = false
	}()
	return s.readExposure(ctx, account, e)
}

// readFirst reads an exposure that is not cached. Concurrent requests share one
// query.
func (s *Service) readFirst(ctx context.Context, account uuid.UUID, e *exposureEntry) error {
	releaseTurn, err := e.acquireTurn(ctx)
	if err != nil {
		return err
	}
	defer releaseTurn()
	e.mu.Lock()
	known := !e.readAt.IsZero()
	e.mu.Unlock()
	if known {
		return nil
	}
	return s.readExposure(ctx, account, e)
}

func (s *Service) readExposure(ctx context.Context, account uuid.UUID, e *exposureEntry) error {
	now := s.cfg.Now()
	exposure, err := s.store.Exposure(ctx, account, s.cfg.MaxOpenUSD > 0)
	if err != nil {
		return fmt.Errorf("read exposure: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exposure, e.readAt = exposure, now
	return nil
}
