package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func secret(text string) *card.Secret { return (*card.Secret)(&text) }

// Clients read their own data as they sent it, whichever statement inserted the
// card.
func TestCards_ClientsReadTheirOwnDataUnchanged(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		stockUp(t, s, 1)
		var want []*card.Card
		for i, own := range []struct {
			reference *card.Secret
			metadata  card.Secret
		}{
			{nil, ""},
			{secret(""), "{}"},
			{secret("order-4711"), `{"a":"b"}`},
			{secret(strings.Repeat("\U0001f600", 200)), `{"'; DROP TABLE cards; --":"\u0001\n\\"}`},
			{secret("e\u0301 \u00e9 \ufffd \u202e%_\\ \t"), card.Secret(`{"long":"` + strings.Repeat("x", 60_000) + `"}`)},
		} {
			c := newCard(owner)
			c.Reference, c.Metadata, c.IdempotencyKey = own.reference, own.metadata, fmt.Sprint("key ", i)
			var stored bool
			var err error
			switch i {
			case 0:
				stored, err = s.InsertCardReserving(t.Context(), c, 0, shelf, time.Hour)
			case 1:
				stored, err = s.InsertCard(t.Context(), c, 1_000_000)
			case 2:
				stored, err = true, s.Do(t.Context(), func(tx *store.Tx) error { return tx.InsertCard(t.Context(), c) })
			default:
				stored, err = s.InsertCard(t.Context(), c, 0)
			}
			if err != nil || !stored {
				t.Fatal(stored, err)
			}
			want = append([]*card.Card{c}, want...)
		}
		listed, err := s.Cards(t.Context(), order.Filter{AccountID: owner, Limit: 9})
		check(t, err)
		filtered, err := s.Cards(t.Context(), order.Filter{AccountID: owner, Currency: "monero", Limit: 9})
		check(t, err)
		for i, c := range want {
			one, err := s.CardByUUID(t.Context(), owner, c.UUID)
			check(t, err)
			for how, got := range map[string]*card.Card{"one": one, "listed": listed[i],
				"filtered": filtered[i]} {
				if diff := cmp.Diff(text(c.Reference), text(got.Reference)); diff != "" ||
					got.Metadata.Reveal() != c.Metadata.Reveal() {
					t.Errorf("%s: reference %s; metadata %.99q, want %.99q", how, diff, got.Metadata.Reveal(), c.Metadata.Reveal())
				}
			}
		}
		// Passes, which read thousands of cards, leave it out.
		some, err := s.CardsByUUID(t.Context(), []uuid.UUID{want[0].UUID})
		check(t, err)
		if some[0].Metadata != "" || some[0].Reference != nil {
			t.Error("the watcher reads metadata")
		}
	})
}

func text(s *card.Secret) *string {
	if s == nil {
		return nil
	}
	revealed := s.Reveal()
	return &revealed
}

// An event has its card's reference in every list.
func TestEvents_HaveTheReferenceOfTheirCard(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		hook := insertWebhook(t, s, newWebhook(owner))
		named := newCard(owner)
		named.Reference = secret("order <4711>")
		insertCard(t, s, named)
		nameless := insertCard(t, s, newCard(owner))
		insertEvents(t, s, newEvent(named, card.EventDetected), newEvent(nameless, card.EventDetected))
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			e := newEvent(named, card.EventUnderpaid)
			return tx.SaveVerdicts(ctx,
				[]card.Verdict{{Card: named, Assessment: card.Assessment{State: card.Underpaid}, Event: &e}})
		})
		insertEvents(t, s,
			card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: owner, Type: card.EventFeedReset, Since: epoch, CreatedAt: epoch})
		want := []string{"order <4711>", "", "order <4711>", ""}
		events, err := s.Events(t.Context(), owner, 0, 9)
		check(t, err)
		due, err := s.DueDeliveries(t.Context(), hook.ID, time.Now(), 9)
		check(t, err)
		listed, err := s.Deliveries(t.Context(), hook.ID, webhook.DeliveryFilter{Limit: 9})
		check(t, err)
		slices.Reverse(listed)
		record, err := s.CardDetail(t.Context(), named.UUID)
		check(t, err)
		var fed, sent, shown, told []string
		for _, e := range events {
			fed = append(fed, e.Reference.Reveal())
		}
		for _, d := range due {
			sent = append(sent, d.Event.Reference.Reveal())
		}
		for _, d := range listed {
			shown = append(shown, d.Event.Reference.Reveal())
		}
		for _, e := range record.Events {
			told = append(told, e.Reference.Reveal())
		}
		if diff := cmp.Diff([][]string{want, want, want, {want[0], want[2]}},
			[][]string{fed, sent, shown, told}); diff != "" {
			t.Error(diff)
		}
	})
}

// Compares every combination of conditions, page by page, with a linear search.
func TestCards_ConditionsCombine(t *testing.T) {
	coins := append(chain.Currencies(),
		card.Currency{Code: "pebble", Name: "Pebble", Decimals: 2, Confirmations: 3, BlockTime: time.Minute})
	onEach(t, func(t *testing.T, url string) {
		s, err := store.Open(t.Context(), url, 4, coins)
		check(t, err)
		t.Cleanup(func() { _ = s.Close() })
		random := rand.New(rand.NewPCG(1, 2))
		all := cardsToFilter(t, s, url, random, coins)
		start := card.TimeOf(all[0].UUID)
		n := 400
		if testing.Short() {
			n = 100
		}
		for range n {
			f := order.Filter{AccountID: all[random.IntN(len(all))].AccountID, Limit: 3,
				Status:    pick(random, "", "", card.AwaitingPayment, card.Generated),
				State:     pick(random, "", "", card.Unpaid, card.Paid, card.Late, card.Expired, card.Canceled),
				Currency:  pick(random, "", "", "monero", "pebble", "none"),
				Reference: pick[card.Secret](random, "", "", "shop", "shop ", "order 7", "nothing"),
			}
			if random.IntN(2) == 0 {
				f.CreatedAfter = start.Add(time.Duration(random.IntN(30_000)) * time.Microsecond)
			}
			if random.IntN(2) == 0 {
				f.CreatedBefore = start.Add(time.Duration(random.IntN(30_000)) * time.Microsecond)
			}
			var want, got []uuid.UUID
			for _, c := range slices.Backward(all) {
				if c.AccountID == f.AccountID && (f.Status == "" || c.Status == f.Status) &&
					(f.State == "" || c.State == f.State) &&
					(f.Currency == "" || c.Coin.Code == f.Currency) &&
					(f.Reference == "" || c.Reference != nil && *c.Reference == f.Reference) &&
					!c.CreatedAt.Before(f.CreatedAfter) && (f.CreatedBefore.IsZero() || c.CreatedAt.Before(f.CreatedBefore)) {
					want = append(want, c.UUID)
				}
			}
			for {
				page, err := s.Cards(t.Context(), f)
				check(t, err)
				got = append(got, ids(page)...)
				if len(page) < f.Limit {
					break
				}
				f.Before = got[len(got)-1]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%+v with reference %q: %s", f, f.Reference.Reveal(), diff)
			}
		}
	})
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// cardsToFilter stores cards of two accounts, several of a millisecond, and
// returns them oldest first.
func cardsToFilter(t *testing.T, s *store.Store, url string, random *rand.Rand,
	coins []card.Currency) (all []*card.Card) {
	t.Helper()
	owners := []uuid.UUID{newAccount(t, s), newAccount(t, s)}
	db := rig.OpenSQL(t, url)
	start := time.UnixMilli(1_800_000_000_000).UTC()
	for i := range 120 {
		c := newCard(pick(random, owners...))
		c.UUID = card.FirstUUID(start.Add(time.Duration(i/4) * time.Millisecond))
		c.UUID[6], c.UUID[8], c.UUID[15] = 0x70, 0x80, byte(i)
		c.CreatedAt, c.Coin = card.TimeOf(c.UUID), pick(random, coins...)
		c.Reference = pick(random, nil, secret("shop"), secret("shop "), secret(fmt.Sprint("order ", i%10)))
		c.Status, c.State = pick(random, card.AwaitingPayment, card.Generated), pick(random, card.PaymentStates()...)
		insertCard(t, s, c)
		stored, canceledAt := c.State, (*int64)(nil)
		switch {
		case c.State == card.Canceled: // as stored
			stored = card.Expired
			fallthrough
		case c.State != card.Expired && i%4 == 0: // paid after it was canceled
			canceledAt = new(int64)
			*canceledAt = c.CreatedAt.UnixMilli()
		}
		_, err := db.Exec("UPDATE cards SET status = $1, payment_state = $2, canceled_at = $3 WHERE uuid = $4", c.Status,
			stored, canceledAt, c.UUID)
		check(t, err)
		all = append(all, c)
	}
	return all
}
