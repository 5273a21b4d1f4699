package webhook_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// A delivery that a client requests again during a failing attempt stays due.
func TestRedeliver_DuringAttempt_StaysDue(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 2)
		c := x.claim(t)
		attempted := x.attempted(t, c, 500, 500)
		for i := range attempted {
			attempted[i].Delivery.Tries = 9
		}
		x.now = x.now.Add(time.Second)
		check(t, x.Redeliver(t.Context(), x.card.AccountID, x.hook.ID, attempted[0].Delivery.Event.ID))
		x.save(t, c, attempted)
		wantDeliveries(t, s, x.hook.ID, "2 failed", "1 pending")
	})
}

func TestRecoverWebhook_GoesBackToRetention(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		var es []card.Event
		for i := range 2300 { // more than one transaction redelivers
			e := newEvent(x.card, card.EventDetected)
			e.CreatedAt = epoch.Add(time.Duration(i) * time.Millisecond)
			es = append(es, e)
		}
		insertEvents(t, s, es...)
		w := insertWebhook(t, s, newWebhook(x.card.AccountID))
		x.now = epoch.AddDate(0, 0, 30).Add(100 * time.Millisecond)
		for _, want := range []int64{2200, 0} {
			if n, err := x.RecoverWebhook(t.Context(), w.AccountID, w.ID, time.Time{}); err != nil || n != want {
				t.Errorf("%d redelivered, want %d, error %v", n, want, err)
			}
		}
		ds := deliveries(t, s, w.ID)
		if len(ds) != 2200 || ds[2199].Event.Seq != 101 || !ds[0].DueAt.Equal(x.now) {
			t.Errorf("%d deliveries", len(ds))
		}
		x.change(t, webhook.Request{Enabled: ptr(false)})
		_, err := x.RecoverWebhook(t.Context(), w.AccountID, x.hook.ID, epoch)
		wantError(t, err, card.ErrWebhookDisabled)
		_, err = x.RecoverWebhook(t.Context(), newAccount(t, s), w.ID, epoch)
		wantError(t, err, card.ErrNotFound)
	})
}

func TestRecoverWebhook_SkewedClocks_FindsAllEvents(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		// The clock of the process that made the third event is 50 seconds
		// behind.
		for _, at := range []time.Duration{-2 * time.Minute, 0, -50 * time.Second, 10 * time.Second} {
			e := newEvent(x.card, card.EventDetected)
			e.CreatedAt = epoch.Add(at)
			insertEvents(t, s, e)
		}
		w := insertWebhook(t, s, newWebhook(x.card.AccountID))
		if n, err := x.RecoverWebhook(t.Context(), w.AccountID, w.ID, epoch.Add(5*time.Second)); err != nil || n != 1 {
			t.Errorf("%d redelivered, want 1; error %v", n, err)
		}
		if n, err := x.RecoverWebhook(t.Context(), w.AccountID, w.ID, epoch); err != nil || n != 1 {
			t.Errorf("%d more redelivered, want 1; error %v", n, err)
		}
		wantDeliveries(t, s, w.ID, "4 pending", "2 pending")
	})
}

func TestRedeliver_UnknownEvent_IsNotFound(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		insertEvents(t, s, newEvent(x.card, card.EventLate)) // of a type that it does not subscribe to
		es, err := s.Events(t.Context(), x.card.AccountID, 0, 9)
		check(t, err)
		for _, id := range []uuid.UUID{uuid.New(), es[0].ID} {
			err := x.Redeliver(t.Context(), x.card.AccountID, x.hook.ID, id)
			wantError(t, err, card.ErrNotFound)
			wantSaying(t, err, "no delivery of an event")
		}
		wantError(t, x.Redeliver(t.Context(), x.card.AccountID, uuid.New(), es[0].ID), card.ErrNotFound)
		x.change(t, webhook.Request{Enabled: ptr(false)})
		wantError(t, x.Redeliver(t.Context(), x.card.AccountID, x.hook.ID, es[0].ID), card.ErrWebhookDisabled)
	})
}

func TestListDeliveries_Pages(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 5)
		c := x.claim(t)
		x.save(t, c, x.attempted(t, c, 200, 500, 200))
		for _, tt := range []struct {
			filter webhook.DeliveryFilter
			want   []int64
			more   bool
		}{
			{webhook.DeliveryFilter{Limit: 9}, []int64{5, 4, 3, 2, 1}, false},
			{webhook.DeliveryFilter{Limit: 5}, []int64{5, 4, 3, 2, 1}, false},
			{webhook.DeliveryFilter{Limit: 4}, []int64{5, 4, 3, 2}, true},
			{webhook.DeliveryFilter{Limit: 2, Before: 4}, []int64{3, 2}, true},
			{webhook.DeliveryFilter{Limit: 2, Before: 3}, []int64{2, 1}, false},
			{webhook.DeliveryFilter{Limit: 1, State: webhook.DeliveryDelivered}, []int64{3}, true},
			{webhook.DeliveryFilter{Limit: 9, State: webhook.DeliveryDelivered, Before: 3}, []int64{1}, false},
			{webhook.DeliveryFilter{Limit: 9, State: webhook.DeliveryPending}, []int64{5, 4, 2}, false},
			{webhook.DeliveryFilter{Limit: 9, State: webhook.DeliveryFailed}, nil, false},
		} {
			ds, more, err := x.ListDeliveries(t.Context(), x.card.AccountID, x.hook.ID, tt.filter)
			check(t, err)
			var got []int64
			for _, d := range ds {
				got = append(got, d.Event.Seq)
			}
			if !slices.Equal(got, tt.want) || more != tt.more {
				t.Errorf("%+v: %v, more: %t", tt.filter, got, more)
			}
		}
		_, _, err := x.ListDeliveries(t.Context(), newAccount(t, s), x.hook.ID, webhook.DeliveryFilter{Limit: 9})
		wantError(t, err, card.ErrNotFound)
	})
}

func TestListEvents_Pages(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		account := x.card.AccountID
		want := func(after int64, limit int, seqs []int64, wantMore bool) {
			t.Helper()
			es, more, err := x.ListEvents(t.Context(), account, webhook.EventFilter{After: after, Limit: limit})
			check(t, err)
			var got []int64
			for _, e := range es {
				got = append(got, e.Seq)
			}
			if diff := cmp.Diff(seqs, got); diff != "" || more != wantMore {
				t.Errorf("after %d, at most %d: %s; more: %t", after, limit, diff, more)
			}
		}
		want(0, 9, nil, false) // no event yet
		x.insertEvents(t, 4)
		want(0, 3, []int64{1, 2, 3}, true)
		want(3, 3, []int64{4}, false)
		want(0, 4, []int64{1, 2, 3, 4}, false)
		want(1, 2, []int64{2, 3}, true)
		want(4, 9, nil, false)
	})
}

// After a restore, a reader may be ahead of the feed. An empty page would make
// it skip the next events.
func TestListEvents_AfterUnassignedSeq_IsAnError(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		for newest, after := range []int64{1, 2, 100} {
			_, _, err := x.ListEvents(t.Context(), x.card.AccountID, webhook.EventFilter{After: after, Limit: 9})
			wantError(t, err, card.ErrInvalidRequest)
			wantField(t, err, "query/after", "newest event, "+string(rune('0'+newest))+":")
			x.insertEvents(t, 1)
		}
	})
}
