package webhook_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestDeleteWebhook_ManyDeliveries_DeletesInBatches(t *testing.T) {
	storetest.Each(t, func(t *testing.T, url string) {
		s := open(t, url)
		x := newSending(t, s)
		es := make([]card.Event, 2000)
		for i := range es {
			es[i] = newEvent(x.card, card.EventDetected)
		}
		insertEvents(t, s, es...)
		wantError(t, x.DeleteWebhook(t.Context(), newAccount(t, s), x.hook.ID), card.ErrNotFound)
		check(t, x.DeleteWebhook(t.Context(), x.card.AccountID, x.hook.ID))
		if n := scalar[int](t, url, "SELECT COUNT(*) FROM deliveries"); n != 0 {
			t.Errorf("%d deliveries are left", n)
		}
		wantError(t, x.DeleteWebhook(t.Context(), x.card.AccountID, x.hook.ID), card.ErrNotFound)
	})
}

func TestCreateWebhook_Concurrent_RespectsLimit(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s) // with two webhooks
		var mu sync.Mutex
		made := 0
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for range 5 {
					_, _, err := x.CreateWebhook(t.Context(), x.card.AccountID, webhook.Request{URL: ptr("https://shop.example.com/")})
					if err != nil && !errors.Is(err, card.ErrTooManyWebhooks) {
						t.Error(err)
					}
					mu.Lock()
					if err == nil {
						made++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		hooks, err := x.ListWebhooks(t.Context(), x.card.AccountID)
		check(t, err)
		if made != 14 || len(hooks) != 16 {
			t.Errorf("%d were created, now there are %d", made, len(hooks))
		}
		check(t, x.DeleteWebhook(t.Context(), x.card.AccountID, hooks[7].ID))
		_, _, err = x.CreateWebhook(t.Context(), x.card.AccountID, webhook.Request{URL: ptr("https://shop.example.com/")})
		check(t, err)
		_, _, err = x.CreateWebhook(t.Context(), newAccount(t, s), webhook.Request{URL: ptr("https://shop.example.com/")})
		check(t, err)
	})
}

// An unreadable secret must not delay other webhooks.
func TestClaimWebhooks_UnreadableSecret_IsReported(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		broken := newWebhook(x.card.AccountID)
		broken.Sealed = []byte("broken")
		insertWebhook(t, s, broken)
		x.insertEvents(t, 1)
		all, err := x.sender.Claims(t.Context(), 9)
		if err == nil || !strings.Contains(err.Error(), broken.ID.String()) || len(all) != 1 ||
			all[0].Webhook.ID != x.hook.ID {
			t.Errorf("claimed %v, error %v", all, err)
		}
	})
}

func TestClaimWebhooks_OldSecret_SignsForADay(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		x := newSending(t, s)
		x.insertEvents(t, 1)
		_, fresh, err := x.RotateWebhookSecret(ctx, x.card.AccountID, x.hook.ID)
		check(t, err)
		for after, want := range map[time.Duration][]card.Secret{0: {fresh, "sealed"}, 24*time.Hour - 1: {fresh, "sealed"},
			24 * time.Hour: {fresh}} {
			x.now = epoch.Add(after)
			c := x.claim(t)
			check(t, x.store.ReleaseWebhook(ctx, c))
			if !slices.Equal(c.Secrets, want) {
				t.Errorf("after %v: %d secrets, want %d", after, len(c.Secrets), len(want))
			}
		}
	})
}

func TestPrune_KeepsRecentAndPendingDeliveries(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 2100)
		c := x.claim(t)
		due, err := x.sender.DueDeliveries(t.Context(), c, 2099)
		check(t, err)
		var attempted []webhook.Attempted
		for _, d := range due {
			attempted = append(attempted, webhook.Attempted{Delivery: d, Attempt: webhook.Attempt{At: x.now, Status: 200}})
		}
		x.save(t, c, attempted)
		x.now = epoch.AddDate(0, 0, 30)
		check(t, x.sender.Prune(t.Context()))
		if n := len(deliveries(t, s, x.hook.ID)); n != 2100 {
			t.Errorf("%d deliveries of 2100 are left after 30 days", n)
		}
		x.now = x.now.Add(time.Millisecond)
		check(t, x.sender.Prune(t.Context()))
		wantDeliveries(t, s, x.hook.ID, "2100 pending")
	})
}

// awaitLock waits until a transaction on PostgreSQL waits for another, or done
// is closed.
func awaitLock(t testing.TB, url string, done <-chan struct{}) {
	t.Helper()
	beside := rig.OpenSQL(t, url)
	for waits := 0; waits == 0; {
		select {
		case <-done:
			return
		default:
			check(t, beside.QueryRow(
				"SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(
				&waits))
		}
	}
}

// insertBeside inserts an event while another transaction has executed
// statements and not committed yet. PostgreSQL only: SQLite has one writer.
func (x *sending) insertBeside(t *testing.T, url string, statements ...string) {
	t.Helper()
	other, err := rig.OpenSQL(t, url).Begin()
	check(t, err)
	defer func() { _ = other.Rollback() }()
	for _, q := range statements {
		_, err := other.Exec(strings.ReplaceAll(q, "?", "'"+x.hook.ID.String()+"'"))
		check(t, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = x.store.WebhookTx(context.Background(), func(tx webhook.Tx) error {
			return tx.InsertEvents(context.Background(), []card.Event{newEvent(x.card, card.EventDetected)})
		})
	}()
	awaitLock(t, url, done)
	check(t, other.Commit())
	<-done
	if err != nil {
		t.Errorf("insert event: %v", err)
	}
}

// The payment of a card must not fail if a client deletes a webhook at the same
// time.
func TestInsertEvents_DuringDeleteWebhook(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	x := newSending(t, open(t, url))
	x.insertBeside(t, url, "DELETE FROM webhooks WHERE id = ?")
	if got := seqs(t, x.store, x.card.AccountID); len(got) != 1 {
		t.Errorf("events %v", got)
	}
	wantDeliveries(t, x.store, x.hook.ID)
}
