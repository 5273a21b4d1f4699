package order_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

func (s *spy) InsertCardReserving(ctx context.Context, c *card.Card, limit card.USD, supplier string,
	life time.Duration) (bool, error) {
	if err := s.note("InsertCardReserving " + supplier); err != nil {
		return false, err
	}
	inserted, err := s.Store.InsertCardReserving(ctx, c, limit, supplier, life)
	if err == nil && s.reserved != nil {
		return false, s.reserved()
	}
	return inserted, err
}

// offer stores an offer of a supplier, and refreshes the service.
func (s *fixture) offer(supplier string, priority int, offers ...card.Offer) {
	s.t.Helper()
	check(s.t, s.db.SaveOffers(s.t.Context(), card.SupplierOffers{Supplier: supplier, Priority: priority, Offers: offers}))
	check(s.t, s.orders.RefreshOffers(s.t.Context()))
}

// shelve adds n items to the stock of a supplier, and offers them.
func (s *fixture) shelve(supplier string, priority, n int, usd card.USD) {
	s.t.Helper()
	items := make([]card.StockItem, n)
	for i := range items {
		id := uuid.Must(uuid.NewV7())
		items[i] = card.StockItem{ID: id, Supplier: supplier, USD: usd, ExpiresAt: s.now.AddDate(1, 0, 0), NumberHash: id[:],
			Sealed: &card.Sealed{CardNumber: []byte("n")}}
	}
	check(s.t, s.db.ImportStock(s.t.Context(), func(add func([]card.StockItem) error) error { return add(items) }))
	s.offer(supplier, priority, card.Offer{Min: usd, Max: usd, Left: int64(n), Life: time.Hour})
}

var everything = []card.Offer{{Min: card.MinUSD, Max: card.MaxUSD, Left: card.Unlimited}}

func TestListOffers_NoneStored_AnyAmount(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		check(t, s.orders.RefreshOffers(t.Context()))
		if diff := cmp.Diff(everything, s.orders.ListOffers()); diff != "" {
			t.Error(diff)
		}
		s.stock("monero", 9)
		s.create("51", "")
		s.offer("one", 1, card.Offer{Min: 100_00, Max: 900_00, Left: card.Unlimited})
		s.offer("two", 0, card.Offer{Min: 20_00, Max: 60_00, Left: 4}, card.Offer{Min: 75_00, Max: 75_00})
		want := []card.Offer{{Min: 50_00, Max: 60_00, Left: 4}, {Min: 100_00, Max: 750_00, Left: card.Unlimited}}
		if diff := cmp.Diff(want, s.orders.ListOffers()); diff != "" {
			t.Error(diff)
		}
		s.create("51", "")
		err := s.wantRefused("75", "", card.ErrNoAmount)
		if text := err.Error(); !strings.Contains(text, "cards of 50 to 60, 100 to 750 US dollars") {
			t.Error(text)
		}
	})
}

func TestCreateCard_AmountNotOffered_ListsTwentyOffers(t *testing.T) {
	for name, tt := range map[string]struct {
		offered int
		want    string // end of the list
	}{
		"all offers":   {20, "118, 119 US dollars."},
		"one too many": {21, "118, 119, and more US dollars."},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, setup{}, func(t *testing.T, s *fixture) {
				var offers []card.Offer
				for i := range tt.offered {
					usd := card.USD(100+i) * 100
					offers = append(offers, card.Offer{Min: usd, Max: usd, Left: 1})
				}
				s.offer("one", 0, offers...)
				if text := s.wantRefused("75", "", card.ErrNoAmount).Error(); !strings.Contains(text,
					"There are cards of 100, 101, ") || !strings.Contains(text, tt.want) {
					t.Error(text)
				}
			})
		})
	}
}

// Offers of a supplier that no longer responds expire. They are not dropped:
// without any offers, every amount is sold.
func TestListOffers_Expired_AreWithdrawn(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 9)
		s.offer("one", 0, card.Offer{Min: 50_00, Max: 60_00, Left: card.Unlimited})
		s.exec("UPDATE offers SET at = at - $1", (card.OfferTTL - time.Minute).Milliseconds())
		check(t, s.orders.RefreshOffers(t.Context()))
		s.create("51", "key")
		s.offer("two", 0, card.Offer{Min: 70_00, Max: 70_00, Left: card.Unlimited})
		s.exec("UPDATE offers SET at = at - 120000")
		check(t, s.orders.RefreshOffers(t.Context()))
		s.wantRefused("51", "", card.ErrNoAmount)
		s.create("70", "")

		// A store without a reply is not the client's fault.
		s.exec("UPDATE offers SET at = 0")
		check(t, s.orders.RefreshOffers(t.Context()))
		if offers := s.orders.ListOffers(); len(offers) > 0 {
			t.Error(offers)
		}
		s.wantRefused("70", "", card.ErrUnavailable)
		if _, replay, err := s.tryOrder("51", "key"); err != nil || !replay {
			t.Errorf("replay: %t, %v", replay, err)
		}
	})
}

// Between two reads of a supplier's balance, this process counts its own
// orders.
func TestCreateCard_TotalOfASupplier_OrdersCountAgainstIt(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		offer := card.Offer{Min: 50_00, Max: 750_00, Left: card.Unlimited, Total: 750_00}
		s.offer("stripe", 0, offer)
		s.create("400", "key")
		s.wantRefused("400", "", card.ErrNoAmount)
		check(t, s.orders.RefreshOffers(t.Context())) // the same offers, read again
		s.wantRefused("350.01", "", card.ErrNoAmount)
		if _, replay, err := s.tryOrder("400", "key"); err != nil || !replay {
			t.Errorf("replay: %t, %v", replay, err)
		}
		s.spy.fail("InsertCard", card.ErrUnavailable)
		if _, _, err := s.tryOrder("50", ""); !errors.Is(err, card.ErrUnavailable) {
			t.Error(err)
		}
		s.spy.fail("InsertCard", nil)
		s.wantRefused("300.01", "", card.ErrNoAmount) // the previous order may be stored
		s.create("300", "")
		s.wantRefused("50", "", card.ErrNoAmount)

		// Newer offers include the orders.
		s.now = s.now.Add(time.Minute)
		offer.Max, offer.Total = 50_00, 50_00
		s.offer("stripe", 0, offer)
		s.create("50", "")
		s.wantRefused("50", "", card.ErrNoAmount)
	})
}

// The card may be stored although the client disconnects.
func TestCreateCard_TotalOfASupplier_ClientDisconnects_OrderCounts(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.offer("stripe", 1, card.Offer{Min: 50_00, Max: 100_00, Left: card.Unlimited, Total: 100_00})
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		s.spy.fail("InsertCard", context.Canceled)
		if _, _, err := s.tryOrder("100", ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.spy.fail("InsertCard", nil)
		s.wantRefused("50", "", card.ErrNoAmount)
	})
}

// An order that reserves an item of stock, or fails, does not count against the
// total.
func TestCreateCard_TotalOfASupplier_OtherOrdersDoNotCount(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.offer("stripe", 1, card.Offer{Min: 50_00, Max: 100_00, Left: card.Unlimited, Total: 100_00})
		s.wantRefused("100", "", card.ErrNoAddress)
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		s.shelve("shelf", 0, 1, 100_00)
		s.create("100", "")
		s.create("100", "")
		s.wantRefused("100", "", card.ErrNoAmount)
	})
}

func TestRefreshOffers_StoreFails_KeepsOffers(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.offer("one", 0, card.Offer{Min: 100_00, Max: 100_00, Left: 1})
		s.spy.fail("Offers", errBroken)
		if err := s.orders.RefreshOffers(t.Context()); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if offers := s.orders.ListOffers(); len(offers) != 1 {
			t.Error(offers)
		}
	})
}

func TestCreateCard_Stock_ReservesByPriorityInOneRoundTrip(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		check(t, s.orders.Prepare(t.Context()))
		s.shelve("first", 1, 1, 100_00)
		s.shelve("second", 2, 1, 100_00)
		s.spy.takeCalls()
		one := s.create("100", "")
		s.wantCalls("InsertCardReserving first")
		two := s.create("100", "")
		s.wantCalls("InsertCardReserving first", "CardByUUID", "InsertCardReserving second")
		for supplier, c := range map[string]*card.Card{"first": one, "second": two} {
			if item, err := s.db.StockItem(t.Context(), supplier, c.UUID); err != nil || item.State != card.StockReserved {
				t.Errorf("%s: %s, %v", supplier, item.State, err)
			}
		}
		err := s.wantRefused("100", "", card.ErrNoAmount)
		if !strings.Contains(err.Error(), "nor of any other") {
			t.Error(err)
		}

		s.offer("third", 3, everything...)
		s.spy.takeCalls()
		s.create("100", "") // of the third supplier
		s.wantCalls("InsertCardReserving first", "CardByUUID", "InsertCardReserving second", "CardByUUID", "InsertCard")
		s.offer("third", 0, everything...)
		s.create("100", "")
		s.wantCalls("InsertCard")
	})
}

// A replay succeeds although the first request got the last item.
func TestCreateCard_Replay_NeedsNoStock(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		s.shelve("first", 0, 1, 100_00)
		c := s.create("100", "key")
		for range 2 { // before and after the cached offers show it as sold out
			again, replay, err := s.tryOrder("100", "key")
			check(t, err)
			if !replay || again.UUID != c.UUID {
				t.Errorf("replay: %t, card %s", replay, again.UUID)
			}
			s.wantRefused("200", "key", card.ErrKeyReused)
			s.wantRefused("100", "another", card.ErrNoAmount)
			s.offer("first", 0)
		}
	})
}

// The reply was lost, and the driver repeated the statement. The repetition
// finds no stock, because the first run reserved the last item.
func TestCreateCard_LastItem_LostReply_BelongsToTheCard(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		s.shelve("first", 0, 1, 100_00)
		s.spy.reserved = func() error { return card.ErrOutOfStock }
		s.create("100", "")
	})
}

func TestCreateCard_Reservation_CountsTowardQuota(t *testing.T) {
	onEach(t, setup{config: func(c *order.Config) { c.MaxOpenUSD = 150_00 }}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		s.shelve("first", 0, 3, 100_00)
		other := s.replica(s.db, setup{config: func(c *order.Config) { c.MaxOpenUSD = 150_00 }})
		s.create("100", "")
		check(t, other.RefreshOffers(t.Context()))
		_, _, err := other.CreateCard(t.Context(), s.account, s.check("100", "monero"), "")
		if !errors.Is(err, card.ErrQuotaExceeded) {
			t.Error(err)
		}
	})
}
