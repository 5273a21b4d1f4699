package operator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// refused asks for a decision that can't be made now.
func (s *fixture) refused(c *card.Card, kind operator.ResolutionKind, want error) {
	s.t.Helper()
	_, err := s.service.ResolveCard(s.t.Context(), operator.Decision{CardUUID: c.UUID, Kind: kind, Note: "x", Operator: "x"})
	if !errors.Is(err, want) {
		s.t.Errorf("%s: %v, want %v", kind, err, want)
	}
}

// decided compares a decision with the amount it should be about and the state
// it should lead to.
func (s *fixture) decided(c *card.Card, kind operator.ResolutionKind, amount card.Amount, after card.PaymentState) {
	s.t.Helper()
	if done := s.resolve(c, kind); done.Unchanged || done.Resolution.Amount != amount || done.After != after {
		s.t.Errorf("%s: %+v, want %d and %s", kind, done, amount, after)
	}
}

// nothing asks for a decision where nothing is left to decide.
func (s *fixture) nothing(c *card.Card, kind operator.ResolutionKind) {
	s.t.Helper()
	if done := s.resolve(c, kind); !done.Unchanged {
		s.t.Errorf("%s: %+v, want nothing to do", kind, done)
	}
}

// late returns a card whose payment of so much came too late to be worth it.
func (s *fixture) late(amount card.Amount) *card.Card {
	s.t.Helper()
	c := s.order()
	s.now = s.now.Add(3 * time.Hour)
	s.rates.usd = "10"
	s.pay(c, amount, 10)
	s.settle()
	s.want(c, card.AwaitingPayment, card.Late, amount, 10)
	return c
}

func TestResolve_AcceptUnconfirmed_AcceptedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		s.pay(c, coin/2, 5)
		s.pay(c, coin/4, 0)
		s.settle()
		s.decided(c, operator.Accept, coin*3/4, card.Detected)
		s.nothing(c, operator.Accept)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 5, true)) // the half is gone
		s.settle()
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/4, 0)
		s.decided(c, operator.Accept, coin/4, card.Detected) // what is left is not what was accepted
		s.pay(c, 0, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin/4, 10)
		s.wantIssued(1)
	})
}

func TestResolve_AcceptSufficientPayment_Unchanged(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		s.tick()
		s.nothing(c, operator.Accept)
		s.nothing(c, operator.Retry) // it is not parked
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.nothing(c, operator.Refund) // there is no surplus
		s.nothing(c, operator.WriteOff)
	})
}

func TestResolve_AcceptMoreThanPrice_AcceptsPrice(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(3 * coin)
		s.decided(c, operator.Accept, coin, card.Paid)
		s.settle()
		s.wantBooks(ledger{Counted: 3 * coin, Made: coin, Surplus: 2 * coin, Paid: 1, Issued: 1})
	})
}

func TestResolve_AcceptRefunded_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.decided(c, operator.Refund, coin/2, card.Expired)
		s.refused(c, operator.Accept, operator.ErrRefunded)
		s.pay(c, coin/4, 10)
		s.settle()
		s.decided(c, operator.Accept, coin/4, card.Paid)
		s.settle()
		s.wantBooks(ledger{Counted: coin * 3 / 4, Made: coin / 4, Refunded: coin / 2, Paid: 1, Issued: 1})
	})
}

// The making of the card was decided, but nobody was asked for it yet: its
// money may be given back once the payment is not enough any more.
func TestResolve_RefundBeforeFirstRequest_Refunded(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		s.pay(c, coin/2, 5)
		s.pay(c, coin/2, 10)
		s.tick()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		s.refused(c, operator.Refund, operator.ErrBeingIssued)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.now = s.now.Add(3 * time.Hour)
		s.mine(10)
		s.tick()
		s.want(c, card.AwaitingPayment, card.Late, coin/2, 26)
		s.decided(c, operator.Refund, coin/2, card.Expired)
		s.settle()
		s.wantIssued(0)
	})
}

func TestResolve_RetryParkedWithoutMoney_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		s.pay(c, coin, 10)
		s.settle()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.refused(c, operator.Retry, operator.ErrNothingReceived)
		s.refused(c, operator.Refund, operator.ErrNothingReceived)
	})
}

func TestResolve_WriteOff_EachLossOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		s.pay(c, coin/4, 10)
		s.pay(c, coin*3/4, 10)
		s.settle()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true)) // the second payment
		s.settle()
		s.want(c, card.Generated, card.Reversed, coin/4, 21)
		s.decided(c, operator.WriteOff, coin*3/4, card.Reversed)
		s.nothing(c, operator.WriteOff)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 21, true)) // the first one too
		s.settle()
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.decided(c, operator.WriteOff, coin/4, card.Reversed)
		s.nothing(c, operator.WriteOff)
		s.wantBooks(ledger{Lost: coin, WrittenOff: coin, Paid: 1, Issued: 1})
	})
}

// A loss that was written off and came back is no loss any more, though the
// card was never made.
func TestResolve_WriteOffMoneyReturned_Unchanged(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.late(coin / 2)
		s.decided(c, operator.Refund, coin/2, card.Expired)
		s.refused(c, operator.WriteOff, operator.ErrNothingLost)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		s.decided(c, operator.WriteOff, coin/2, card.Expired)
		s.pay(c, coin/2, 10)
		s.settle()
		s.nothing(c, operator.WriteOff)
	})
}

func TestResolve_NoRate_LateMoneyWaits(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.resolve(c, operator.Refund)
		s.rates.usd = ""
		s.pay(c, coin/4, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin*3/4, 10) // nobody knows what it is worth
		s.decided(c, operator.Refund, coin/4, card.Expired)
	})
}

func TestResolve_Decision_LoggedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin)
		try := operator.Decision{CardUUID: c.UUID, Kind: operator.Accept, Note: "only asked", Operator: "bob", DryRun: true}
		if _, err := s.service.ResolveCard(t.Context(), try); err != nil {
			t.Fatal(err)
		}
		s.refused(c, operator.Retry, operator.ErrNotParked)
		if s.log.Len() > 0 {
			t.Errorf("nothing was decided, but logged: %s", &s.log)
		}
		s.resolve(c, operator.Accept)
		s.nothing(c, operator.Accept)
		if text := s.log.String(); strings.Count(text, "\n") != 1 ||
			!strings.Contains(text,
				c.UUID.String()+" decision=accept amount=\"1 monero\" operator=alice before=late after=paid") {
			t.Errorf("logged: %s", text)
		}
		s.settle()
	})
}

// wantEvents compares what the account was told of a card.
func (s *fixture) wantEvents(c *card.Card, want ...card.EventType) {
	s.t.Helper()
	record, err := s.store.CardDetail(s.t.Context(), c.UUID)
	check(s.t, err)
	var got []card.EventType
	for _, e := range record.Events {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("told: %s", diff)
	}
}

// A decision brings no money: of a payment that was told of before, the account
// hears no second time.
func TestResolve_Decision_PaymentEventNotRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		told := s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.pay(told, coin, 5)
		s.settle() // confirming
		s.rates.usd = "100"
		s.mine(5)
		s.settle()
		s.wantEvents(told, card.EventDetected, card.EventLate)
		s.decided(told, operator.Accept, coin, card.Paid)
		s.settle()
		s.wantEvents(told, card.EventDetected, card.EventLate, card.EventGenerated)

		rest := s.late(coin / 2)
		s.pay(rest, coin/4, 5)
		s.settle()
		s.decided(rest, operator.Refund, coin/2, card.Confirming) // what is left is not judged before it is confirmed
		s.wantEvents(rest, card.EventLate, card.EventDetected)
		s.mine(5)
		s.settle()
		s.decided(rest, operator.Accept, coin/4, card.Paid)
		s.settle()
		s.wantEvents(rest, card.EventLate, card.EventDetected, card.EventLate, card.EventGenerated)

		silent := s.late(coin / 2)
		s.decided(silent, operator.Accept, coin/2, card.Paid)
		s.settle()
		s.wantEvents(silent, card.EventLate, card.EventDetected, card.EventGenerated)
	})
}

func TestResolve_Result_IsComplete(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin)
		before, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
		check(t, err)
		before.Transfers = nil // which are read for customers
		done := s.resolve(c, operator.Accept)
		before.Tag, done.Card.Tag = "", "" // only clients see it
		if diff := cmp.Diff(before, done.Card); diff != "" {
			t.Errorf("the card as it was: %s", diff)
		}
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		if diff := cmp.Diff([]operator.Resolution{done.Resolution}, record.Resolutions); diff != "" {
			t.Errorf("kept: %s", diff)
		}
		if id := done.Resolution.ID; !done.Resolution.CreatedAt.Equal(card.TimeOf(id)) {
			t.Errorf("decided at %s, by its id at %s", done.Resolution.CreatedAt, card.TimeOf(id))
		}
		s.settle()
	})
}
