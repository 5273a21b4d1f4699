package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestDueDeliveries_LongestDueFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account := t.Context(), newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		for range 6 {
			insertEvents(t, s, newEvent(c, card.EventDetected))
		}
		at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
		saveDeliveries(t, s, w.ID, of(1, webhook.DeliveryPending, at(3)), of(2, webhook.DeliveryPending, at(1)),
			of(3, webhook.DeliveryDelivered, time.Time{}),
			of(4, webhook.DeliveryPending, at(2)), of(5, webhook.DeliveryPending, at(2)),
			of(6, webhook.DeliveryFailed, time.Time{}))
		for _, tt := range []struct {
			minutes, n int
			want       []int64
		}{{0, 9, nil}, {1, 9, []int64{2}}, {2, 9, []int64{2, 4, 5}}, {3, 9, []int64{2, 4, 5, 1}}, {3, 2, []int64{2, 4}},
			{3, 3, []int64{2, 4, 5}}} {
			due, err := s.DueDeliveries(ctx, w.ID, at(tt.minutes), tt.n)
			check(t, err)
			var got []int64
			for _, d := range due {
				got = append(got, d.Event.Seq)
				if !d.DueAt.Equal(at(1)) && !d.DueAt.Equal(at(2)) && !d.DueAt.Equal(at(3)) {
					t.Errorf("%d is due %v", d.Event.Seq, d.DueAt)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%d deliveries after %d minutes: %s", tt.n, tt.minutes, diff)
			}
		}
		if due, err := s.DueDeliveries(ctx, w.ID, at(2).Add(-time.Millisecond), 9); err != nil || len(due) != 1 {
			t.Errorf("%d deliveries just before they are due, error %v", len(due), err)
		}
		// A new delivery is due regardless of clocks: the local one is years
		// behind the event's time.
		if due, err := s.DueDeliveries(ctx, other.ID, time.UnixMilli(0), 9); err != nil || len(due) != 6 ||
			!due[0].DueAt.Equal(webhook.Immediately()) {
			t.Errorf("%d new deliveries, error %v", len(due), err)
		}
	})
}

func TestDueRetries_OldestEventFirstAndNoneThatIsNew(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		for range 6 {
			insertEvents(t, s, newEvent(c, card.EventDetected))
		}
		at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
		saveDeliveries(t, s, w.ID, of(1, webhook.DeliveryFailed, time.Time{}), of(2, webhook.DeliveryPending, at(3)),
			of(3, webhook.DeliveryPending, at(2)),
			of(4, webhook.DeliveryDelivered, time.Time{}), of(5, webhook.DeliveryPending, at(1)))
		saveDeliveries(t, s, other.ID, of(1, webhook.DeliveryPending, at(0)))
		for _, tt := range []struct {
			minutes, n int
			want       []int64
		}{{0, 9, nil}, {1, 9, []int64{5}}, {2, 9, []int64{3, 5}}, {3, 9, []int64{2, 3, 5}}, {3, 2, []int64{2, 3}}} {
			due, err := s.DueRetries(t.Context(), w.ID, at(tt.minutes), tt.n)
			check(t, err)
			var got []int64
			for _, d := range due {
				got = append(got, d.Event.Seq)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%d deliveries after %d minutes: %s", tt.n, tt.minutes, diff)
			}
		}
	})
}

func TestSaveDeliveries_WhatCameOfThemComesBack(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		for range 5 {
			insertEvents(t, s, newEvent(c, card.EventDetected))
		}
		events, err := s.Events(t.Context(), account, 0, 9)
		check(t, err)
		later := epoch.Add(5*time.Minute + time.Millisecond)
		want := []webhook.Delivery{
			// not saved
			{Event: events[4], State: webhook.DeliveryPending, DueAt: webhook.Immediately(), Attempts: []webhook.Attempt{}},
			{Event: events[3], State: webhook.DeliveryPending, DueAt: later, Tries: 3, Attempts: []webhook.Attempt{
				{At: epoch, Took: 15 * time.Second, Error: "no connection within 15 s: \"dial\" 'x' \\ ? $1 🎉"},
				{At: epoch.Add(time.Second), Took: time.Millisecond, Status: 500,
					Answer: "<b>\"'; DROP TABLE deliveries;--\n\t\\u0000 \\ ü 日本 🎉 \u2028 \ufffd ?"},
				{At: later, Status: 599},
			}},
			{Event: events[2], State: webhook.DeliveryFailed, Tries: 10,
				Attempts: []webhook.Attempt{{At: epoch, Status: 410, Answer: "gone"}}},
			{Event: events[1], State: webhook.DeliveryDelivered, Tries: 1,
				Attempts: []webhook.Attempt{{At: epoch, Took: 84 * time.Millisecond, Status: 200, Answer: "NULL"}}},
			{Event: events[0], State: webhook.DeliveryDelivered, Tries: 2, Attempts: []webhook.Attempt{}},
		}
		saveDeliveries(t, s, w.ID, want[4], want[3], want[2], want[1])
		if diff := cmp.Diff(want, deliveries(t, s, w.ID)); diff != "" {
			t.Error(diff)
		}
		wantDeliveries(t, s, other.ID, "5 pending", "4 pending", "3 pending", "2 pending", "1 pending")
	})
}

// Both databases store any response of a receiver.
func TestSaveDeliveries_AnswerThatIsNoText(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		d := of(1, webhook.DeliveryDelivered, time.Time{})
		d.Attempts = []webhook.Attempt{{At: epoch, Status: 200, Answer: "a\x00b\x00\x00"},
			{At: epoch, Status: 500, Answer: "\xff\xfe\xed\xa0\x80c\x1b[31m\x7f"}, {At: epoch, Error: "d\x00\xff"}}
		saveDeliveries(t, s, w.ID, d)
		got := deliveries(t, s, w.ID)[0].Attempts
		if len(got) != 3 || got[0].Answer != "ab" || !strings.Contains(got[1].Answer, "c\x1b[31m\x7f") ||
			!strings.HasPrefix(got[2].Error, "d") {
			t.Errorf("%+v", got)
		}
	})
}

func TestSaveDeliveries_MoreThanOneStatementHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: writes thousands of rows")
	}
	conform(t, func(t *testing.T, s *store.Store) {
		const n = 1201
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w := insertWebhook(t, s, newWebhook(account))
		var es []card.Event
		var ds []webhook.Delivery
		for i := range n {
			es = append(es, newEvent(c, card.EventDetected))
			d := of(int64(i+1), webhook.DeliveryDelivered, time.Time{})
			if i%3 == 0 {
				d = of(int64(i+1), webhook.DeliveryPending, epoch.Add(time.Duration(i)*time.Second))
			}
			d.Tries, d.Attempts = i%11, []webhook.Attempt{{At: epoch, Took: time.Duration(i) * time.Millisecond, Status: 200}}
			ds = append(ds, d)
		}
		insertEvents(t, s, es...)
		saveDeliveries(t, s, w.ID, ds...)
		got := deliveries(t, s, w.ID)
		slices.Reverse(got)
		for i := range got {
			got[i].Event = card.Event{Seq: got[i].Event.Seq}
		}
		if diff := cmp.Diff(ds, got); diff != "" {
			t.Error(diff)
		}
	})
}

func redeliver(ctx context.Context, s *store.Store, account, webhook, event uuid.UUID, now time.Time) error {
	return s.Do(ctx, func(tx *store.Tx) error { return tx.Redeliver(ctx, account, webhook, event, now) })
}

// A redelivery that is requested during an attempt is sent even if the attempt
// succeeds.
func TestSaveDeliveries_RedeliveryDuringAttempt_IsKept(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		w := dueWebhook(t, s)
		insertEvents(t, s, newEvent(insertCard(t, s, newCard(w.AccountID)), card.EventDetected))
		before := deliveries(t, s, w.ID)
		check(t, redeliver(ctx, s, w.AccountID, w.ID, before[0].Event.ID, epoch.Add(time.Second)))
		for _, state := range []webhook.DeliveryState{webhook.DeliveryFailed, webhook.DeliveryDelivered} {
			after := slices.Clone(before)
			for i := range after {
				after[i].State, after[i].DueAt, after[i].Tries = state, time.Time{}, 10
			}
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.SaveDeliveries(ctx, w.ID, before, after) })
			got := deliveries(t, s, w.ID)
			if d := got[0]; d.State != webhook.DeliveryPending || d.Tries != 0 || !d.DueAt.Equal(epoch.Add(time.Second)) {
				t.Errorf("%s, %d tries, due %v", d.State, d.Tries, d.DueAt)
			}
			if got[1].State != webhook.DeliveryFailed { // stored in the first round, rejected in the second
				t.Errorf("%s", got[1].State)
			}
		}
	})
}

func TestRedeliver_WithANewSchedule(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account := t.Context(), newAccount(t, s)
		c, foreign := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(newAccount(t, s)))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		choosy, theirs := insertWebhook(t, s, newWebhook(account, card.EventLate)),
			insertWebhook(t, s, newWebhook(foreign.AccountID))
		for range 4 {
			// with the same numbers
			insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(foreign, card.EventDetected))
		}
		events, err := s.Events(ctx, account, 0, 9)
		check(t, err)
		attempts := []webhook.Attempt{{At: epoch, Status: 500}, {At: epoch, Error: "no answer"}}
		for i, d := range []webhook.Delivery{of(1, webhook.DeliveryFailed, time.Time{}),
			of(2, webhook.DeliveryDelivered, time.Time{}), of(3, webhook.DeliveryPending, epoch.Add(time.Hour))} {
			d.Tries, d.Attempts = 10-i, attempts
			saveDeliveries(t, s, w.ID, d)
		}
		now := epoch.Add(time.Minute)
		for i, e := range events[:3] {
			for range 2 { // a retry
				check(t, redeliver(ctx, s, account, w.ID, e.ID, now))
			}
			want := webhook.Delivery{Event: e, State: webhook.DeliveryPending, Attempts: attempts, DueAt: now}
			if diff := cmp.Diff(want, deliveries(t, s, w.ID)[3-i]); diff != "" {
				t.Error(diff)
			}
		}
		saveDeliveries(t, s, other.ID, of(1, webhook.DeliveryFailed, time.Time{}))
		theirEvents, err := s.Events(ctx, foreign.AccountID, 0, 9)
		check(t, err)
		for name, x := range map[string][3]uuid.UUID{
			"unknown event": {account, w.ID, uuid.New()}, "unknown webhook": {account, uuid.New(), events[0].ID},
			"event of another account":             {account, w.ID, theirEvents[0].ID},
			"webhook of another account":           {account, theirs.ID, events[0].ID},
			"event that the webhook does not want": {account, choosy.ID, events[0].ID},
			"all of another account":               {foreign.AccountID, w.ID, events[0].ID},
		} {
			if err := redeliver(ctx, s, x[0], x[1], x[2], now); !errors.Is(err, card.ErrNoRow) {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantDeliveries(t, s, w.ID, "4 pending", "3 pending", "2 pending", "1 pending")
		wantDeliveries(t, s, other.ID, "4 pending", "3 pending", "2 pending", "1 failed")
	})
}

// recoverAll checks all events, n at a time, and returns the number of new
// deliveries.
func recoverAll(t testing.TB, s *store.Store, w *webhook.Webhook, since time.Time, n int, now time.Time) (all int64) {
	t.Helper()
	for after, more := int64(0), true; more; {
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			due, last, err := tx.RecoverDeliveries(ctx, w.AccountID, w.ID, since, after, n, now)
			all, after, more = all+due, last, last > after
			return err
		})
	}
	return all
}

func TestRecoverDeliveries_OnlyWhatWasMissedSince(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c, foreign := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(newAccount(t, s)))
		happen := func(from, to int) {
			for i := from; i <= to; i++ {
				e := newEvent(c, card.EventDetected)
				e.CreatedAt = epoch.Add(time.Duration(i) * time.Millisecond)
				insertEvents(t, s, e, newEvent(foreign, card.EventDetected))
			}
		}
		happen(1, 3) // before the webhook was created
		w := insertWebhook(t, s, newWebhook(account))
		happen(4, 8)
		w.Enabled = false
		saveWebhook(t, s, w)
		happen(9, 10)
		other := insertWebhook(t, s, newWebhook(account))
		used := of(6, webhook.DeliveryFailed, time.Time{})
		used.Tries, used.Attempts = 10, []webhook.Attempt{{At: epoch, Status: 500}}
		saveDeliveries(t, s, w.ID, of(4, webhook.DeliveryFailed, time.Time{}), of(5, webhook.DeliveryDelivered, time.Time{}),
			used, of(7, webhook.DeliveryPending, epoch.Add(time.Hour)))
		now := epoch.Add(time.Minute)
		if n := recoverAll(t, s, w, epoch, 3, now); n != 0 {
			t.Errorf("%d deliveries to a disabled webhook", n)
		}
		w.Enabled = true
		saveWebhook(t, s, w)
		for _, want := range []int64{6, 0} { // 3, 4, 6, 9, 10, and 7, which waits for a retry; 8 is already due
			if n := recoverAll(t, s, w, epoch.Add(3*time.Millisecond), 3, now); n != want {
				t.Errorf("%d recovered, want %d", n, want)
			}
		}
		wantDeliveries(t, s, w.ID, "10 pending", "9 pending", "8 pending", "7 pending", "6 pending", "5 delivered",
			"4 pending", "3 pending")
		ds := deliveries(t, s, w.ID)
		for i, want := range map[int]time.Time{0: now, 1: now, 2: webhook.Immediately(), 3: now, 4: now, 6: now, 7: now} {
			if !ds[i].DueAt.Equal(want) || ds[i].Tries != 0 {
				t.Errorf("%d is due %v, want %v", ds[i].Event.Seq, ds[i].DueAt, want)
			}
		}
		if d := ds[4]; len(d.Attempts) != 1 {
			t.Errorf("%+v", d)
		}
		wantDeliveries(t, s, other.ID)
	})
}

func TestRecoverDeliveries_OnlyWhatTheWebhookWants(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w := newWebhook(account, card.EventLate, card.EventWebhookDisabled)
		insertEvents(t, s, newEvent(c, card.EventLate), newEvent(c, card.EventDetected),
			card.Event{ID: uuid.New(), AccountID: account, Type: card.EventWebhookDisabled, WebhookID: w.ID, CreatedAt: epoch},
			card.Event{ID: uuid.New(), AccountID: account, Type: card.EventWebhookDisabled, WebhookID: uuid.New(),
				CreatedAt: epoch})
		insertWebhook(t, s, w)
		foreign := *w
		foreign.AccountID = newAccount(t, s)
		if n := recoverAll(t, s, &foreign, epoch, 9, epoch); n != 0 {
			t.Errorf("%d deliveries for another account", n)
		}
		if n := recoverAll(t, s, w, epoch, 1, epoch); n != 2 {
			t.Errorf("%d recovered", n)
		}
		wantDeliveries(t, s, w.ID, "4 pending", "1 pending")
	})
}

func TestPruneDeliveries_OnlySoManyAndNoneThatIsPending(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account := t.Context(), newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		for day := range 5 {
			e := newEvent(c, card.EventDetected)
			e.CreatedAt = epoch.AddDate(0, 0, day)
			insertEvents(t, s, e)
		}
		for _, w := range []*webhook.Webhook{w, other} {
			saveDeliveries(t, s, w.ID, of(1, webhook.DeliveryDelivered, time.Time{}),
				of(2, webhook.DeliveryFailed, time.Time{}), of(4, webhook.DeliveryFailed, time.Time{}),
				of(5, webhook.DeliveryDelivered, time.Time{}))
		}
		prune := func(day, most int, want int64) {
			t.Helper()
			if n, err := s.PruneDeliveries(ctx, epoch.AddDate(0, 0, day), most); err != nil || n != want {
				t.Errorf("%d were deleted, want %d, error %v", n, want, err)
			}
		}
		prune(0, 9, 0)
		prune(1, 9, 2)
		wantDeliveries(t, s, w.ID, "5 delivered", "4 failed", "3 pending", "2 failed")
		prune(4, 3, 3)
		prune(4, 3, 1)
		prune(4, 3, 0)
		wantDeliveries(t, s, w.ID, "5 delivered", "3 pending")
		wantDeliveries(t, s, other.ID, "5 delivered", "3 pending")
		if got := seqs(t, s, account); len(got) != 5 {
			t.Errorf("remaining events: %v", got)
		}
	})
}

func TestDeleteDeliveries_OnlySoManyOfOneWebhook(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		for range 5 {
			insertEvents(t, s, newEvent(c, card.EventDetected))
		}
		for _, want := range []int64{2, 2, 1, 0} {
			if n, err := s.DeleteDeliveries(t.Context(), w.ID, 2); err != nil || n != want {
				t.Errorf("%d were deleted, want %d, error %v", n, want, err)
			}
		}
		wantDeliveries(t, s, w.ID)
		if n := len(deliveries(t, s, other.ID)); n != 5 {
			t.Errorf("%d deliveries of another webhook are left", n)
		}
	})
}

func TestDeliveries_FilteredAndPagedNewestFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, empty := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account, card.EventLate))
		for seq := range int64(9) {
			insertEvents(t, s, newEvent(c, card.EventDetected))
			if seq%3 > 0 {
				saveDeliveries(t, s, w.ID,
					of(seq+1, []webhook.DeliveryState{webhook.DeliveryDelivered, webhook.DeliveryFailed}[seq%3-1], time.Time{}))
			}
		}
		for _, tt := range []struct {
			state  webhook.DeliveryState
			before int64
			limit  int
			want   []int64
		}{
			{"", 0, 100, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}}, {"", 0, 2, []int64{9, 8}}, {"", 8, 2, []int64{7, 6}},
			{"", 1, 9, nil}, {"", 1 << 62, 1, []int64{9}},
			{webhook.DeliveryFailed, 0, 100, []int64{9, 6, 3}}, {webhook.DeliveryDelivered, 8, 100, []int64{5, 2}},
			{webhook.DeliveryPending, 5, 1, []int64{4}},
		} {
			got, err := s.Deliveries(t.Context(), w.ID,
				webhook.DeliveryFilter{State: tt.state, Before: tt.before, Limit: tt.limit})
			check(t, err)
			var numbers []int64
			for _, d := range got {
				numbers = append(numbers, d.Event.Seq)
			}
			if diff := cmp.Diff(tt.want, numbers); diff != "" {
				t.Errorf("%+v: %s", tt, diff)
			}
		}
		wantDeliveries(t, s, empty.ID)
	})
}
