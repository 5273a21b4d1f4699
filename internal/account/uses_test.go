package account_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// wantUses checks the stored times of last use.
func (d *fixture) wantUses(t *testing.T, want map[uuid.UUID]time.Time) {
	t.Helper()
	got, err := d.store.TokenUses(t.Context())
	check(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The times of last use are written once a minute, for any number of requests.
func TestSaveUses_ManyRequests_OneWrite(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	busy, busyText := d.token(t, 0)
	quiet, quietText := d.token(t, 0)
	d.token(t, 0) // never used
	check(t, d.SaveUses(t.Context()))
	d.accepts(t, quiet, quietText, 1)
	for range 100 {
		d.now = d.now.Add(10 * time.Millisecond)
		_, err := d.Authenticate(t.Context(), busyText)
		check(t, err)
	}
	d.wantUses(t, map[uuid.UUID]time.Time{})
	for range 3 { // nothing new after the first time
		check(t, d.SaveUses(t.Context()))
	}
	if n := d.store.saves.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
	d.wantUses(t, map[uuid.UUID]time.Time{busy.ID: epoch.Add(time.Second), quiet.ID: epoch})
}

func TestSaveUses_Rejected_IsNoUse(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, time.Hour)
	d.accepts(t, token, text, 1)
	d.now = epoch.Add(time.Hour)
	d.rejects(t, text, 1)
	revoked, revokedText := d.token(t, 0)
	check(t, d.RevokeToken(t.Context(), revoked.ID))
	d.rejects(t, revokedText, 1)
	d.rejects(t, account.MadeUp(7), 1)
	check(t, d.SaveUses(t.Context()))
	d.wantUses(t, map[uuid.UUID]time.Time{token.ID: epoch})
}

func TestSaveUses_StoreFails_KeepsUses(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	one, oneText := d.token(t, 0)
	two, twoText := d.token(t, 0)
	d.accepts(t, one, oneText, 1)
	d.accepts(t, two, twoText, 1)
	d.store.fails = "SaveUses"
	wantError(t, d.SaveUses(t.Context()), card.ErrUnavailable)
	d.now = epoch.Add(time.Second)
	d.accepts(t, one, oneText, 0)
	wantError(t, d.SaveUses(t.Context()), card.ErrUnavailable)
	d.store.fails = ""
	check(t, d.SaveUses(t.Context()))
	d.wantUses(t, map[uuid.UUID]time.Time{one.ID: epoch.Add(time.Second), two.ID: epoch})
}

// Several processes store the latest use, in any order of their writes.
func TestSaveUses_SeveralProcesses_LatestStored(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	other := d.with(t, d.vault, "")
	_, err := other.Authenticate(t.Context(), text)
	check(t, err)
	d.now = epoch.Add(time.Minute)
	d.accepts(t, token, text, 1)
	check(t, d.SaveUses(t.Context()))
	check(t, other.SaveUses(t.Context()))
	d.wantUses(t, map[uuid.UUID]time.Time{token.ID: epoch.Add(time.Minute)})
}

// Requests during SaveUses lose no use.
func TestSaveUses_ConcurrentRequests(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	var requests, saves sync.WaitGroup
	done := make(chan struct{})
	saves.Go(func() {
		for {
			if err := d.SaveUses(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range 4 {
		requests.Go(func() {
			for range 500 {
				if _, err := d.Authenticate(t.Context(), text); err != nil {
					t.Error(err)
				}
			}
		})
	}
	requests.Wait()
	close(done)
	saves.Wait()
	check(t, d.SaveUses(t.Context()))
	d.wantUses(t, map[uuid.UUID]time.Time{token.ID: epoch})
}
