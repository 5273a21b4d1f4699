package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

func figures(t *testing.T, s *store.Store) operator.Stats {
	t.Helper()
	f, err := s.Stats(t.Context())
	check(t, err)
	return f
}

// aged reports whether an age is above a minimum, by less than the duration of
// a test.
func aged(age, minimum time.Duration) bool { return age >= minimum && age < minimum+10*time.Minute }

func TestStats_CountOpenAndWaiting(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, db := open(t, url), rig.OpenSQL(t, url)
		exec := func(statement string, args ...any) {
			t.Helper()
			_, err := db.Exec(statement, args...)
			check(t, err)
		}
		empty := operator.Stats{Intents: map[string]int64{"open": 0, "pending": 0, "parked": 0, "refund_due": 0}}
		if diff := cmp.Diff(empty, figures(t, s)); diff != "" {
			t.Errorf("empty database: %s", diff)
		}
		owner := newAccount(t, s)
		hook, off := newWebhook(owner), newWebhook(owner)
		off.Enabled = false
		insertWebhook(t, s, hook)
		insertWebhook(t, s, off)
		ago := func(d time.Duration) int64 { return time.Now().Add(-d).UnixMilli() }
		for _, of := range []struct {
			payment, intent string
			held            int64
		}{{"unpaid", "", 0}, {"underpaid", "", 0}, {"expired", "", 0}, {"canceled", "", 0}, {"late", "", 7},
			{"late", "", 1_000000000000},
			{"paid", "open", 0}, {"paid", "pending", 0}, {"paid", "parked", 0}, {"paid", "refund_due", 0}, {"paid", "done", 0}} {
			c := insertCard(t, s, newCard(owner))
			exec("UPDATE cards SET payment_state = $1, credit_held = $2 WHERE uuid = $3", of.payment, of.held, c.UUID)
			if of.intent != "" {
				exec("INSERT INTO intents (card_uuid, state, due_at, decided_at) VALUES ($1, $2, 0, $3)", c.UUID, of.intent,
					ago(time.Hour))
			}
		}
		c := insertCard(t, s, newCard(owner))
		exec("UPDATE intents SET decided_at = $1 WHERE state = 'pending'", ago(2*time.Hour))
		attributed := newTransfer("b", 0, "nobody", 10)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			gone := newTransfer("c", 0, "nobody", 100)
			gone.Counted = false
			return tx.UpsertTransfers(ctx,
				[]card.Transfer{newTransfer("a", 0, c.Address, 1), attributed, gone, newTransfer("d", 0, "nobody", 1000),
					newTransfer("d", 1, "elsewhere", 10000)})
		})
		attribute(t, s, newAttribution(attributed, c.UUID))
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.InsertAddresses(ctx,
				[]settle.Address{{Currency: "monero", Address: "x", Position: 0}, {Currency: "monero", Address: "y", Position: 1},
					{Currency: "monero", Address: "z", Position: 2}}, time.Time{})
		})
		exec("UPDATE address_pools SET next_position = 1")
		l, err := s.AcquireLease(t.Context(), settle.LeaseName("monero"), "w", time.Hour)
		check(t, err)
		_, err = s.BeginEpoch(t.Context(), l, settle.Epoch{Currency: "monero", Number: l.Now.UnixMilli()})
		check(t, err)
		free := figures(t, s).Coins[0].FreeAddresses // an epoch abandons addresses
		check(t, s.SaveOffers(t.Context(),
			card.SupplierOffers{Supplier: "shelf",
				Offers: []card.Offer{{Min: 100_00, Max: 100_00, Left: 3, Life: time.Hour},
					{Min: 150_00, Max: 150_00, Left: 0, Life: time.Hour}}}))
		check(t, s.SaveOffers(t.Context(),
			card.SupplierOffers{Supplier: "maker",
				Offers: []card.Offer{{Min: 50_00, Max: 100_00, Left: card.Unlimited}, {Min: 150_00, Max: 150_00, Left: 9}}}))
		insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(c, card.EventDetected))

		got := figures(t, s)
		want := operator.Stats{
			Coins: []operator.CoinStats{
				{Coin: c.Coin, FreeAddresses: free, Epoch: l.Now.UnixMilli(), Unattributed: card.TotalOf(11000),
					Held: card.TotalOf(1_000000000007), HeldCards: 2}},
			Intents: map[string]int64{"open": 1, "pending": 1, "parked": 1, "refund_due": 1}, OpenQuotes: 3 * 150_50,
			OpenCards: 3, Backlog: 2,
			Stock: []operator.StockStats{{Supplier: "shelf", USD: 100_00, Left: 3}, {Supplier: "shelf", USD: 150_00, Left: 0}},
		}
		if diff := cmp.Diff(want, got,
			cmpopts.IgnoreFields(operator.Stats{}, "OldestIntent", "OldestDelivery")); diff != "" {
			t.Error(diff)
		}
		if !aged(got.OldestIntent, 2*time.Hour-time.Second) {
			t.Errorf("the oldest intent is %s old, want 2 hours", got.OldestIntent)
		}
		exec("UPDATE events SET created_at = $1", ago(30*time.Minute))
		if age := figures(t, s).OldestDelivery; !aged(age, 30*time.Minute-time.Second) {
			t.Errorf("the oldest delivery has been due for %s, want 30 minutes", age)
		}
		exec("UPDATE deliveries SET due_at = $1", ago(-time.Hour)) // both wait for their next attempt
		if f := figures(t, s); f.OldestDelivery != 0 || f.Backlog != 2 {
			t.Errorf("%d deliveries wait, one of them due for %s", f.Backlog, f.OldestDelivery)
		}
		exec("UPDATE deliveries SET due_at = $1 WHERE seq = 1", ago(time.Hour))
		if age := figures(t, s).OldestDelivery; !aged(age, time.Hour-time.Second) {
			t.Errorf("the oldest delivery has been due for %s, want an hour", age)
		}
	})
}

func TestStats_FreeAddresses_StartAtNextPosition(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.InsertAddresses(ctx,
				[]settle.Address{{Currency: "monero", Address: "x", Position: 0}, {Currency: "monero", Address: "y", Position: 1}},
				time.Time{})
		})
		pool, err := s.AddressPool(t.Context(), "monero")
		check(t, err)
		got := figures(t, s).Coins
		if len(got) != 1 || got[0].FreeAddresses != int64(pool.Free) || got[0].FreeAddresses != 2 || got[0].Epoch != 0 {
			t.Errorf("got %+v, want 2 free addresses and no epoch", got)
		}
	})
}

func TestPools_AreNamed(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		pools := s.Pools()
		most := 0
		for name, p := range pools {
			most = max(most, p.MaxOpenConnections)
			if (name == "write" || name == "read") != s.SingleWriter() {
				t.Errorf("pool %s", name)
			}
		}
		if most != 8 {
			t.Errorf("at most %d connections, want 8", most)
		}
	})
}
