package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

func newEvent(c *card.Card, kind card.EventType) card.Event {
	return card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: c.AccountID, Type: kind, CardUUID: c.UUID, Status: card.AwaitingPayment, State: card.Detected,
		CreatedAt: epoch}
}

func insertEvents(t testing.TB, s *store.Store, es ...card.Event) {
	t.Helper()
	inTx(t, s, func(ctx context.Context, tx card.Tx) error { return tx.InsertEvents(ctx, es) })
}

// seqs are the numbers of an account's events.
func seqs(t testing.TB, s *store.Store, account uuid.UUID) (all []int64) {
	t.Helper()
	es, err := s.Events(t.Context(), account, 0, 10_000)
	check(t, err)
	for _, e := range es {
		all = append(all, e.Seq)
	}
	return all
}

func deliveries(t testing.TB, s *store.Store, webhook uuid.UUID) []card.Delivery {
	t.Helper()
	all, err := s.Deliveries(t.Context(), webhook, card.DeliveryFilter{Limit: 10_000})
	check(t, err)
	return all
}

// saveDeliveries stores how far deliveries are, whatever they were before.
func saveDeliveries(t testing.TB, s *store.Store, webhook uuid.UUID, after ...card.Delivery) {
	t.Helper()
	due := map[int64]time.Time{}
	for _, d := range deliveries(t, s, webhook) {
		due[d.Event.Seq] = d.DueAt
	}
	before := slices.Clone(after)
	for i := range before {
		before[i].DueAt = due[before[i].Event.Seq]
	}
	inTx(t, s, func(ctx context.Context, tx card.Tx) error { return tx.SaveDeliveries(ctx, webhook, before, after) })
}

// wantDeliveries fails the test unless the webhook has these, each written as its event's number and its state, newest first.
func wantDeliveries(t testing.TB, s *store.Store, webhook uuid.UUID, want ...string) {
	t.Helper()
	var got []string
	for _, d := range deliveries(t, s, webhook) {
		got = append(got, fmt.Sprint(d.Event.Seq, " ", d.State))
		if pending := d.State == card.DeliveryPending; pending == d.DueAt.IsZero() {
			t.Errorf("%s is due %v", got[len(got)-1], d.DueAt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deliveries: %s", diff)
	}
}

// of is a delivery of the event with a number.
func of(seq int64, state card.DeliveryState, due time.Time) card.Delivery {
	return card.Delivery{Event: card.Event{Seq: seq}, State: state, DueAt: due}
}

func TestInsertEvents_GoToTheWebhooksThatWantThem(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account, other := newAccount(t, s), newAccount(t, s)
		c, foreign := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(other))
		all := insertWebhook(t, s, newWebhook(account))
		late := insertWebhook(t, s, newWebhook(account, card.EventLate))
		two := insertWebhook(t, s, newWebhook(account, card.EventGenerated, card.EventLate))
		none := insertWebhook(t, s, newWebhook(account, card.EventWebhookDisabled))
		part := insertWebhook(t, s, newWebhook(account, "payment", "late", "payment.lat", "ayment.late", "payment.late2", "payment.late.x"))
		off := newWebhook(account, card.EventGenerated)
		off.Enabled = false
		insertWebhook(t, s, off)
		theirs := insertWebhook(t, s, newWebhook(other))
		insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(foreign, card.EventLate), newEvent(c, card.EventGenerated), newEvent(c, card.EventLate))
		wantDeliveries(t, s, all.ID, "3 pending", "2 pending", "1 pending")
		wantDeliveries(t, s, late.ID, "3 pending")
		wantDeliveries(t, s, two.ID, "3 pending", "2 pending")
		wantDeliveries(t, s, none.ID)
		wantDeliveries(t, s, part.ID)
		wantDeliveries(t, s, off.ID)
		wantDeliveries(t, s, theirs.ID, "1 pending")
	})
}

func TestInsertEvents_WebhookIsNotToldThatItIsDisabledItself(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		dead, well, choosy := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account, card.EventLate))
		want := card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: account, Type: card.EventWebhookDisabled, WebhookID: dead.ID, CreatedAt: epoch}
		insertEvents(t, s, want)
		wantDeliveries(t, s, dead.ID)
		wantDeliveries(t, s, choosy.ID)
		wantDeliveries(t, s, well.ID, "1 pending")
		want.Seq = 1
		if diff := cmp.Diff(want, deliveries(t, s, well.ID)[0].Event); diff != "" {
			t.Error(diff)
		}
		got, err := s.Events(t.Context(), account, 0, 9)
		check(t, err)
		if diff := cmp.Diff([]card.Event{want}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A webhook is told from its creation on; what was before it is listed, or recovered by listEvents.
func TestInsertEvents_WebhookIsNotToldWhatWasBeforeIt(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		insertEvents(t, s, newEvent(c, card.EventDetected))
		w := insertWebhook(t, s, newWebhook(account))
		insertEvents(t, s, newEvent(c, card.EventGenerated))
		wantDeliveries(t, s, w.ID, "2 pending")
	})
}

// Whoever counts to find out that it missed nothing relies on this.
func TestInsertEvents_NumbersHaveNoGapsWhateverHappensAtOnce(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		var cards []*card.Card
		var hooks []*card.Webhook
		for range 3 {
			cards = append(cards, insertCard(t, s, newCard(newAccount(t, s))))
			hooks = append(hooks, insertWebhook(t, s, newWebhook(cards[len(cards)-1].AccountID)))
		}
		changedMind := errors.New("changed its mind")
		var mu sync.Mutex
		want := map[uuid.UUID][]uuid.UUID{}
		var all sync.WaitGroup
		for worker := range 6 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(3, uint64(worker)))
				for range 12 {
					var es []card.Event
					for range 1 + random.IntN(5) {
						es = append(es, newEvent(cards[random.IntN(len(cards))], card.EventDetected))
					}
					undo := random.IntN(3) == 0
					err := s.InTx(t.Context(), func(tx card.Tx) error {
						if err := tx.InsertEvents(t.Context(), es); err != nil || !undo {
							return err
						}
						return changedMind
					})
					if undo != errors.Is(err, changedMind) || !undo && err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, e := range es {
						if !undo {
							want[e.AccountID] = append(want[e.AccountID], e.ID)
						}
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for i, c := range cards {
			es, err := s.Events(t.Context(), c.AccountID, 0, 10_000)
			check(t, err)
			var ids []uuid.UUID
			for n, e := range es {
				ids = append(ids, e.ID)
				if e.Seq != int64(n+1) {
					t.Fatalf("event %d has number %d", n+1, e.Seq)
				}
			}
			byText := func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) }
			slices.SortFunc(ids, byText)
			slices.SortFunc(want[c.AccountID], byText)
			if diff := cmp.Diff(want[c.AccountID], ids); diff != "" {
				t.Error(diff)
			}
			if n := len(deliveries(t, s, hooks[i].ID)); n != len(es) {
				t.Errorf("%d deliveries of %d events", n, len(es))
			}
		}
	})
}

func TestInsertEvents_RolledBackLeavesNeitherEventNorDelivery(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w := insertWebhook(t, s, newWebhook(account))
		crash := errors.New("crash")
		wantError(t, s.InTx(t.Context(), func(tx card.Tx) error {
			check(t, tx.InsertEvents(t.Context(), []card.Event{newEvent(c, card.EventDetected), newEvent(c, card.EventGenerated)}))
			return crash
		}), crash)
		if events, sent := scalar[int](t, url, "SELECT COUNT(*) FROM events"), scalar[int](t, url, "SELECT COUNT(*) FROM deliveries"); events+sent != 0 {
			t.Errorf("%d events, %d deliveries", events, sent)
		}
		if got := claim(t, s, 9, time.Hour); len(got) != 0 {
			t.Error("there is something to be sent")
		}
		insertEvents(t, s, newEvent(c, card.EventDetected))
		wantDeliveries(t, s, w.ID, "1 pending")
	})
}

func TestEvents_PagesHaveNoGaps(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c, foreign := insertCard(t, s, newCard(newAccount(t, s))), insertCard(t, s, newCard(newAccount(t, s)))
		var want []card.Event
		for i := range 7 {
			e := newEvent(c, card.EventTypes()[i%6])
			insertEvents(t, s, newEvent(foreign, card.EventLate), e)
			e.Seq = int64(i + 1)
			want = append(want, e)
		}
		for _, limit := range []int{1, 2, 3, 6, 7, 8} {
			var got []card.Event
			for after := int64(0); ; after = got[len(got)-1].Seq {
				page, err := s.Events(t.Context(), c.AccountID, after, limit)
				check(t, err)
				if len(page) > limit {
					t.Fatalf("%d events, at most %d were asked for", len(page), limit)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("by %d: %s", limit, diff)
			}
		}
		for account, want := range map[uuid.UUID]int64{c.AccountID: 7, foreign.AccountID: 7, newAccount(t, s): 0} {
			if last, err := s.LastSeq(t.Context(), account); err != nil || last != want {
				t.Errorf("the last is %d, want %d, error %v", last, want, err)
			}
		}
		for _, after := range []int64{7, 8, 1<<63 - 1} {
			if got, err := s.Events(t.Context(), c.AccountID, after, 9); err != nil || len(got) != 0 {
				t.Errorf("after %d: %v, error %v", after, got, err)
			}
		}
	})
}

func TestDueDeliveries_LongestDueFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account := t.Context(), newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w, other := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		for range 6 {
			insertEvents(t, s, newEvent(c, card.EventDetected))
		}
		at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
		saveDeliveries(t, s, w.ID, of(1, card.DeliveryPending, at(3)), of(2, card.DeliveryPending, at(1)), of(3, card.DeliveryDelivered, time.Time{}),
			of(4, card.DeliveryPending, at(2)), of(5, card.DeliveryPending, at(2)), of(6, card.DeliveryFailed, time.Time{}))
		for _, tt := range []struct {
			minutes, n int
			want       []int64
		}{{0, 9, nil}, {1, 9, []int64{2}}, {2, 9, []int64{2, 4, 5}}, {3, 9, []int64{2, 4, 5, 1}}, {3, 2, []int64{2, 4}}, {3, 3, []int64{2, 4, 5}}} {
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
				t.Errorf("%d of them after %d minutes: %s", tt.n, tt.minutes, diff)
			}
		}
		if due, err := s.DueDeliveries(ctx, w.ID, at(2).Add(-time.Millisecond), 9); err != nil || len(due) != 1 {
			t.Errorf("%d deliveries a moment before they are due, error %v", len(due), err)
		}
		// No clock decides when a new delivery is due: the one here is years behind that of the event.
		if due, err := s.DueDeliveries(ctx, other.ID, time.UnixMilli(0), 9); err != nil || len(due) != 6 || !due[0].DueAt.Equal(card.AtOnce()) {
			t.Errorf("%d new deliveries, error %v", len(due), err)
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
		want := []card.Delivery{
			{Event: events[4], State: card.DeliveryPending, DueAt: card.AtOnce(), Attempts: []card.Attempt{}}, // not saved
			{Event: events[3], State: card.DeliveryPending, DueAt: later, Tries: 3, Attempts: []card.Attempt{
				{At: epoch, Took: 15 * time.Second, Error: "no connection within 15 s: \"dial\" 'x' \\ ? $1 🎉"},
				{At: epoch.Add(time.Second), Took: time.Millisecond, Status: 500, Answer: "<b>\"'; DROP TABLE deliveries;--\n\t\\u0000 \\ ü 日本 🎉 \u2028 \ufffd ?"},
				{At: later, Status: 599},
			}},
			{Event: events[2], State: card.DeliveryFailed, Tries: 10, Attempts: []card.Attempt{{At: epoch, Status: 410, Answer: "gone"}}},
			{Event: events[1], State: card.DeliveryDelivered, Tries: 1, Attempts: []card.Attempt{{At: epoch, Took: 84 * time.Millisecond, Status: 200, Answer: "NULL"}}},
			{Event: events[0], State: card.DeliveryDelivered, Tries: 2, Attempts: []card.Attempt{}},
		}
		saveDeliveries(t, s, w.ID, want[4], want[3], want[2], want[1])
		if diff := cmp.Diff(want, deliveries(t, s, w.ID)); diff != "" {
			t.Error(diff)
		}
		wantDeliveries(t, s, other.ID, "5 pending", "4 pending", "3 pending", "2 pending", "1 pending")
	})
}

// A receiver answers what it likes, and neither database may refuse to store it.
func TestSaveDeliveries_AnswerThatIsNoText(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		d := of(1, card.DeliveryDelivered, time.Time{})
		d.Attempts = []card.Attempt{{At: epoch, Status: 200, Answer: "a\x00b\x00\x00"}, {At: epoch, Status: 500, Answer: "\xff\xfe\xed\xa0\x80c\x1b[31m\x7f"}, {At: epoch, Error: "d\x00\xff"}}
		saveDeliveries(t, s, w.ID, d)
		got := deliveries(t, s, w.ID)[0].Attempts
		if len(got) != 3 || got[0].Answer != "ab" || !strings.Contains(got[1].Answer, "c\x1b[31m\x7f") || !strings.HasPrefix(got[2].Error, "d") {
			t.Errorf("%+v", got)
		}
	})
}

func TestSaveDeliveries_MoreThanOneStatementHolds(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		const n = 1201
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		w := insertWebhook(t, s, newWebhook(account))
		var es []card.Event
		var ds []card.Delivery
		for i := range n {
			es = append(es, newEvent(c, card.EventDetected))
			d := of(int64(i+1), card.DeliveryDelivered, time.Time{})
			if i%3 == 0 {
				d = of(int64(i+1), card.DeliveryPending, epoch.Add(time.Duration(i)*time.Second))
			}
			d.Tries, d.Attempts = i%11, []card.Attempt{{At: epoch, Took: time.Duration(i) * time.Millisecond, Status: 200}}
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

// What was asked to be sent again while an attempt was under way is sent again, whatever came of the attempt.
func TestSaveDeliveries_NotOfWhatIsDueOtherwiseThanBefore(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		w := dueWebhook(t, s)
		insertEvents(t, s, newEvent(insertCard(t, s, newCard(w.AccountID)), card.EventDetected))
		before := deliveries(t, s, w.ID)
		check(t, s.Redeliver(ctx, w.AccountID, w.ID, before[0].Event.ID, epoch.Add(time.Second)))
		for _, state := range []card.DeliveryState{card.DeliveryFailed, card.DeliveryDelivered} {
			after := slices.Clone(before)
			for i := range after {
				after[i].State, after[i].DueAt, after[i].Tries = state, time.Time{}, 10
			}
			inTx(t, s, func(ctx context.Context, tx card.Tx) error { return tx.SaveDeliveries(ctx, w.ID, before, after) })
			got := deliveries(t, s, w.ID)
			if d := got[0]; d.State != card.DeliveryPending || d.Tries != 0 || !d.DueAt.Equal(epoch.Add(time.Second)) {
				t.Errorf("%s, %d tries, due %v", d.State, d.Tries, d.DueAt)
			}
			if got[1].State != card.DeliveryFailed { // which the first round has stored, and the second can't
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
		choosy, theirs := insertWebhook(t, s, newWebhook(account, card.EventLate)), insertWebhook(t, s, newWebhook(foreign.AccountID))
		for range 4 {
			insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(foreign, card.EventDetected)) // which have the same numbers
		}
		events, err := s.Events(ctx, account, 0, 9)
		check(t, err)
		attempts := []card.Attempt{{At: epoch, Status: 500}, {At: epoch, Error: "no answer"}}
		for i, d := range []card.Delivery{of(1, card.DeliveryFailed, time.Time{}), of(2, card.DeliveryDelivered, time.Time{}), of(3, card.DeliveryPending, epoch.Add(time.Hour))} {
			d.Tries, d.Attempts = 10-i, attempts
			saveDeliveries(t, s, w.ID, d)
		}
		now := epoch.Add(time.Minute)
		for i, e := range events[:3] {
			for range 2 { // a repeated statement
				check(t, s.Redeliver(ctx, account, w.ID, e.ID, now))
			}
			want := card.Delivery{Event: e, State: card.DeliveryPending, Attempts: attempts, DueAt: now}
			if diff := cmp.Diff(want, deliveries(t, s, w.ID)[3-i]); diff != "" {
				t.Error(diff)
			}
		}
		saveDeliveries(t, s, other.ID, of(1, card.DeliveryFailed, time.Time{}))
		theirEvents, err := s.Events(ctx, foreign.AccountID, 0, 9)
		check(t, err)
		for name, x := range map[string][3]uuid.UUID{
			"unknown event": {account, w.ID, uuid.New()}, "unknown webhook": {account, uuid.New(), events[0].ID}, "event of another account": {account, w.ID, theirEvents[0].ID},
			"webhook of another account": {account, theirs.ID, events[0].ID}, "event that the webhook does not want": {account, choosy.ID, events[0].ID},
			"all of another account": {foreign.AccountID, w.ID, events[0].ID},
		} {
			if err := s.Redeliver(ctx, x[0], x[1], x[2], now); !errors.Is(err, card.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantDeliveries(t, s, w.ID, "4 pending", "3 pending", "2 pending", "1 pending")
		wantDeliveries(t, s, other.ID, "4 pending", "3 pending", "2 pending", "1 failed")
	})
}

// recoverAll looks at all events, n at a time, and returns how many are sent.
func recoverAll(t testing.TB, s *store.Store, w *card.Webhook, since time.Time, n int, now time.Time) (all int64) {
	t.Helper()
	for after, more := int64(0), true; more; {
		inTx(t, s, func(ctx context.Context, tx card.Tx) error {
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
		happen(1, 3) // before it was there
		w := insertWebhook(t, s, newWebhook(account))
		happen(4, 8)
		w.Enabled = false
		saveWebhook(t, s, w)
		happen(9, 10)
		other := insertWebhook(t, s, newWebhook(account))
		used := of(6, card.DeliveryFailed, time.Time{})
		used.Tries, used.Attempts = 10, []card.Attempt{{At: epoch, Status: 500}}
		saveDeliveries(t, s, w.ID, of(4, card.DeliveryFailed, time.Time{}), of(5, card.DeliveryDelivered, time.Time{}), used, of(7, card.DeliveryPending, epoch.Add(time.Hour)))
		now := epoch.Add(time.Minute)
		if n := recoverAll(t, s, w, epoch, 3, now); n != 0 {
			t.Errorf("%d are sent to a webhook that is disabled", n)
		}
		w.Enabled = true
		saveWebhook(t, s, w)
		for _, want := range []int64{5, 0} { // 3, 4, 6, 9 and 10
			if n := recoverAll(t, s, w, epoch.Add(3*time.Millisecond), 3, now); n != want {
				t.Errorf("%d were missed, want %d", n, want)
			}
		}
		wantDeliveries(t, s, w.ID, "10 pending", "9 pending", "8 pending", "7 pending", "6 pending", "5 delivered", "4 pending", "3 pending")
		ds := deliveries(t, s, w.ID)
		for i, want := range map[int]time.Time{0: now, 1: now, 2: card.AtOnce(), 3: epoch.Add(time.Hour), 4: now, 6: now, 7: now} {
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
			card.Event{ID: uuid.New(), AccountID: account, Type: card.EventWebhookDisabled, WebhookID: uuid.New(), CreatedAt: epoch})
		insertWebhook(t, s, w)
		foreign := *w
		foreign.AccountID = newAccount(t, s)
		if n := recoverAll(t, s, &foreign, epoch, 9, epoch); n != 0 {
			t.Errorf("%d are sent for another account", n)
		}
		if n := recoverAll(t, s, w, epoch, 1, epoch); n != 2 {
			t.Errorf("%d were missed", n)
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
		for _, w := range []*card.Webhook{w, other} {
			saveDeliveries(t, s, w.ID, of(1, card.DeliveryDelivered, time.Time{}), of(2, card.DeliveryFailed, time.Time{}), of(4, card.DeliveryFailed, time.Time{}), of(5, card.DeliveryDelivered, time.Time{}))
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
			t.Errorf("only the events %v are left", got)
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
			t.Errorf("%d of another webhook are left", n)
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
				saveDeliveries(t, s, w.ID, of(seq+1, []card.DeliveryState{card.DeliveryDelivered, card.DeliveryFailed}[seq%3-1], time.Time{}))
			}
		}
		for _, tt := range []struct {
			state  card.DeliveryState
			before int64
			limit  int
			want   []int64
		}{
			{"", 0, 100, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}}, {"", 0, 2, []int64{9, 8}}, {"", 8, 2, []int64{7, 6}}, {"", 1, 9, nil}, {"", 1 << 62, 1, []int64{9}},
			{card.DeliveryFailed, 0, 100, []int64{9, 6, 3}}, {card.DeliveryDelivered, 8, 100, []int64{5, 2}}, {card.DeliveryPending, 5, 1, []int64{4}},
		} {
			got, err := s.Deliveries(t.Context(), w.ID, card.DeliveryFilter{State: tt.state, Before: tt.before, Limit: tt.limit})
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

// openVault keeps secrets as they are.
type openVault struct{}

func (openVault) Seal(_, _ uuid.UUID, _ string, plaintext card.Secret) ([]byte, error) {
	return []byte(plaintext.Reveal()), nil
}
func (openVault) Open(_, _ uuid.UUID, _ string, sealed []byte) (card.Secret, error) {
	if strings.HasPrefix(string(sealed), "broken") {
		return "", errors.New("can't be opened")
	}
	return card.Secret(sealed), nil
}
func (openVault) Digest(string, []byte) ([]byte, error) { return nil, nil }

// noPoster takes every address, and is never asked to send.
type noPoster struct{ card.Poster }

func (noPoster) CheckURL(string) error { return nil }

// sending is a service whose time a test moves, and an account with a webhook under test and another one that is told of it.
type sending struct {
	*card.Service
	store *store.Store
	now   time.Time
	card  *card.Card
	hook  *card.Webhook
	other *card.Webhook // only of webhooks that are disabled
}

func newSending(t *testing.T, s *store.Store) *sending {
	t.Helper()
	x := &sending{store: s, now: epoch}
	var err error
	x.Service, err = card.New(s, openVault{}, nil, nil, card.Config{Currencies: []card.Currency{card.Monero()}, Poster: noPoster{}, Now: func() time.Time { return x.now }})
	check(t, err)
	x.card = insertCard(t, s, newCard(newAccount(t, s)))
	x.hook = insertWebhook(t, s, newWebhook(x.card.AccountID, card.EventDetected))
	x.other = insertWebhook(t, s, newWebhook(x.card.AccountID, card.EventWebhookDisabled))
	return x
}

// happen makes events, so that there is something to send.
func (x *sending) happen(t testing.TB, n int) {
	t.Helper()
	for range n {
		insertEvents(t, x.store, newEvent(x.card, card.EventDetected))
	}
}

// change changes the webhook under test.
func (x *sending) change(t testing.TB, r card.WebhookRequest) {
	t.Helper()
	_, err := x.UpdateWebhook(t.Context(), x.card.AccountID, x.hook.ID, r)
	check(t, err)
}

func ptr[T any](v T) *T { return &v }

// claim claims the webhook under test.
func (x *sending) claim(t testing.TB) *card.WebhookClaim {
	t.Helper()
	all, err := x.ClaimWebhooks(t.Context(), 9, time.Hour)
	check(t, err)
	i := slices.IndexFunc(all, func(c *card.WebhookClaim) bool { return c.Webhook.ID == x.hook.ID })
	if i < 0 {
		t.Fatal("the webhook can't be claimed")
	}
	return all[i]
}

func (x *sending) due(t testing.TB, c *card.WebhookClaim) []card.Delivery {
	t.Helper()
	ds, err := x.DueDeliveries(t.Context(), c, 99)
	check(t, err)
	return ds
}

// tried pairs what is due with answers.
func (x *sending) tried(t testing.TB, c *card.WebhookClaim, statuses ...int) (all []card.Tried) {
	t.Helper()
	due := x.due(t, c)
	for i, status := range statuses {
		all = append(all, card.Tried{Delivery: due[i], Attempt: card.Attempt{At: x.now, Status: status}})
	}
	return all
}

func (x *sending) save(t testing.TB, c *card.WebhookClaim, tried []card.Tried) {
	t.Helper()
	check(t, x.SaveAttempts(t.Context(), c, tried, time.Hour))
}

func (x *sending) read(t testing.TB) *card.Webhook {
	t.Helper()
	w, err := x.GetWebhook(t.Context(), x.card.AccountID, x.hook.ID)
	check(t, err)
	return w
}

func TestSaveAttempts_LeavesADeadReceiverInPeaceForLongerAndLonger(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		x := newSending(t, s)
		x.happen(t, 50)
		for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60} {
			c := x.claim(t)
			if c.Failures != i || c.Over {
				t.Fatalf("claimed with %d failures, over: %t", c.Failures, c.Over)
			}
			x.save(t, c, x.tried(t, c, 500))
			want *= time.Second
			if c.Failures != i+1 || c.Over != (want > 0) || !c.Webhook.FailingSince.Equal(epoch) {
				t.Errorf("after failure %d: %d, over: %t, failing since %v", i+1, c.Failures, c.Over, c.Webhook.FailingSince)
			}
			check(t, x.ReleaseWebhook(t.Context(), c))
			if want > 0 {
				x.now = x.now.Add(want - time.Millisecond)
				if all, err := x.ClaimWebhooks(t.Context(), 9, time.Hour); err != nil || len(all) != 0 {
					t.Fatalf("after failure %d: it is claimed before %v are over, error %v", i+1, want, err)
				}
				x.now = x.now.Add(time.Millisecond)
			}
		}
		c := x.claim(t)
		x.save(t, c, x.tried(t, c, 204))
		if c.Failures != 0 || c.Over || c.Webhook.FailingSince != nil {
			t.Errorf("after a success: %d failures, over: %t, failing since %v", c.Failures, c.Over, c.Webhook.FailingSince)
		}
		x.save(t, c, x.tried(t, c, 500, 500))
		x.save(t, c, x.tried(t, c, 500))
		if c.Failures != 2 || c.Over || !c.Webhook.FailingSince.Equal(x.now) {
			t.Errorf("after two more: %d failures, over: %t, failing since %v", c.Failures, c.Over, c.Webhook.FailingSince)
		}
		if got := scalar[int64](t, url, fmt.Sprintf("SELECT paused_until FROM webhooks WHERE id = '%s'", x.hook.ID)); got != 0 {
			t.Errorf("paused until %d", got)
		}
	})
}

// Attempts are made at the same time: that one receiver has a bad moment with all of them is one failure, and one success shows that it is
// there.
func TestSaveAttempts_ARoundIsOneFailureUnlessOneWentWell(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		for _, tt := range []struct {
			rounds   [][]int
			failures int
			over     bool
			failing  bool
		}{
			{[][]int{{500, 500, 500, 500, 200}}, 0, false, false}, {[][]int{{200, 500, 500}}, 0, false, true}, {[][]int{{0, 301, 404, 500}}, 1, false, true},
			{[][]int{{500, 200, 500, 500, 500}, {500}, {500, 500}}, 2, false, true}, {[][]int{{500}, {500}, {500}}, 3, true, true},
			{[][]int{{500}, {500}, {500, 200}}, 0, false, false},
		} {
			x := newSending(t, s)
			x.happen(t, 9)
			c := x.claim(t)
			for _, statuses := range tt.rounds {
				x.save(t, c, x.tried(t, c, statuses...))
			}
			if c.Failures != tt.failures || c.Over != tt.over || (x.read(t).FailingSince != nil) != tt.failing {
				t.Errorf("%v: %d failures, over: %t, failing since %v", tt.rounds, c.Failures, c.Over, x.read(t).FailingSince)
			}
			check(t, x.ReleaseWebhook(t.Context(), c))
		}
	})
}

// Only the last attempt at an event is proof: a webhook that seldom has any would else be disabled by the first failure after a silence.
func TestSaveAttempts_FiveDaysWithoutASuccessDisableWhenAnEventIsUsedUp(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		const days = 24 * time.Hour
		x := newSending(t, s)
		x.happen(t, 9)
		attempt := func(after time.Duration, status int, last bool) *card.WebhookClaim {
			t.Helper()
			x.now = epoch.Add(after)
			check(t, rawRelease(s, x.hook))
			c := x.claim(t)
			tried := x.tried(t, c, status)
			if last {
				tried[0].Delivery.Tries = 9
			}
			x.save(t, c, tried)
			return c
		}
		attempt(0, 500, false)
		attempt(4*days, 200, false) // which begins it anew
		attempt(4*days+time.Hour, 503, true)
		attempt(9*days+time.Hour, 0, true)
		if w := x.read(t); !w.Enabled || !w.FailingSince.Equal(epoch.Add(4*days+time.Hour)) {
			t.Fatalf("after five days, but not more: %+v", w)
		}
		attempt(20*days, 500, false)
		if w := x.read(t); !w.Enabled {
			t.Fatal("disabled by the first attempt at an event")
		}
		c := attempt(20*days+time.Minute, 500, true)
		w := x.read(t)
		if !c.Over || w.Enabled || w.DisabledReason != card.DisabledFailing || !w.DisabledAt.Equal(x.now) {
			t.Errorf("after more than five days: over: %t, %+v", c.Over, w)
		}
		x.told(t, 1)
	})
}

// rawRelease ends whatever claim there is.
func rawRelease(s *store.Store, w *card.Webhook) error {
	var errs []error
	for fence := range int64(20) {
		errs = append(errs, s.ReleaseWebhook(context.Background(), &card.WebhookClaim{Webhook: w, Fence: fence}))
	}
	return errors.Join(errs...)
}

// told fails the test unless the account was told n times that the webhook was disabled, and the webhook itself never.
func (x *sending) told(t testing.TB, n int) {
	t.Helper()
	ds := deliveries(t, x.store, x.other.ID)
	if len(ds) != n {
		t.Errorf("the account was told %d times that a webhook is disabled, want %d", len(ds), n)
	}
	for _, d := range ds {
		if e := d.Event; e.Type != card.EventWebhookDisabled || e.WebhookID != x.hook.ID || e.CardUUID != uuid.Nil || d.State != card.DeliveryPending {
			t.Errorf("%s %+v", d.State, e)
		}
	}
	for _, d := range deliveries(t, x.store, x.hook.ID) {
		if d.Event.Type == card.EventWebhookDisabled {
			t.Error("the webhook is told that it is disabled")
		}
	}
}

func TestSaveAttempts_GoneDisablesAtOnceAndTheRestWaits(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.happen(t, 4)
		c := x.claim(t)
		x.save(t, c, x.tried(t, c, 200, 410, 410)) // two at the same moment, and one that was not sent yet
		w := x.read(t)
		if !c.Over || w.Enabled || w.DisabledReason != card.DisabledGone || !w.DisabledAt.Equal(x.now) {
			t.Errorf("over: %t, %+v", c.Over, w)
		}
		x.told(t, 1)
		check(t, x.ReleaseWebhook(t.Context(), c))
		x.now = x.now.Add(time.Hour)
		if all, err := x.ClaimWebhooks(t.Context(), 9, time.Hour); err != nil || len(all) != 1 || all[0].Webhook.ID != x.other.ID {
			t.Errorf("%v, error %v", all, err)
		}
		x.happen(t, 1)
		wantDeliveries(t, s, x.hook.ID, "4 pending", "3 pending", "2 pending", "1 delivered")
		if a := deliveries(t, s, x.hook.ID)[2].Attempts; len(a) != 1 || a[0].Status != 410 {
			t.Errorf("%+v", a)
		}
		x.change(t, card.WebhookRequest{Enabled: ptr(true)})
		c = x.claim(t)
		x.save(t, c, x.tried(t, c, 200, 200, 200))
		wantDeliveries(t, s, x.hook.ID, "4 delivered", "3 delivered", "2 delivered", "1 delivered")
	})
}

// A process that was away for longer than its claim must not write over what the next one did; what it sent is then sent twice.
func TestSaveAttempts_LostClaimSavesNothing(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		x := newSending(t, s)
		x.happen(t, 2)
		zombie := x.claim(t)
		late := x.tried(t, zombie, 410, 200)
		check(t, x.ReleaseWebhook(ctx, zombie))
		owner := x.claim(t)
		wantError(t, x.SaveAttempts(ctx, zombie, late, time.Hour), card.ErrFenced)
		wantDeliveries(t, s, x.hook.ID, "2 pending", "1 pending")
		x.save(t, owner, x.tried(t, owner, 200))
		if w := x.read(t); !w.Enabled {
			t.Errorf("%+v", w)
		}
		rest := x.tried(t, owner, 200)
		check(t, x.DeleteWebhook(ctx, x.card.AccountID, x.hook.ID))
		wantError(t, x.SaveAttempts(ctx, owner, rest, time.Hour), card.ErrFenced)
		x.told(t, 0)
	})
}

// What was sent while the client changed the webhook went to the old address, or was signed with the old secret, or has failed for a reason
// that is gone. It is sent again.
func TestSaveAttempts_NotAfterTheClientChangedTheWebhook(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		for name, change := range map[string]func(t *testing.T, x *sending){
			"disabled": func(t *testing.T, x *sending) { x.change(t, card.WebhookRequest{Enabled: ptr(false)}) },
			"mended": func(t *testing.T, x *sending) {
				x.change(t, card.WebhookRequest{Enabled: ptr(false)})
				x.change(t, card.WebhookRequest{Enabled: ptr(true)})
			},
			"moved": func(t *testing.T, x *sending) {
				x.change(t, card.WebhookRequest{URL: ptr("https://other.example.com/")})
			},
			"with another secret": func(t *testing.T, x *sending) {
				_, _, err := x.RotateWebhookSecret(t.Context(), x.card.AccountID, x.hook.ID)
				check(t, err)
			},
			"deleted": func(t *testing.T, x *sending) { check(t, x.DeleteWebhook(t.Context(), x.card.AccountID, x.hook.ID)) },
		} {
			t.Run(name, func(t *testing.T) {
				x := newSending(t, s)
				x.happen(t, 3)
				c := x.claim(t)
				x.save(t, c, x.tried(t, c, 500))
				x.now = x.now.Add(6 * 24 * time.Hour)
				tried := x.tried(t, c, 410, 200, 500)
				tried[2].Delivery.Tries = 9
				change(t, x)
				var before *card.Webhook
				if name != "deleted" {
					before = x.read(t)
				}
				wantError(t, x.SaveAttempts(t.Context(), c, tried, time.Hour), card.ErrFenced)
				x.told(t, 0)
				if name == "deleted" {
					wantDeliveries(t, s, x.hook.ID)
					return
				}
				if diff := cmp.Diff(before, x.read(t)); diff != "" {
					t.Error(diff)
				}
				wantDeliveries(t, s, x.hook.ID, "3 pending", "2 pending", "1 pending")
				if name == "disabled" {
					x.change(t, card.WebhookRequest{Enabled: ptr(true)})
				}
				check(t, x.ReleaseWebhook(t.Context(), c))
				if next := x.claim(t); next.Failures != 0 || len(x.due(t, next)) != 3 {
					t.Errorf("claimed with %d failures, %d due", next.Failures, len(x.due(t, next)))
				}
			})
		}
	})
}

// A description or other types are nothing that a sender has to know of.
func TestSaveAttempts_AfterTheClientChangedWhatDoesNotMatter(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.happen(t, 2)
		c := x.claim(t)
		tried := x.tried(t, c, 500, 200)
		x.change(t, card.WebhookRequest{Description: ptr("d"), URL: &x.hook.URL, Enabled: ptr(true), Types: &[]card.EventType{card.EventLate}})
		x.save(t, c, tried)
		wantDeliveries(t, s, x.hook.ID, "2 delivered", "1 pending")
		if w := x.read(t); w.Description != "d" || !slices.Equal(w.Types, []card.EventType{card.EventLate}) {
			t.Errorf("%+v", w)
		}
	})
}

// What is asked for while an attempt is under way is not undone by that attempt's failure.
func TestRedeliver_WhileTheLastAttemptIsUnderWay(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.happen(t, 2)
		c := x.claim(t)
		tried := x.tried(t, c, 500, 500)
		for i := range tried {
			tried[i].Delivery.Tries = 9
		}
		x.now = x.now.Add(time.Second)
		check(t, x.Redeliver(t.Context(), x.card.AccountID, x.hook.ID, tried[0].Delivery.Event.ID))
		x.save(t, c, tried)
		wantDeliveries(t, s, x.hook.ID, "2 failed", "1 pending")
	})
}

func TestRecoverWebhook_GoesBackAsFarAsDeliveriesAreKept(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		var es []card.Event
		for i := range 2300 { // more than one transaction has sent again
			e := newEvent(x.card, card.EventDetected)
			e.CreatedAt = epoch.Add(time.Duration(i) * time.Millisecond)
			es = append(es, e)
		}
		insertEvents(t, s, es...)
		w := insertWebhook(t, s, newWebhook(x.card.AccountID))
		x.now = epoch.AddDate(0, 0, 30).Add(100 * time.Millisecond)
		for _, want := range []int64{2200, 0} {
			if n, err := x.RecoverWebhook(t.Context(), w.AccountID, w.ID, time.Time{}); err != nil || n != want {
				t.Errorf("%d are sent, want %d, error %v", n, want, err)
			}
		}
		ds := deliveries(t, s, w.ID)
		if len(ds) != 2200 || ds[2199].Event.Seq != 101 || !ds[0].DueAt.Equal(x.now) {
			t.Errorf("%d deliveries", len(ds))
		}
		x.change(t, card.WebhookRequest{Enabled: ptr(false)})
		_, err := x.RecoverWebhook(t.Context(), w.AccountID, x.hook.ID, epoch)
		wantError(t, err, card.ErrWebhookDisabled)
		_, err = x.RecoverWebhook(t.Context(), newAccount(t, s), w.ID, epoch)
		wantError(t, err, card.ErrNotFound)
	})
}

func TestDeleteWebhook_WithMoreDeliveriesThanOneStatementDeletes(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
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

func TestCreateWebhook_NoMoreThanAllowedHoweverManyAsk(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s) // which has two
		var mu sync.Mutex
		made := 0
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for range 5 {
					_, _, err := x.CreateWebhook(t.Context(), x.card.AccountID, card.WebhookRequest{URL: ptr("https://shop.example.com/")})
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
			t.Errorf("%d were made, now there are %d", made, len(hooks))
		}
		check(t, x.DeleteWebhook(t.Context(), x.card.AccountID, hooks[7].ID))
		_, _, err = x.CreateWebhook(t.Context(), x.card.AccountID, card.WebhookRequest{URL: ptr("https://shop.example.com/")})
		check(t, err)
		_, _, err = x.CreateWebhook(t.Context(), newAccount(t, s), card.WebhookRequest{URL: ptr("https://shop.example.com/")})
		check(t, err)
	})
}

// One secret that can't be opened must not keep the others waiting.
func TestClaimWebhooks_SecretThatCannotBeOpenedIsReported(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		broken := newWebhook(x.card.AccountID)
		broken.Sealed = []byte("broken")
		insertWebhook(t, s, broken)
		x.happen(t, 1)
		all, err := x.ClaimWebhooks(t.Context(), 9, time.Hour)
		if err == nil || !strings.Contains(err.Error(), broken.ID.String()) || len(all) != 1 || all[0].Webhook.ID != x.hook.ID {
			t.Errorf("claimed %v, error %v", all, err)
		}
	})
}

func TestClaimWebhooks_SignsWithTheOldSecretForADay(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		x := newSending(t, s)
		x.happen(t, 1)
		_, fresh, err := x.RotateWebhookSecret(ctx, x.card.AccountID, x.hook.ID)
		check(t, err)
		for after, want := range map[time.Duration][]card.Secret{0: {fresh, "sealed"}, 24*time.Hour - 1: {fresh, "sealed"}, 24 * time.Hour: {fresh}} {
			x.now = epoch.Add(after)
			c := x.claim(t)
			check(t, x.ReleaseWebhook(ctx, c))
			if !slices.Equal(c.Secrets, want) {
				t.Errorf("after %v: %d secrets, want %d", after, len(c.Secrets), len(want))
			}
		}
	})
}

func TestPruneDeliveries_KeepsThirtyDaysAndWhatIsPending(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.happen(t, 2100)
		c := x.claim(t)
		due, err := x.DueDeliveries(t.Context(), c, 2099)
		check(t, err)
		var tried []card.Tried
		for _, d := range due {
			tried = append(tried, card.Tried{Delivery: d, Attempt: card.Attempt{At: x.now, Status: 200}})
		}
		x.save(t, c, tried)
		x.now = epoch.AddDate(0, 0, 30)
		check(t, x.PruneDeliveries(t.Context()))
		if n := len(deliveries(t, s, x.hook.ID)); n != 2100 {
			t.Errorf("%d deliveries of 2100 are left after 30 days", n)
		}
		x.now = x.now.Add(time.Millisecond)
		check(t, x.PruneDeliveries(t.Context()))
		wantDeliveries(t, s, x.hook.ID, "2100 pending")
	})
}

// awaitLock returns when a transaction on PostgreSQL waits for another, or done is closed.
func awaitLock(t testing.TB, url string, done <-chan struct{}) {
	t.Helper()
	beside := rig.OpenSQL(t, url)
	for waits := 0; waits == 0; {
		select {
		case <-done:
			return
		default:
			check(t, beside.QueryRow("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waits))
		}
	}
}

// insertBeside inserts an event while another transaction has done something already and then commits. It is about
// PostgreSQL only: SQLite has one writer.
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
		err = x.store.InTx(context.Background(), func(tx card.Tx) error {
			return tx.InsertEvents(context.Background(), []card.Event{newEvent(x.card, card.EventDetected)})
		})
	}()
	awaitLock(t, url, done)
	check(t, other.Commit())
	<-done
	if err != nil {
		t.Errorf("what the event belongs to is not stored: %v", err)
	}
}

// The payment of a card must not fail because its owner deletes a webhook at that moment.
func TestInsertEvents_WhileAWebhookIsDeleted(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
	x := newSending(t, open(t, url))
	x.insertBeside(t, url, "DELETE FROM webhooks WHERE id = ?")
	if got := seqs(t, x.store, x.card.AccountID); len(got) != 1 {
		t.Errorf("events %v", got)
	}
	wantDeliveries(t, x.store, x.hook.ID)
}
