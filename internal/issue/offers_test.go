package issue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// offeringSupplier is a supplier with offers.
type offeringSupplier struct {
	fakeSupplier
	offers []card.Offer
	err    error
}

func (s *offeringSupplier) Offers(context.Context) ([]card.Offer, error) { return s.offers, s.err }

func TestOffers_Route_ClipsAmounts(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		one, two := &offeringSupplier{fakeSupplier: fakeSupplier{name: "one"}},
			&offeringSupplier{fakeSupplier: fakeSupplier{name: "two"}}
		routes := issue.Routes{{Supplier: one, Min: 60_00, Max: 100_00}, {Supplier: two, Min: 50_00, Max: 750_00}}
		one.offers = []card.Offer{{Min: 10_00, Max: 900_00, Left: card.Unlimited}, {Min: 50_00, Max: 50_00, Left: 1}}
		two.offers = []card.Offer{{Min: 50_00, Max: 50_00, Left: 2}}
		check(t, r.db.SaveOffers(t.Context(), card.SupplierOffers{Supplier: "removed", Offers: two.offers}))
		var all []*issue.Offers
		for i := range routes {
			o, err := issue.NewOffers(r.db, routes, i)
			check(t, err)
			check(t, o.Tick(t.Context()))
			all = append(all, o)
		}
		want := []card.SupplierOffers{
			{Supplier: "one", Offers: []card.Offer{{Min: 60_00, Max: 100_00, Left: card.Unlimited}}},
			{Supplier: "two", Priority: 1, Offers: two.offers},
		}
		stored := func() []card.SupplierOffers {
			t.Helper()
			got, err := r.db.Offers(t.Context())
			check(t, err)
			return got
		}
		if diff := cmp.Diff(want, stored(), cmpopts.IgnoreFields(card.SupplierOffers{}, "Age")); diff != "" {
			t.Error(diff)
		}

		// A supplier whose request fails keeps its offers, which age.
		_, err := r.direct.Exec("UPDATE offers SET at = at - 60000")
		check(t, err)
		one.err = errors.New("busy with 4111 1111 1111 1111")
		if err := all[0].Tick(t.Context()); err == nil || err.Error() != "offers: busy with [number]" {
			t.Error(err)
		}
		check(t, all[1].Tick(t.Context()))
		got := stored()
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(card.SupplierOffers{}, "Age")); diff != "" {
			t.Error(diff)
		}
		if got[0].Age < 60e9 || got[1].Age > 50e9 {
			t.Errorf("ages %s and %s", got[0].Age, got[1].Age)
		}
	})
}

// Cards that are ordered but not issued are subtracted from a balance.
func TestOffers_Total_ExcludesPromisedCards(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		s := &offeringSupplier{fakeSupplier: fakeSupplier{name: "one"}}
		o, err := issue.NewOffers(r.db, issue.Only(s), 0)
		check(t, err)
		offered := func(total card.USD) []card.Offer {
			t.Helper()
			s.offers = []card.Offer{{Min: 1, Max: total, Left: card.Unlimited, Total: total}}
			check(t, o.Tick(t.Context()))
			all, err := r.db.Offers(t.Context())
			check(t, err)
			return all[0].Offers
		}
		want := func(got []card.Offer, want ...card.Offer) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		want(offered(750_00), card.Offer{Min: card.MinUSD, Max: 750_00, Left: card.Unlimited, Total: 750_00})
		c := r.paid() // 150.50
		want(offered(750_00), card.Offer{Min: card.MinUSD, Max: 599_50, Left: card.Unlimited, Total: 599_50})
		want(offered(150_50))
		want(offered(200_00)) // 49.50 is less than any card costs
		want(offered(200_50), card.Offer{Min: card.MinUSD, Max: card.MinUSD, Left: card.Unlimited, Total: card.MinUSD})
		want(offered(2000_00), card.Offer{Min: card.MinUSD, Max: card.MaxUSD, Left: card.Unlimited, Total: 1849_50})
		r.exec("UPDATE intents SET state = 'parked'")
		want(offered(150_50))
		r.exec("UPDATE intents SET state = 'refund_due'")
		want(offered(150_50), card.Offer{Min: card.MinUSD, Max: 150_50, Left: card.Unlimited, Total: 150_50})
		r.exec("UPDATE intents SET state = 'done'")
		r.exec("UPDATE cards SET status = 'generated'")
		want(offered(150_50), card.Offer{Min: card.MinUSD, Max: 150_50, Left: card.Unlimited, Total: 150_50})
		for state, promised := range map[card.PaymentState]bool{card.Unpaid: true, card.Detected: true, card.Underpaid: true,
			card.Confirming: true, card.Expired: false, card.Late: false} {
			r.exec("UPDATE cards SET status = 'awaiting_payment', payment_state = '" + string(state) + "'")
			if got := offered(150_50); len(got) == 0 != promised {
				t.Errorf("%s: offered %+v", state, got)
			}
		}
		r.exec("UPDATE cards SET payment_state = 'unpaid'")
		item := card.StockItem{ID: c.UUID, Supplier: "shelf", USD: c.USD, ExpiresAt: time.Now(), NumberHash: c.UUID[:],
			Sealed: &card.Sealed{CardNumber: []byte("n")}}
		check(t, r.db.ImportStock(t.Context(), func(add func([]card.StockItem) error) error {
			return add([]card.StockItem{item})
		}))
		r.exec("UPDATE stock SET state = 'reserved', card_uuid = id, reserved_until = 9")
		want(offered(150_50), card.Offer{Min: card.MinUSD, Max: 150_50, Left: card.Unlimited, Total: 150_50})
	})
}

func TestNewOffers_SupplierWithoutOffers_ReturnsError(t *testing.T) {
	if _, err := issue.NewOffers(nil, issue.Only(&fakeSupplier{name: "press"}), 0); err == nil {
		t.Error("no error")
	}
}
