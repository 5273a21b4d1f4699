package issue_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

func TestRetry_ForgottenRequest_BuysNoSecondCard(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, 0)
		a, b := m.suppliers[0], m.suppliers[1]
		a.submit = answering(issue.Answer{Outcome: issue.Declined, Reason: "none"}, nil)
		b.retention = 24 * time.Hour
		bought := 0
		b.submit = func(context.Context, issue.Request) (issue.Answer, error) {
			bought++
			return issue.Answer{}, errors.New("timeout")
		}
		c := r.paid()
		m.work() // b issues the card, but its answer is lost
		both := m.routes
		m.routes = both[:1]
		m.restart()
		r.due()
		m.work()
		r.want(c, issue.StateParked, "unknown", r.reason(c))
		// three days later b has forgotten the key
		r.exec("UPDATE intents SET first_asked_at = first_asked_at - 259200000, opened_at = opened_at - 259200000")
		m.routes = both
		m.restart()
		r.retry(c)
		m.work()
		if bought != 1 {
			t.Errorf("bought %d cards for one payment", bought)
		}
	})
}

func TestRetry_RouteExcludesAmount_IsNotSubmitted(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, 0)
		a, b := m.suppliers[0], m.suppliers[1]
		m.routes[0].Max = 100_00
		m.restart()
		b.submit = answering(issue.Answer{Outcome: issue.Declined, Reason: "none"}, nil)
		c := r.paid() // 150.50
		m.work()
		m.routes = m.routes[:1]
		m.restart()
		r.retry(c)
		m.work()
		if n := strings.Count(strings.Join(a.calls, " "), "submit"); n > 0 {
			t.Errorf("a, which makes up to 100, was asked for 150.50: %v", a.calls)
		}
	})
}

type watched struct {
	offeringSupplier
	before func()
}

func (w *watched) Offers(ctx context.Context) ([]card.Offer, error) {
	w.before()
	return w.offeringSupplier.Offers(ctx)
}

func TestOffers_SuppliersChange_SomeAlwaysExist(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		check(t, r.db.SaveOffers(t.Context(), card.SupplierOffers{Supplier: "old"}))
		s := &watched{offeringSupplier: offeringSupplier{fakeSupplier: fakeSupplier{name: "new"}}}
		s.before = func() {
			all, err := r.db.Offers(t.Context())
			check(t, err)
			if len(all) == 0 {
				t.Error("no offers are stored: every amount is sold")
			}
		}
		o, err := issue.NewOffers(r.db, issue.Routes{{Supplier: s, Min: 50_00, Max: 100_00}}, 0)
		check(t, err)
		check(t, o.Tick(t.Context()))
	})
}

// racingStore returns what PostgreSQL returns if the supplier of an intent
// changes between the snapshot of a claim and its lock.
type racingStore struct{ *faultyStore }

func (s racingStore) ClaimIntents(ctx context.Context, c issue.Claim, n int, ttl time.Duration) ([]issue.Intent,
	error) {
	c.Supplier = "b"
	return s.faultyStore.ClaimIntents(ctx, c, n, ttl)
}

func TestIssue_IntentOfAnotherSupplier_IsNotParked(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, 0)
		m.suppliers[0].submit = answering(issue.Answer{Outcome: issue.Declined, Reason: "none"}, nil)
		c := r.paid()
		_, err := m.issuers[0].IssueDue(t.Context()) // b is due now
		check(t, err)
		late, err := issue.New(racingStore{r.store}, r.store, issue.Wake{}, slog.New(slog.NewTextHandler(io.Discard, nil)),
			issue.Config{Routes: m.routes})
		check(t, err)
		_, err = late.IssueDue(t.Context())
		check(t, err)
		r.due()
		m.work()
		r.want(c, issue.StateDone, "issued", "")
	})
}
