package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// shelf is the supplier of the stock in these tests.
const shelf = "shelf"

func newItem(usd card.USD, expires time.Time) card.StockItem {
	id := uuid.Must(uuid.NewV7())
	return card.StockItem{ID: id, Supplier: shelf, USD: usd, State: card.StockFree, ExpiresAt: expires.UTC(),
		NumberHash: []byte(id.String()),
		Sealed: &card.Sealed{CardNumber: []byte("1"), ExpirationDate: []byte("2"), SecurityCode: []byte("3"),
			URL: []byte("4"), URLPassword: []byte("5")}}
}

// stockUp imports n items of 150.50 dollars. Each expires a month after the
// previous one.
func stockUp(t testing.TB, s *store.Store, n int) []card.StockItem {
	t.Helper()
	items := make([]card.StockItem, n)
	for i := range items {
		items[i] = newItem(150_50, epoch.AddDate(0, i+2, 0))
	}
	importStock(t, s, items...)
	return items
}

func importStock(t testing.TB, s *store.Store, items ...card.StockItem) {
	t.Helper()
	check(t, s.ImportStock(t.Context(), func(add func([]card.StockItem) error) error { return add(items) }))
}

func reserve(t testing.TB, s *store.Store, c *card.Card) *card.Card {
	t.Helper()
	inserted, err := s.InsertCardReserving(t.Context(), c, 0, shelf, time.Hour)
	check(t, err)
	if !inserted {
		t.Fatal("the card was not inserted")
	}
	return c
}

// wantStock fails the test unless the stock has these numbers of items in each
// state.
func wantStock(t testing.TB, s *store.Store, free, reserved, issued, held int64) {
	t.Helper()
	counts, err := s.StockCounts(t.Context())
	check(t, err)
	got := map[card.StockState]int64{}
	for _, n := range counts {
		got[n.State] += n.Items
	}
	want := map[card.StockState]int64{card.StockFree: free, card.StockReserved: reserved, card.StockIssued: issued,
		card.StockHeld: held}
	for state, n := range want {
		if got[state] != n {
			t.Errorf("%d items are %s, want %d", got[state], state, n)
		}
	}
}

func TestInsertCardReserving_TakesTheFirstToExpire(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner, items := newAccount(t, s), stockUp(t, s, 3)
		soon := newItem(150_50, epoch.Add(30*time.Minute))
		importStock(t, s, soon, newItem(50_00, epoch.AddDate(1, 0, 0)))
		for i := range items {
			c := reserve(t, s, newCard(owner))
			got, err := s.StockItem(t.Context(), shelf, c.UUID)
			check(t, err)
			want := items[i]
			want.State = card.StockReserved
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if _, err := s.CardByUUID(t.Context(), owner, c.UUID); err != nil {
				t.Error(err)
			}
		}
		c := newCard(owner)
		inserted, err := s.InsertCardReserving(t.Context(), c, 0, shelf, time.Hour)
		wantError(t, err, card.ErrOutOfStock)
		if inserted {
			t.Error("a card was inserted without an item")
		}
		_, err = s.CardByUUID(t.Context(), owner, c.UUID)
		wantError(t, err, card.ErrNoRow)
		wantStock(t, s, 2, 3, 0, 0)
	})
}

func TestInsertCardReserving_ReservesNothingForACardThatIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		stockUp(t, s, 2)
		first := reserve(t, s, newCard(owner))
		sameAddress, tooMuch := newCard(owner), newCard(owner)
		sameAddress.Address = first.Address
		for c, limit := range map[*card.Card]card.USD{first: 0, sameAddress: 0, tooMuch: 200_00} {
			inserted, err := s.InsertCardReserving(t.Context(), c, limit, shelf, time.Hour)
			check(t, err)
			if inserted {
				t.Error("the card was inserted")
			}
		}
		wantStock(t, s, 1, 1, 0, 0)
	})
}

// Of 50 concurrent orders on three replicas for 5 items, exactly 5 get one
// each.
func TestInsertCardReserving_ReservesNoItemTwice(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		replicas := []*store.Store{open(t, url), open(t, url), open(t, url)}
		owner := newAccount(t, replicas[0])
		stockUp(t, replicas[0], 5)
		var sold, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				inserted, err := replicas[i%3].InsertCardReserving(context.Background(), newCard(owner), 0, shelf, time.Hour)
				switch {
				case inserted && err == nil:
					sold.Add(1)
				case errors.Is(err, card.ErrOutOfStock):
					refused.Add(1)
				default:
					t.Errorf("inserted %t, error %v", inserted, err)
				}
			})
		}
		all.Wait()
		if sold.Load() != 5 || refused.Load() != 45 {
			t.Errorf("%d sold, %d refused", sold.Load(), refused.Load())
		}
		wantStock(t, replicas[0], 0, 5, 0, 0)
	})
}

func TestTakeStock_GivesACardOneItemForEver(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		items := stockUp(t, s, 3)
		reserved := reserve(t, s, newCard(newAccount(t, s))).UUID
		take := func(id uuid.UUID, after time.Time) (card.StockItem, error) {
			return s.TakeStock(t.Context(), shelf, id, 150_50, after)
		}
		for range 2 {
			for id, want := range map[uuid.UUID]uuid.UUID{reserved: items[0].ID} {
				got, err := take(id, epoch)
				check(t, err)
				if got.ID != want || got.State != card.StockIssued || got.Sealed == nil {
					t.Errorf("item %s, %s", got.ID, got.State)
				}
			}
		}
		other := uuid.New()
		got, err := take(other, epoch)
		check(t, err)
		if got.ID != items[1].ID {
			t.Errorf("item %s", got.ID)
		}
		if got, err = take(other, epoch.AddDate(9, 0, 0)); err != nil || got.ID != items[1].ID {
			t.Errorf("item %s, error %v: the card must keep its item, whatever its value now", got.ID, err)
		}
		_, err = take(uuid.New(), items[2].ExpiresAt)
		wantError(t, err, card.ErrOutOfStock)
		_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 50_00, epoch)
		wantError(t, err, card.ErrOutOfStock)
		_, err = s.TakeStock(t.Context(), "another", uuid.New(), 150_50, epoch)
		wantError(t, err, card.ErrOutOfStock)
		wantStock(t, s, 1, 0, 2, 0)
	})
}

func TestTakeStock_AtOnceForOneCard(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		replicas := []*store.Store{open(t, url), open(t, url)}
		stockUp(t, replicas[0], 8)
		id := uuid.New()
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if _, err := replicas[i%2].TakeStock(context.Background(), shelf, id, 150_50, epoch); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		wantStock(t, replicas[0], 7, 0, 1, 0)
	})
}

func TestTakeStock_ReplacesAReservedItemThatExpiresTooSoon(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		items := stockUp(t, s, 2)
		c := reserve(t, s, newCard(newAccount(t, s)))
		got, err := s.TakeStock(t.Context(), shelf, c.UUID, 150_50, items[0].ExpiresAt)
		check(t, err)
		if got.ID != items[1].ID {
			t.Errorf("item %s", got.ID)
		}
		late := reserve(t, s, newCard(c.AccountID))
		_, err = s.TakeStock(t.Context(), shelf, late.UUID, 150_50, items[0].ExpiresAt)
		wantError(t, err, card.ErrOutOfStock)
		wantStock(t, s, 1, 0, 1, 0)
	})
}

func TestCancelStock_FreesWhatIsNotIssued(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 2)
		owner := newAccount(t, s)
		reserved, issued := reserve(t, s, newCard(owner)), reserve(t, s, newCard(owner))
		_, err := s.TakeStock(t.Context(), shelf, issued.UUID, 150_50, epoch)
		check(t, err)
		for _, id := range []uuid.UUID{reserved.UUID, issued.UUID, uuid.New()} {
			check(t, s.CancelStock(t.Context(), shelf, id))
		}
		wantStock(t, s, 1, 0, 1, 0)
	})
}

// An item stays reserved while its card may be paid, even after the quote has
// expired.
func TestTidyStock_FreesWhatWaitsForNothing(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		states := []card.PaymentState{card.Unpaid, card.Detected, card.Underpaid, card.Confirming, card.Paid, card.Expired,
			card.Late}
		stockUp(t, s, len(states)+1)
		var cards []*card.Card
		var as []card.Assessment
		for _, state := range states {
			cards, as = append(cards, reserve(t, s, newCard(owner))), append(as, card.Assessment{State: state})
		}
		open := newCard(owner)
		open.ExpiresAt = time.Now().Add(time.Hour)
		cards, as = append(cards, reserve(t, s, open)), append(as, card.Assessment{State: card.Expired})
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.SaveVerdicts(ctx, verdicts(cards, as...)) })
		check(t, s.TidyStock(t.Context()))
		for i, c := range cards {
			_, err := s.StockItem(t.Context(), shelf, c.UUID)
			free := as[i].State == card.Expired && c != open || as[i].State == card.Late
			if free != errors.Is(err, card.ErrNoRow) {
				t.Errorf("%s, expires %s: error %v", as[i].State, c.ExpiresAt, err)
			}
		}
		wantStock(t, s, 2, 6, 0, 0)
	})
}

func TestTidyStock_WipesWhatIsStoredElsewhere(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 2)
		var ids []uuid.UUID
		for _, c := range payCards(t, s, 2) {
			ids = append(ids, c.UUID)
		}
		claimed, err := s.ClaimIntents(t.Context(), claimOf(shelf), 2, time.Hour)
		check(t, err)
		var first card.StockItem
		for i, id := range ids {
			item, err := s.TakeStock(t.Context(), shelf, id, 150_50, epoch)
			check(t, err)
			if i == 0 {
				first = item
			}
		}
		check(t, s.TidyStock(t.Context()))
		for _, id := range ids {
			if item, err := s.StockItem(t.Context(), shelf, id); err != nil || item.Sealed == nil {
				t.Errorf("wiped before the card was stored, or lost: %v", err)
			}
		}
		for _, intent := range claimed {
			if intent.CardUUID == ids[0] {
				made := issued(intent, "x")
				made.NumberHash = first.NumberHash
				check(t, s.IssueTx(t.Context(), func(tx issue.Tx) error {
					return tx.SaveIssued(t.Context(), []issue.IssuedCard{made})
				}))
			}
		}
		check(t, s.TidyStock(t.Context()))
		for i, id := range ids {
			item, err := s.StockItem(t.Context(), shelf, id)
			check(t, err)
			if (item.Sealed == nil) != (i == 0) || item.State != card.StockIssued || len(item.NumberHash) == 0 {
				t.Errorf("card %d: %+v", i, item)
			}
		}
	})
}

// The stock of a removed supplier is not tidied, so a purge must wipe its
// copies.
func TestPurgeCard_WipesTheStock(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 2)
		payCards(t, s, 2)
		claimed, err := s.ClaimIntents(t.Context(), claimOf(shelf), 2, time.Hour)
		check(t, err)
		for i, intent := range claimed {
			item, err := s.TakeStock(t.Context(), shelf, intent.CardUUID, 150_50, epoch)
			check(t, err)
			made := issued(intent, "x")
			if i == 0 { // another supplier issued the other card, so its item is still valid
				made.NumberHash = item.NumberHash
			}
			check(t, s.IssueTx(t.Context(), func(tx issue.Tx) error {
				return tx.SaveIssued(t.Context(), []issue.IssuedCard{made})
			}))
		}
		for i, intent := range claimed {
			purged, err := s.PurgeCard(t.Context(),
				keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: intent.CardUUID, Note: "why", Operator: "who"})
			check(t, err)
			item, err := s.StockItem(t.Context(), shelf, intent.CardUUID)
			check(t, err)
			if !purged || (item.Sealed == nil) != (i == 0) || item.State != card.StockIssued || len(item.NumberHash) == 0 {
				t.Errorf("card %d: purged %t, %+v", i, purged, item)
			}
		}
	})
}

// After a rollback, free and reserved items may have been issued. They are held
// until an operator releases them.
func TestBeginEpoch_AStaleOneHoldsTheStock(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 3)
		owner := newAccount(t, s)
		reserved, issued := reserve(t, s, newCard(owner)), uuid.New()
		_, err := s.TakeStock(t.Context(), shelf, issued, 150_50, epoch)
		check(t, err)
		l, err := s.AcquireLease(t.Context(), settle.LeaseName("monero"), "watcher", time.Hour)
		check(t, err)
		l, err = s.BeginEpoch(t.Context(), l, settle.Epoch{Currency: "monero", Number: l.Now.UnixMilli()})
		check(t, err)
		wantStock(t, s, 1, 1, 1, 0)
		_, err = s.BeginEpoch(t.Context(), l, settle.Epoch{Currency: "monero", Number: l.Now.UnixMilli() + 1, Stale: true})
		check(t, err)
		wantStock(t, s, 0, 0, 1, 2)
		_, err = s.InsertCardReserving(t.Context(), newCard(owner), 0, shelf, time.Hour)
		wantError(t, err, card.ErrOutOfStock)
		_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
		wantError(t, err, card.ErrStockHeld)
		if item, err := s.TakeStock(t.Context(), shelf, reserved.UUID, 150_50, epoch); err != nil ||
			item.State != card.StockHeld {
			t.Errorf("item %s, error %v", item.State, err)
		}
		importStock(t, s, newItem(150_50, epoch.AddDate(1, 0, 0)))
		wantStock(t, s, 1, 0, 1, 2)
		if n, err := s.ReleaseStock(t.Context(), shelf, nil); err != nil || n != 2 {
			t.Errorf("%d released, error %v", n, err)
		}
		wantStock(t, s, 2, 1, 1, 0)
		if n, err := s.HoldStock(t.Context(), "another"); err != nil || n != 0 {
			t.Errorf("%d held, error %v", n, err)
		}
		if n, err := s.HoldStock(t.Context(), shelf); err != nil || n != 3 {
			t.Errorf("%d held, error %v", n, err)
		}
		if n, err := s.ReleaseStock(t.Context(), shelf, nil); err != nil || n != 3 {
			t.Errorf("%d released, error %v", n, err)
		}
		if item, err := s.TakeStock(t.Context(), shelf, reserved.UUID, 150_50, epoch); err != nil ||
			item.State != card.StockIssued {
			t.Errorf("item %s, error %v", item.State, err)
		}
	})
}

// Without an attested epoch, no item is issued.
func TestTakeStock_InsistsOnAnEpoch(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 1)
		s.RequireAttestation()
		_, err := s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
		wantError(t, err, card.ErrUnavailable)
		l, err := s.AcquireLease(t.Context(), settle.LeaseName("monero"), "watcher", time.Hour)
		check(t, err)
		_, err = s.BeginEpoch(t.Context(), l, settle.Epoch{Currency: "monero", Number: l.Now.UnixMilli()})
		check(t, err)
		_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
		check(t, err)
	})
}

func TestFreeStock_CountsWhatLastsByAmount(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		items := stockUp(t, s, 3)
		importStock(t, s, newItem(50_00, epoch.AddDate(1, 0, 0)), newItem(100_00, epoch))
		reserve(t, s, newCard(newAccount(t, s)))
		got, err := s.FreeStock(t.Context(), shelf, items[1].ExpiresAt)
		check(t, err)
		want := []card.Offer{{Min: 50_00, Max: 50_00, Left: 1}, {Min: 100_00, Max: 100_00},
			{Min: 150_50, Max: 150_50, Left: 1}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got, err := s.FreeStock(t.Context(), "another", epoch); err != nil || len(got) != 0 {
			t.Errorf("%v, error %v", got, err)
		}
	})
}

func TestImportStock_AllOrNothing(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		there := stockUp(t, s, 1)
		twice := newItem(50_00, epoch)
		twice.NumberHash = there[0].NumberHash
		err := s.ImportStock(t.Context(), func(add func([]card.StockItem) error) error {
			for range 3 {
				if err := add([]card.StockItem{newItem(50_00, epoch)}); err != nil {
					return err
				}
			}
			return add([]card.StockItem{twice})
		})
		wantError(t, err, card.ErrDuplicate)
		wantStock(t, s, 1, 0, 0, 0)
	})
}

func TestKnownNumbers_InStockOrEverIssued(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		there := stockUp(t, s, 1)[0].NumberHash
		payCards(t, s, 1)
		claimed, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 1, time.Hour)
		check(t, err)
		made := issued(claimed[0], "given out")
		check(t, s.IssueTx(t.Context(), func(tx issue.Tx) error {
			return tx.SaveIssued(t.Context(), []issue.IssuedCard{made})
		}))
		var many [][]byte
		for range 1200 {
			many = append(many, []byte(uuid.NewString()))
		}
		many = append(many, there, made.NumberHash)
		known, err := s.KnownNumbers(t.Context(), many)
		check(t, err)
		if len(known) != 2 {
			t.Errorf("%d are known", len(known))
		}
	})
}

func TestOffers_AreReplacedKeptAndDeleted(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		if all, err := s.Offers(ctx); err != nil || len(all) != 0 {
			t.Fatalf("%v, error %v", all, err)
		}
		one := card.SupplierOffers{Supplier: "one", Priority: 1,
			Offers: []card.Offer{{Min: 50_00, Max: 50_00, Left: 3, Life: time.Hour},
				{Min: 60_00, Max: 70_00, Left: card.Unlimited}}}
		check(t, s.SaveOffers(ctx, one))
		check(t, s.SaveOffers(ctx, card.SupplierOffers{Supplier: "two", Priority: 0}))
		check(t, s.KeepOffers(ctx, "one", 2))
		check(t, s.KeepOffers(ctx, "three", 1))
		all, err := s.Offers(ctx)
		check(t, err)
		if len(all) != 3 || all[0].Supplier != "two" || all[1].Supplier != "three" || all[1].Age < card.OfferTTL ||
			all[2].Age > time.Minute {
			t.Fatalf("%+v", all)
		}
		if diff := cmp.Diff(one.Offers, all[2].Offers); diff != "" {
			t.Error(diff)
		}
		check(t, s.DeleteOffers(ctx, []string{"two"}))
		if all, err := s.Offers(ctx); err != nil || len(all) != 1 || all[0].Supplier != "two" {
			t.Errorf("%+v, error %v", all, err)
		}
	})
}

// wantDoubtful fails the test unless these items are doubtful, in this order.
func wantDoubtful(t *testing.T, s *store.Store, want ...uuid.UUID) []card.UnresolvedItem {
	t.Helper()
	found, err := s.DoubtfulStock(t.Context())
	check(t, err)
	var got []uuid.UUID
	for _, item := range found {
		got = append(got, item.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	return found
}

func TestReleaseStock_LeavesOutWhatWasGivenOut(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		items := stockUp(t, s, 3)
		wantDoubtful(t, s)
		_, err := s.HoldStock(t.Context(), shelf)
		check(t, err)
		wantDoubtful(t, s, items[0].ID, items[1].ID, items[2].ID)
		if n, err := s.ReleaseStock(t.Context(), shelf, []uuid.UUID{items[0].ID, items[2].ID}); err != nil || n != 1 {
			t.Errorf("%d released, error %v", n, err)
		}
		wantStock(t, s, 1, 0, 0, 2)
		wantDoubtful(t, s, items[0].ID, items[2].ID)
	})
}

func TestDoubtfulStock_HasWhatACardNeverGot(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		all := stockUp(t, s, 4)
		payCards(t, s, 3)
		claimed, err := s.ClaimIntents(t.Context(), claimOf(shelf), 3, time.Hour)
		check(t, err)
		var items []card.StockItem
		for _, intent := range claimed {
			item, err := s.TakeStock(t.Context(), shelf, intent.CardUUID, 150_50, epoch)
			check(t, err)
			items = append(items, item)
		}
		wantDoubtful(t, s) // still being issued
		for i, hash := range [][]byte{items[0].NumberHash, []byte("made by another supplier")} {
			made := issued(claimed[i], "x")
			made.NumberHash = hash
			check(t, s.IssueTx(t.Context(), func(tx issue.Tx) error {
				return tx.SaveIssued(t.Context(), []issue.IssuedCard{made})
			}))
		}
		wantDoubtful(t, s, items[1].ID)
		parked := claimed[2]
		parked.State = issue.StateParked
		check(t, s.SaveIntents(t.Context(), []issue.Intent{parked}))
		for i, item := range wantDoubtful(t, s, items[1].ID, items[2].ID) {
			if item.CardUUID != claimed[i+1].CardUUID || item.State != card.StockIssued || item.Sealed == nil {
				t.Errorf("%+v", item)
			}
		}
		_, err = s.HoldStock(t.Context(), shelf)
		check(t, err)
		if held := wantDoubtful(t, s, items[1].ID, items[2].ID, all[3].ID); held[2].CardUUID != uuid.Nil ||
			held[2].State != card.StockHeld {
			t.Errorf("%+v", held[2])
		}
	})
}

func TestTakeStock_LockedItem_IsNotOutOfStock(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t) // SQLite has one writer
	s := open(t, url)
	stockUp(t, s, 1)
	// an order that will be refused: its key is taken, or it exceeds the quota
	other, err := rig.OpenSQL(t, url).Begin()
	check(t, err)
	_, err = other.Exec("SELECT id FROM stock WHERE state = 'free' FOR NO KEY UPDATE")
	check(t, err)
	_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
	if errors.Is(err, card.ErrOutOfStock) {
		t.Error("an item is free, but the supplier declined:", err)
	}
	check(t, other.Rollback())
	_, err = s.TakeStock(t.Context(), shelf, uuid.New(), 150_50, epoch)
	check(t, err)
	wantStock(t, s, 0, 0, 1, 0)
}

// The item is taken by an attempt that times out before its COMMIT returns.
func TestTakeStock_AnItemTakenLateIsNotLost(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t) // SQLite has one writer
	s := open(t, url)
	stockUp(t, s, 1)
	id := uuid.New()
	first, err := rig.OpenSQL(t, url).Begin()
	check(t, err)
	_, err = first.Exec("UPDATE stock SET state = 'issued', card_uuid = $1 WHERE state = 'free'", id)
	check(t, err)
	_, err = s.TakeStock(t.Context(), shelf, id, 150_50, epoch)
	check(t, first.Commit())
	if errors.Is(err, card.ErrOutOfStock) {
		t.Error("declined, but issued nevertheless")
	}
}
