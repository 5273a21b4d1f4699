package order

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// standingLasts is how long a standing is cached. Orders that this process
// accepts meanwhile are added to it. Orders that other processes accept are
// not: the store counts those when it stores a card.
const standingLasts = 5 * time.Second

// standings caches the standing of accounts, so that most requests need not ask
// the store. Its zero value is ready for use.
type standings struct{ entries sync.Map } // of *standingEntry, by account

type standingEntry struct {
	// turn is held by one request at a time while nothing is known of the
	// account yet, and while an order is stored that a limit applies to:
	// PostgreSQL does not count orders that others are storing at the same
	// time.
	turn     chan struct{}
	mu       sync.Mutex
	standing Standing
	askedAt  time.Time
	asking   bool // one request is asking the store again; the others use what is cached
}

// take waits for the turn, and returns a function that gives it back.
func (e *standingEntry) take(ctx context.Context) (giveBack func(), err error) {
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }, nil
	case <-ctx.Done():
		return nil, card.ErrUnavailable.Because(ctx.Err())
	}
}

// enter admits an order of usd. The error is card.ErrQuotaExceeded if the
// account has too much open, and card.ErrAccountFrozen if one of its issued
// cards is reversed. Otherwise the caller must call leave in the end, and say
// whether the card was stored.
func (s *Service) enter(ctx context.Context, account uuid.UUID, usd card.USD) (leave func(sold bool), err error) {
	if s.cfg.MaxOpenUSD == 0 && !s.cfg.FreezeReversed {
		return func(bool) {}, nil
	}
	e := s.standingOf(account)
	if err := s.refresh(ctx, account, e); err != nil {
		return nil, err
	}
	giveBack := func() {}
	if s.cfg.MaxOpenUSD > 0 {
		if giveBack, err = e.take(ctx); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err = s.tooMuch(e.standing, usd)
	if s.cfg.FreezeReversed && e.standing.Reversed {
		err = card.ErrAccountFrozen
	}
	if err != nil {
		giveBack()
		return nil, err
	}
	asOf := e.askedAt
	return func(sold bool) {
		defer giveBack()
		e.mu.Lock()
		defer e.mu.Unlock()
		if sold && e.askedAt.Equal(asOf) { // a standing that was read since may include usd
			e.standing.OpenUSD += usd
		}
	}, nil
}

// forgetStanding has the next order of an account ask the store for its
// standing: it may have less open now.
func (s *Service) forgetStanding(account uuid.UUID) {
	found, ok := s.standings.entries.Load(account)
	if !ok {
		return
	}
	e := found.(*standingEntry)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.askedAt = time.Time{}
}

func (s *Service) standingOf(account uuid.UUID) *standingEntry {
	found, ok := s.standings.entries.Load(account)
	if !ok {
		found, _ = s.standings.entries.LoadOrStore(account, &standingEntry{turn: make(chan struct{}, 1)})
	}
	return found.(*standingEntry)
}

// tooMuch returns card.ErrQuotaExceeded if an account of that standing may not
// order a card of usd.
func (s *Service) tooMuch(is Standing, usd card.USD) error {
	left := s.cfg.MaxOpenUSD - is.OpenUSD
	if s.cfg.MaxOpenUSD == 0 || usd <= left {
		return nil
	}
	return card.ErrQuotaExceeded.Saying(
		fmt.Sprintf("Cards worth %s US dollars wait for their payment; your account may have %s open. "+
			"Pay some of them, or try again when they have expired.", is.OpenUSD, s.cfg.MaxOpenUSD)).
		WithQuota(card.Quota{Name: "open-usd", Limit: int64(s.cfg.MaxOpenUSD / 100), Left: int64(max(0, left) / 100)})
}

// recheck asks the store why it did not store a card within the limit. The
// error is card.ErrQuotaExceeded if the limit is why.
func (s *Service) recheck(ctx context.Context, account uuid.UUID, usd card.USD) error {
	e := s.standingOf(account)
	if err := s.ask(ctx, account, e); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.tooMuch(e.standing, usd)
}

// refresh asks the store for the standing if it is not cached, or was cached
// for too long.
func (s *Service) refresh(ctx context.Context, account uuid.UUID, e *standingEntry) error {
	e.mu.Lock()
	known, fresh := !e.askedAt.IsZero(), e.asking || s.cfg.Now().Sub(e.askedAt) < standingLasts
	if known && !fresh {
		e.asking = true
	}
	e.mu.Unlock()
	switch {
	case !known:
		return s.askFirst(ctx, account, e)
	case fresh:
		return nil
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asking = false
	}()
	return s.ask(ctx, account, e)
}

// askFirst asks the store for a standing that was never asked for. Concurrent
// requests wait for one answer.
func (s *Service) askFirst(ctx context.Context, account uuid.UUID, e *standingEntry) error {
	giveBack, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	e.mu.Lock()
	known := !e.askedAt.IsZero()
	e.mu.Unlock()
	if known {
		return nil
	}
	return s.ask(ctx, account, e)
}

func (s *Service) ask(ctx context.Context, account uuid.UUID, e *standingEntry) error {
	now := s.cfg.Now()
	standing, err := s.store.Standing(ctx, account, s.cfg.MaxOpenUSD > 0)
	if err != nil {
		return fmt.Errorf("standing: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.standing, e.askedAt = standing, now
	return nil
}
