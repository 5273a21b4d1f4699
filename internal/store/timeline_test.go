package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// The old primary restarts before it learns that a standby was promoted. It
// must not be used: it lacks the orders that were acknowledged since.
func TestSeveralHosts_OldPrimary_IsNotUsedAgain(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	standby := primary.Standby(t, "second")
	line := rig.NewLine(t, primary.Host())
	s := openNew(t, "postgres://postgres@"+line.Host()+","+standby.Host()+"/postgres?sslmode=disable")
	owner := newAccount(t, s)
	warm(t, s)
	awaitFirst(t, standby, "accounts")
	line.Down()
	standby.Promote(t)
	c := newCard(owner)
	eventually(t, func() error { _, err := s.InsertCard(t.Context(), c, 0); return err })
	line.Up()
	var all sync.WaitGroup
	for range 8 { // enough for several sessions
		all.Go(func() {
			for range 20 {
				if _, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID); err != nil && !errors.Is(err, card.ErrUnavailable) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	primary.Stop()
	eventually(t, func() error { _, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID); return err })
}

// An unresponsive primary must not delay orders once another server was
// promoted.
func TestSeveralHosts_WaitingForOldPrimary_IsCanceled(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	standby := primary.Standby(t, "second")
	s := openNew(t, "postgres://postgres@"+primary.Host()+","+standby.Host()+"/postgres?sslmode=disable")
	owner := newAccount(t, s)
	warm(t, s)
	awaitFirst(t, standby, "accounts")
	primary.Freeze()
	order := func() error { // like a request, reads before it writes
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.Ping(ctx); err != nil {
			return err
		}
		_, err := s.InsertCard(ctx, newCard(owner), 0)
		return err
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.InsertCard(ctx, newCard(owner), 0)
			wantError(t, err, card.ErrUnavailable)
		})
	}
	all.Wait()
	standby.Promote(t)
	promoted := time.Now()
	var stored atomic.Int32
	for stored.Load() == 0 {
		if time.Since(promoted) > 25*time.Second {
			t.Fatalf("no order was stored within %s after another server was promoted", time.Since(promoted).Round(time.Second))
		}
		for range 8 {
			all.Go(func() {
				if order() == nil {
					stored.Add(1)
				}
			})
		}
		all.Wait()
	}
}

// A pooler or proxy may still route to the previous primary.
func TestStandby_Transaction_IsUnavailable(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	openNew(t, primary.URL("postgres"))
	s := open(t, primary.Standby(t, "second").URL("postgres"))
	wantError(t, s.Do(t.Context(), func(*store.Tx) error { return nil }), card.ErrUnavailable)
	_, err := s.InsertCard(t.Context(), newCard(uuid.New()), 0)
	wantError(t, err, card.ErrUnavailable)
}
