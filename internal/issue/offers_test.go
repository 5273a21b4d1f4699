package issue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// shop is a supplier that says what can be had of it.
type shop struct {
	press
	offers []card.Offer
	err    error
}

func (s *shop) Offers(context.Context) ([]card.Offer, error) { return s.offers, s.err }

func TestOffers_AreClippedToTheSuppliersAmounts(t *testing.T) {
	onEach(t, func(t *testing.T, r *room) {
		one, two := &shop{press: press{name: "one"}}, &shop{press: press{name: "two"}}
		routes := issue.Routes{{Supplier: one, Min: 60_00, Max: 100_00}, {Supplier: two, Min: 50_00, Max: 750_00}}
		one.offers = []card.Offer{{Min: 10_00, Max: 900_00, Left: card.Unlimited}, {Min: 50_00, Max: 50_00, Left: 1}}
		two.offers = []card.Offer{{Min: 50_00, Max: 50_00, Left: 2}}
		check(t, r.db.SaveOffers(t.Context(), card.SupplierOffers{Supplier: "gone", Offers: two.offers}))
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

		// One that fails keeps what it offered, and it ages.
		_, err := r.beside.Exec("UPDATE offers SET at = at - 60000")
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

func TestNewOffers_OnlyOfASupplierThatMakesThem(t *testing.T) {
	if _, err := issue.NewOffers(nil, issue.Only(&press{name: "press"}), 0); err == nil {
		t.Error("no error")
	}
}
