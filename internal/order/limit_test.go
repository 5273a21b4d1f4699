package order_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// burst orders n cards of 50 dollars from each service concurrently, and
// returns the number of stored cards. The remaining orders must be refused.
func (s *fixture) burst(n int, services ...*order.Service) int {
	s.t.Helper()
	var sold atomic.Int64
	var all sync.WaitGroup
	start := make(chan struct{})
	o := s.check("50", "monero")
	for _, service := range services {
		for range n {
			all.Go(func() {
				<-start
				switch _, _, err := service.CreateCard(s.t.Context(), s.account, o, ""); {
				case err == nil:
					sold.Add(1)
				case !errors.Is(err, card.ErrQuotaExceeded):
					s.t.Error(err)
				}
			})
		}
	}
	close(start)
	all.Wait()
	open, err := s.db.Exposure(s.t.Context(), s.account, true)
	check(s.t, err)
	if open.OpenUSD != card.USD(sold.Load()*50_00) {
		s.t.Errorf("%d cards were sold, and %s dollars are open", sold.Load(), open.OpenUSD)
	}
	return int(sold.Load())
}

// The first requests of an account arrive concurrently, before its exposure is
// known.
func TestCreateCard_FirstBurst_StaysWithinQuota(t *testing.T) {
	onEach(t, limited(250_00), func(t *testing.T, s *fixture) {
		s.ready()
		if sold := s.burst(20, s.orders); sold != 5 {
			t.Errorf("%d cards were sold, want 5", sold)
		}
		reads := 0
		for _, call := range s.spy.takeCalls() {
			if call == "Exposure true" {
				reads++
			}
		}
		if reads != 1 {
			t.Errorf("the exposure was read %d times", reads)
		}
	})
}

// Replicas see each other's orders once they are committed. Each may exceed the
// quota by one card.
func TestCreateCard_Replicas_ExceedQuotaByOneCardEach(t *testing.T) {
	onEach(t, limited(250_00), func(t *testing.T, s *fixture) {
		s.stock("monero", 300)
		services := []*order.Service{s.orders}
		for range 2 {
			db, err := store.Open(t.Context(), s.url, 8, []card.Currency{monero, pebble})
			check(t, err)
			t.Cleanup(func() { _ = db.Close() })
			services = append(services, s.replica(db, limited(250_00)))
		}
		for range 2 { // once per growing total
			for _, one := range services {
				check(t, one.Prepare(t.Context()))
			}
			s.attest("monero")
		}
		for _, one := range services {
			check(t, one.Prepare(t.Context()))
		}
		for range 3 {
			s.account = s.newAccount()
			if sold := s.burst(20, services...); sold < 5 || sold > 5+len(services) {
				t.Errorf("%d cards were sold, want 5, or at most one more for each replica", sold)
			}
		}
	})
}

// The store checks the quota when it inserts a card, so a stale cache can delay
// a refusal, but not exceed the quota.
func TestCreateCard_OrdersOfAnotherReplica_CountImmediately(t *testing.T) {
	onEach(t, limited(150_00), func(t *testing.T, s *fixture) {
		s.ready()
		other := s.replica(s.db, limited(150_00))
		s.create("50", "")
		_, _, err := other.CreateCard(t.Context(), s.account, s.check("50", "monero"), "")
		check(t, err)
		s.spy.takeCalls()
		var refusal *card.Error
		if err := s.wantRefused("100", "", card.ErrQuotaExceeded); !errors.As(err, &refusal) || refusal.Quota == nil ||
			refusal.Quota.Left != 50 {
			t.Fatalf("%+v", refusal)
		}
		s.wantCalls("InsertCard", "CardByUUID", "Exposure true")
		s.wantRefused("100", "", card.ErrQuotaExceeded)
		s.wantCalls() // cached by now
		s.create("50", "key")
		s.wantCalls("InsertCard")
		again, replay, err := s.tryOrder("50", "key")
		if err != nil || !replay || again == nil {
			t.Errorf("replay: %t, %v", replay, err)
		}
	})
}

// An order that waits for another order of its account fails when its context
// is canceled.
func TestCreateCard_TurnHeld_WaitEndsWithContext(t *testing.T) {
	onEach(t, limited(500_00), func(t *testing.T, s *fixture) {
		s.ready()
		held, holding := make(chan struct{}), make(chan struct{})
		s.spy.inserting = func(*card.Card) error {
			close(holding)
			<-held
			return nil
		}
		var first sync.WaitGroup
		first.Go(func() { s.create("50", "") })
		<-holding
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c, _, err := s.orders.CreateCard(ctx, s.account, s.check("50", "monero"), ""); c != nil ||
			!errors.Is(err, card.ErrUnavailable) {
			t.Errorf("%v, %v", c, err)
		}
		s.spy.inserting = nil
		mine := s.account
		s.account = s.newAccount()
		s.create("50", "") // an order of another account does not wait
		s.account = mine
		close(held)
		first.Wait()
		s.create("50", "")
	})
}
