package order

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// standingLasts is how long a standing is cached. Orders that this process accepts meanwhile are added to it. Orders that other processes
// accept are not, so that an account can exceed its limit by those.
const standingLasts = 5 * time.Second

// standings caches the standing of accounts, so that most requests need not ask the store. Its zero value is ready for use.
type standings struct{ entries sync.Map } // of *standingEntry, by account

type standingEntry struct {
	mu       sync.Mutex
	standing Standing
	askedAt  time.Time
	asking   bool // one request is asking the store again; the others use what is cached
}

// reserve adds usd to the account's open orders, and returns a function that undoes that. The error is card.ErrQuotaExceeded if the
// account has too much open, and card.ErrAccountFrozen if one of its issued cards is reversed.
func (s *Service) reserve(ctx context.Context, account uuid.UUID, usd card.USD) (takeBack func(), err error) {
	if s.cfg.MaxOpenUSD == 0 && !s.cfg.FreezeReversed {
		return func() {}, nil
	}
	found, _ := s.standings.entries.LoadOrStore(account, &standingEntry{})
	e := found.(*standingEntry)
	if err := s.refresh(ctx, account, e); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.cfg.FreezeReversed && e.standing.Reversed {
		return nil, card.ErrAccountFrozen
	}
	if s.cfg.MaxOpenUSD == 0 {
		return func() {}, nil
	}
	if left := s.cfg.MaxOpenUSD - e.standing.OpenUSD; usd > left {
		return nil, card.ErrQuotaExceeded.Saying(fmt.Sprintf("Cards worth %s US dollars wait for their payment; your account may have %s open. "+
			"Pay some of them, or try again when they have expired.", e.standing.OpenUSD, s.cfg.MaxOpenUSD)).
			WithQuota(card.Quota{Name: "open-usd", Limit: int64(s.cfg.MaxOpenUSD / 100), Left: int64(max(0, left) / 100)})
	}
	asOf := e.askedAt
	e.standing.OpenUSD += usd
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.askedAt.Equal(asOf) { // a standing that was read since does not include usd
			e.standing.OpenUSD -= usd
		}
	}, nil
}

// refresh asks the store for the standing if it is not cached, or was cached for too long.
func (s *Service) refresh(ctx context.Context, account uuid.UUID, e *standingEntry) error {
	now := s.cfg.Now()
	e.mu.Lock()
	if known := !e.askedAt.IsZero(); known && (e.asking || now.Sub(e.askedAt) < standingLasts) {
		e.mu.Unlock()
		return nil
	}
	e.asking = true
	e.mu.Unlock()
	standing, err := s.store.Standing(ctx, account, s.cfg.MaxOpenUSD > 0)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asking = false
	if err != nil {
		return fmt.Errorf("standing: %w", err)
	}
	e.standing, e.askedAt = standing, now
	return nil
}
