package store_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/store"
)

// wantPanics calls f for each card at the same time. Every call must return the
// error of a panic.
func wantPanics(t *testing.T, cards []*card.Card, f func(context.Context, *card.Card) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range cards {
		all.Go(func() {
			err := f(ctx, c)
			if _, panicked := errors.AsType[*panics.Error](err); !panicked {
				t.Errorf("card %s: %v", c.UUID, err)
			}
		})
	}
	all.Wait()
}

// A shared statement runs in its own goroutine. If it panics, every caller gets
// an error, and later cards are stored.
func TestInsertCard_SharedStatementPanics_NoCallerWaits(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		restore := store.BreakStatements(s)
		cards := make([]*card.Card, 20)
		for i := range cards {
			cards[i] = newCard(account)
		}
		wantPanics(t, cards, func(ctx context.Context, c *card.Card) error {
			_, err := s.InsertCard(ctx, c, 0)
			return err
		})
		restore()
		insertCard(t, s, newCard(account))
	})
}

func TestCardByUUID_SharedStatementPanics_NoCallerWaits(t *testing.T) {
	s, _ := onPostgres(t)
	account := newAccount(t, s)
	c := insertCard(t, s, newCard(account))
	restore := store.BreakStatements(s)
	waiting, release := store.HoldReads(s)
	go func() {
		for waiting() < 3 {
			runtime.Gosched()
		}
		release()
	}()
	wantPanics(t, []*card.Card{c, c, c}, func(ctx context.Context, c *card.Card) error {
		_, err := s.CardByUUID(ctx, account, c.UUID)
		return err
	})
	restore()
	_, err := s.CardByUUID(t.Context(), account, c.UUID)
	check(t, err)
}
