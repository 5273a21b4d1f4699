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
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func newEvent(c *card.Card, kind card.EventType) card.Event {
	return card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: c.AccountID, Type: kind, CardUUID: c.UUID,
		Status: card.AwaitingPayment, State: card.Detected,
		CreatedAt: epoch}
}

func insertEvents(t testing.TB, s *store.Store, es ...card.Event) {
	t.Helper()
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertEvents(ctx, es) })
}

// seqs returns the sequence numbers of an account's events.
func seqs(t testing.TB, s *store.Store, account uuid.UUID) (all []int64) {
	t.Helper()
	es, err := s.Events(t.Context(), account, 0, 10_000)
	check(t, err)
	for _, e := range es {
		all = append(all, e.Seq)
	}
	return all
}

func deliveries(t testing.TB, s *store.Store, id uuid.UUID) []webhook.Delivery {
	t.Helper()
	all, err := s.Deliveries(t.Context(), id, webhook.DeliveryFilter{Limit: 10_000})
	check(t, err)
	return all
}

// saveDeliveries stores deliveries regardless of their previous state.
func saveDeliveries(t testing.TB, s *store.Store, id uuid.UUID, after ...webhook.Delivery) {
	t.Helper()
	due := map[int64]time.Time{}
	for _, d := range deliveries(t, s, id) {
		due[d.Event.Seq] = d.DueAt
	}
	before := slices.Clone(after)
	for i := range before {
		before[i].DueAt = due[before[i].Event.Seq]
	}
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.SaveDeliveries(ctx, id, before, after) })
}

// wantDeliveries fails the test unless the webhook has the given deliveries,
// newest first, each written as its event's number and its state.
func wantDeliveries(t testing.TB, s *store.Store, id uuid.UUID, want ...string) {
	t.Helper()
	var got []string
	for _, d := range deliveries(t, s, id) {
		got = append(got, fmt.Sprint(d.Event.Seq, " ", d.State))
		if pending := d.State == webhook.DeliveryPending; pending == d.DueAt.IsZero() {
			t.Errorf("%s is due %v", got[len(got)-1], d.DueAt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deliveries: %s", diff)
	}
}

// of returns a delivery of the event with the given number.
func of(seq int64, state webhook.DeliveryState, due time.Time) webhook.Delivery {
	return webhook.Delivery{Event: card.Event{Seq: seq}, State: state, DueAt: due}
}

func TestInsertEvents_GoToTheWebhooksThatWantThem(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account, other := newAccount(t, s), newAccount(t, s)
		c, foreign := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(other))
		all := insertWebhook(t, s, newWebhook(account))
		late := insertWebhook(t, s, newWebhook(account, card.EventLate))
		two := insertWebhook(t, s, newWebhook(account, card.EventGenerated, card.EventLate))
		none := insertWebhook(t, s, newWebhook(account, card.EventWebhookDisabled))
		part := insertWebhook(t, s,
			newWebhook(account, "payment", "late", "payment.lat", "ayment.late", "payment.late2", "payment.late.x"))
		off := newWebhook(account, card.EventGenerated)
		off.Enabled = false
		insertWebhook(t, s, off)
		theirs := insertWebhook(t, s, newWebhook(other))
		insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(foreign, card.EventLate),
			newEvent(c, card.EventGenerated), newEvent(c, card.EventLate))
		wantDeliveries(t, s, all.ID, "3 pending", "2 pending", "1 pending")
		wantDeliveries(t, s, late.ID, "3 pending")
		wantDeliveries(t, s, two.ID, "3 pending", "2 pending")
		wantDeliveries(t, s, none.ID)
		wantDeliveries(t, s, part.ID)
		wantDeliveries(t, s, off.ID)
		wantDeliveries(t, s, theirs.ID, "1 pending")
	})
}

func TestInsertEvents_WebhookDisabled_IsNotNotifiedItself(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		dead, well, choosy := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account)),
			insertWebhook(t, s, newWebhook(account, card.EventLate))
		want := card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: account, Type: card.EventWebhookDisabled,
			WebhookID: dead.ID, CreatedAt: epoch}
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

// A webhook gets the events after its creation. Clients list or recover earlier
// ones by listEvents.
func TestInsertEvents_EventBeforeWebhook_IsNotDelivered(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		insertEvents(t, s, newEvent(c, card.EventDetected))
		w := insertWebhook(t, s, newWebhook(account))
		insertEvents(t, s, newEvent(c, card.EventGenerated))
		wantDeliveries(t, s, w.ID, "2 pending")
	})
}

// Clients detect missed events by gaps in the numbers.
func TestInsertEvents_ConcurrentChanges_SeqHasNoGaps(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		var cards []*card.Card
		var hooks []*webhook.Webhook
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
					err := s.Do(t.Context(), func(tx *store.Tx) error {
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
		wantError(t, s.Do(t.Context(), func(tx *store.Tx) error {
			check(t, tx.InsertEvents(t.Context(),
				[]card.Event{newEvent(c, card.EventDetected), newEvent(c, card.EventGenerated)}))
			return crash
		}), crash)
		if events, sent := scalar[int](t, url, "SELECT COUNT(*) FROM events"),
			scalar[int](t, url, "SELECT COUNT(*) FROM deliveries"); events+sent != 0 {
			t.Errorf("%d events, %d deliveries", events, sent)
		}
		if got := claim(t, s, 9, time.Hour); len(got) != 0 {
			t.Error("a delivery is due")
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
					t.Fatalf("%d events, requested at most %d", len(page), limit)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pages of %d: %s", limit, diff)
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

func TestCardEvents_AreThoseOfOneCardOfTheAccount(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		one, two, foreign := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(account)),
			insertCard(t, s, newCard(newAccount(t, s)))
		reset := newEvent(one, card.EventFeedReset)
		reset.CardUUID, reset.Status, reset.State = uuid.Nil, "", ""
		for _, e := range []card.Event{newEvent(one, card.EventDetected), newEvent(two, card.EventDetected),
			newEvent(foreign, card.EventDetected), reset,
			newEvent(one, card.EventUnderpaid), newEvent(one, card.EventGenerated)} {
			insertEvents(t, s, e)
		}
		for _, x := range []struct {
			account, card uuid.UUID
			after         int64
			limit         int
			want          []int64
		}{
			{account, one.UUID, 0, 9, []int64{1, 4, 5}}, {account, one.UUID, 1, 9, []int64{4, 5}},
			{account, one.UUID, 3, 1, []int64{4}},
			{account, one.UUID, 5, 9, nil}, {account, two.UUID, 0, 9, []int64{2}}, {account, foreign.UUID, 0, 9, nil},
			{foreign.AccountID, foreign.UUID, 0, 9, []int64{1}}, {foreign.AccountID, one.UUID, 0, 9, nil},
			{account, uuid.New(), 0, 9, nil},
		} {
			es, err := s.CardEvents(t.Context(), x.account, x.card, x.after, x.limit)
			check(t, err)
			var got []int64
			for _, e := range es {
				got = append(got, e.Seq)
				if e.CardUUID != x.card {
					t.Errorf("an event of card %s among those of %s", e.CardUUID, x.card)
				}
			}
			if diff := cmp.Diff(x.want, got); diff != "" {
				t.Errorf("%+v: %s", x, diff)
			}
		}
		seqs, err := s.LastSeqs(t.Context(), []uuid.UUID{account, foreign.AccountID, newAccount(t, s), uuid.New()})
		check(t, err)
		if len(seqs) != 3 || seqs[account] != 5 || seqs[foreign.AccountID] != 1 {
			t.Errorf("newest events of accounts: %v", seqs)
		}
		got, err := s.LastSeqsOfCards(t.Context(), []uuid.UUID{one.UUID, two.UUID, foreign.UUID, uuid.New()})
		check(t, err)
		want := map[webhook.Topic]int64{{AccountID: account, CardUUID: one.UUID}: 5,
			{AccountID: account, CardUUID: two.UUID}:               2,
			{AccountID: foreign.AccountID, CardUUID: foreign.UUID}: 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("newest events of cards: %s", diff)
		}
	})
}
