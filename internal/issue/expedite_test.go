package issue_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// When a supplier announces news of a pending request, only that request is
// looked up, immediately.
func TestExpedite_PendingRequest_LookedUpImmediately(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c, other := r.paid(), r.paid()
		r.supplier.submit = pending
		r.issue(2)
		r.wantCalls("submit", "submit")
		for _, key := range []string{"no key of ours", uuid.NewString(), c.UUID.String()} {
			r.issuer.Expedite(key)
		}
		r.supplier.lookup = r.supplier.make
		check(t, r.issuer.Tick(t.Context()))
		r.wantCard(c)
		r.want(other, issue.StatePending, "pending", "")
	})
}

func TestConfig_RouteOfOneAmount_Valid(t *testing.T) {
	one, none := issue.Only(&fakeSupplier{name: "press"}), issue.Only(&fakeSupplier{name: "press"})
	one[0].Min, one[0].Max = 100_00, 100_00
	none[0].Min, none[0].Max = 100_01, 100_00
	if err := (&issue.Config{Routes: one}).Validate(); err != nil {
		t.Error(err)
	}
	if (&issue.Config{Routes: none}).Validate() == nil {
		t.Error("a maximum below the minimum is valid")
	}
}

func TestConfig_IndexOutOfRange_Invalid(t *testing.T) {
	for index, ok := range map[int]bool{-1: false, 0: true, 1: false} {
		cfg := issue.Config{Routes: issue.Only(&fakeSupplier{name: "press"}), Index: index}
		if err := cfg.Validate(); (err == nil) != ok {
			t.Errorf("index %d: %v", index, err)
		}
	}
}

// If the supplier's answer contains the card's face value, it must equal the
// ordered value.
func TestIssue_CardOfAnotherAmount_Parked(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		for _, usd := range []card.USD{150_50, 150_49} {
			r.supplier.submit = func(ctx context.Context, request issue.Request) (issue.Answer, error) {
				answer, err := r.supplier.make(ctx, request)
				answer.USD = usd
				return answer, err
			}
			c := r.paid()
			r.issue(1)
			if parked := r.count("intents WHERE state = 'parked' AND card_uuid = '" + c.UUID.String() +
				"'"); (parked == 1) != (usd != c.USD) {
				t.Errorf("a card of %s: parked %d", usd, parked)
			}
		}
	})
}

// Routing a card to the next supplier wakes that supplier's issuer.
func TestRoute_Declined_NextSupplierWoken(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, 0)
		m.suppliers[0].submit = declined
		c := m.paid()
		if n := r.wokenIssuers.Load(); n != 0 {
			t.Fatalf("woken %d times before", n)
		}
		m.work()
		if got, n := m.issuedBy(c), r.wokenIssuers.Load(); got != "b" || n != 1 {
			t.Errorf("issued by %q, woken %d times", got, n)
		}
	})
}
