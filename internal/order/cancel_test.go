package order_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

func (s *spy) CancelCard(ctx context.Context, e card.Event) (bool, error) {
	if err := s.note("CancelCard"); err != nil {
		return false, err
	}
	canceled, err := s.Store.CancelCard(ctx, e)
	if err == nil && s.canceled != nil {
		err = s.canceled()
	}
	return canceled, err
}

func TestCancelCard_CallsStoreTwice(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 4)
		c, _, err := s.tryOrder("150", "")
		check(t, err)
		s.spy.takeCalls()
		got, err := s.orders.CancelCard(t.Context(), s.account, c.UUID)
		check(t, err)
		if got.State != card.Canceled || got.CanceledAt.UnixMilli() != s.now.UnixMilli() {
			t.Errorf("%s at %s", got.State, got.CanceledAt)
		}
		if calls := s.spy.takeCalls(); !slices.Equal(calls, []string{"CancelCard", "CardByUUID"}) {
			t.Errorf("calls %v", calls)
		}
		if _, err := s.orders.CancelCard(t.Context(), uuid.New(), c.UUID); !errors.Is(err, card.ErrNotFound) {
			t.Errorf("of another account: %v", err)
		}
	})
}

// The first call fails, either without effect or after its commit. A retry
// reports the card as canceled once that is as durable as the first call would
// have made it.
func TestCancelCard_Retried_ReturnsCanceledCard(t *testing.T) {
	for name, happened := range map[string]bool{"it failed": false, "it failed but had happened": true} {
		t.Run(name, func(t *testing.T) {
			onEach(t, setup{}, func(t *testing.T, s *fixture) {
				s.stock("monero", 4)
				c, _, err := s.tryOrder("150", "")
				check(t, err)
				lost := card.ErrUnavailable.WithCause(errors.New("connection lost"))
				if happened {
					s.spy.canceled = func() error { return lost }
				} else {
					s.spy.fail("CancelCard", lost)
				}
				if _, err := s.orders.CancelCard(t.Context(), s.account, c.UUID); !errors.Is(err, card.ErrUnavailable) {
					t.Fatal(err)
				}
				s.spy.canceled, s.spy.before = nil, nil
				s.spy.takeCalls()
				got, err := s.orders.CancelCard(t.Context(), s.account, c.UUID)
				check(t, err)
				if calls := s.spy.takeCalls(); got.State != card.Canceled || slices.Contains(calls, "AwaitReplication") != happened {
					t.Errorf("%s, calls %v", got.State, calls)
				}
				events, err := s.db.Events(t.Context(), s.account, 0, 9)
				check(t, err)
				if len(events) != 1 {
					t.Errorf("%d events", len(events))
				}
				s.spy.fail("AwaitReplication", lost)
				if _, err := s.orders.CancelCard(t.Context(), s.account, c.UUID); !errors.Is(err, card.ErrUnavailable) {
					t.Errorf("acknowledged although a failover may lose it: %v", err)
				}
			})
		})
	}
}

// unmoved is a store that finds a payment for every card to cancel.
type unmoved struct{ order.Store }

func (unmoved) CancelCard(context.Context, card.Event) (bool, error) { return false, nil }

// A payment that appears and disappears between two reads of a request proves
// nothing.
func TestCancelCard_PaymentVanishesBetweenReads_IsUnavailable(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 4)
		c, _, err := s.tryOrder("150", "")
		check(t, err)
		if _, err := s.replica(unmoved{s.spy}, setup{}).CancelCard(t.Context(), s.account, c.UUID); !errors.Is(err,
			card.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// A refunded payment has arrived, even if a reorg removed it later.
func TestCancelCard_AfterRefund(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 4)
		c, _, err := s.tryOrder("150", "")
		check(t, err)
		s.exec("UPDATE cards SET refunded = 1")
		if _, err := s.orders.CancelCard(t.Context(), s.account, c.UUID); !errors.Is(err, card.ErrHasPayments) {
			t.Error(err)
		}
	})
}
