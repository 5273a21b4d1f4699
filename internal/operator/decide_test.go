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

// wantRefused checks that a decision can't be made now.
func (s *fixture) wantRefused(c *card.Card, kind operator.ResolutionKind, want error) {
	s.t.Helper()
	_, err := s.service.ResolveCard(s.t.Context(), operator.Decision{CardUUID: c.UUID, Kind: kind, Note: "x", Operator: "x"})
	if !errors.Is(err, want) {
		s.t.Errorf("%s: %v, want %v", kind, err, want)
	}
}

// wantDecided makes a decision, and compares its amount and the new state.
func (s *fixture) wantDecided(c *card.Card, kind operator.ResolutionKind, amount card.Amount,
	after card.PaymentState) {
	s.t.Helper()
	if done := s.resolve(c, kind); done.Unchanged || done.Resolution.Amount != amount || done.After != after {
		s.t.Errorf("%s: %+v, want %d and %s", kind, done, amount, after)
	}
}

// wantNothingToDo checks that nothing is left to decide.
func (s *fixture) wantNothingToDo(c *card.Card, kind operator.ResolutionKind) {
	s.t.Helper()
	if done := s.resolve(c, kind); !done.Unchanged {
		s.t.Errorf("%s: %+v, want nothing to do", kind, done)
	}
}

// late returns a card whose payment of amount came too late and is worth too
// little.
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
		s.wantDecided(c, operator.Accept, coin*3/4, card.Detected)
		s.wantNothingToDo(c, operator.Accept)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 5, true)) // the second half leaves the chain
		s.settle()
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/4, 0)
		s.wantDecided(c, operator.Accept, coin/4, card.Detected) // the remaining half was not the accepted one
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
		s.wantNothingToDo(c, operator.Accept)
		s.wantNothingToDo(c, operator.Retry) // not parked
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantNothingToDo(c, operator.Refund) // no surplus
		s.wantNothingToDo(c, operator.WriteOff)
	})
}

func TestResolve_AcceptMoreThanPrice_AcceptsPrice(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(3 * coin)
		s.wantDecided(c, operator.Accept, coin, card.Paid)
		s.settle()
		s.wantBooks(ledger{Counted: 3 * coin, Made: coin, Surplus: 2 * coin, Paid: 1, Issued: 1})
	})
}

func TestResolve_AcceptRefunded_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.wantDecided(c, operator.Refund, coin/2, card.Expired)
		s.wantRefused(c, operator.Accept, operator.ErrRefunded)
		s.pay(c, coin/4, 10)
		s.settle()
		s.wantDecided(c, operator.Accept, coin/4, card.Paid)
		s.settle()
		s.wantBooks(ledger{Counted: coin * 3 / 4, Made: coin / 4, Refunded: coin / 2, Paid: 1, Issued: 1})
	})
}

// The card is due to be issued, but no request was sent: once the payment no
// longer suffices, it can be refunded.
func TestResolve_RefundBeforeFirstRequest_Refunded(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		s.pay(c, coin/2, 5)
		s.pay(c, coin/2, 10)
		s.tick()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		s.wantRefused(c, operator.Refund, operator.ErrBeingIssued)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.now = s.now.Add(3 * time.Hour)
		s.mine(10)
		s.tick()
		s.want(c, card.AwaitingPayment, card.Late, coin/2, 26)
		s.wantDecided(c, operator.Refund, coin/2, card.Expired)
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
		s.wantRefused(c, operator.Retry, operator.ErrNothingReceived)
		s.wantRefused(c, operator.Refund, operator.ErrNothingReceived)
	})
}

func TestResolve_WriteOff_EachLossOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		s.pay(c, coin/4, 10)
		s.pay(c, coin*3/4, 10)
		s.settle()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true)) // the second payment leaves the chain
		s.settle()
		s.want(c, card.Generated, card.Reversed, coin/4, 21)
		s.wantDecided(c, operator.WriteOff, coin*3/4, card.Reversed)
		s.wantNothingToDo(c, operator.WriteOff)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 21, true)) // the first one too
		s.settle()
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.wantDecided(c, operator.WriteOff, coin/4, card.Reversed)
		s.wantNothingToDo(c, operator.WriteOff)
		s.wantBooks(ledger{Lost: coin, WrittenOff: coin, Paid: 1, Issued: 1})
	})
}

// Money that was written off and came back is no loss, even if the card was
// never issued.
func TestResolve_WriteOffMoneyReturned_Unchanged(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.late(coin / 2)
		s.wantDecided(c, operator.Refund, coin/2, card.Expired)
		s.wantRefused(c, operator.WriteOff, operator.ErrNothingLost)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		s.wantDecided(c, operator.WriteOff, coin/2, card.Expired)
		s.pay(c, coin/2, 10)
		s.settle()
		s.wantNothingToDo(c, operator.WriteOff)
	})
}

func TestResolve_NoRate_LateMoneyWaits(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.resolve(c, operator.Refund)
		s.rates.usd = ""
		s.pay(c, coin/4, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin*3/4, 10) // no rate: its worth is unknown
		s.wantDecided(c, operator.Refund, coin/4, card.Expired)
	})
}

func TestResolve_Decision_LoggedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin)
		try := operator.Decision{CardUUID: c.UUID, Kind: operator.Accept, Note: "only asked", Operator: "bob", DryRun: true}
		if _, err := s.service.ResolveCard(t.Context(), try); err != nil {
			t.Fatal(err)
		}
		s.wantRefused(c, operator.Retry, operator.ErrNotParked)
		if s.log.Len() > 0 {
			t.Errorf("no decision, but logged: %s", &s.log)
		}
		s.resolve(c, operator.Accept)
		s.wantNothingToDo(c, operator.Accept)
		if text := s.log.String(); strings.Count(text, "\n") != 1 ||
			!strings.Contains(text,
				c.UUID.String()+" decision=accept amount=\"1 monero\" operator=alice before=late after=paid") {
			t.Errorf("logged: %s", text)
		}
		s.settle()
	})
}

// wantEvents compares the events that the account received for a card.
func (s *fixture) wantEvents(c *card.Card, want ...card.EventType) {
	s.t.Helper()
	record, err := s.store.CardDetail(s.t.Context(), c.UUID)
	check(s.t, err)
	var got []card.EventType
	for _, e := range record.Events {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("events: %s", diff)
	}
}

// A decision does not repeat the event of an earlier payment.
func TestResolve_Decision_PaymentEventNotRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		reported := s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.pay(reported, coin, 5)
		s.settle() // confirming
		s.rates.usd = "100"
		s.mine(5)
		s.settle()
		s.wantEvents(reported, card.EventDetected, card.EventLate)
		s.wantDecided(reported, operator.Accept, coin, card.Paid)
		s.settle()
		s.wantEvents(reported, card.EventDetected, card.EventLate, card.EventGenerated)

		rest := s.late(coin / 2)
		s.pay(rest, coin/4, 5)
		s.settle()
		s.wantDecided(rest, operator.Refund, coin/2, card.Confirming) // unconfirmed money is not assessed yet
		s.wantEvents(rest, card.EventLate, card.EventDetected)
		s.mine(5)
		s.settle()
		s.wantDecided(rest, operator.Accept, coin/4, card.Paid)
		s.settle()
		s.wantEvents(rest, card.EventLate, card.EventDetected, card.EventLate, card.EventGenerated)

		silent := s.late(coin / 2)
		s.wantDecided(silent, operator.Accept, coin/2, card.Paid)
		s.settle()
		s.wantEvents(silent, card.EventLate, card.EventDetected, card.EventGenerated)
	})
}

func TestResolve_Result_IsComplete(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin)
		before, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
		check(t, err)
		before.Transfers = nil // only read for customers
		done := s.resolve(c, operator.Accept)
		before.Tag, done.Card.Tag = "", "" // only for clients
		if diff := cmp.Diff(before, done.Card); diff != "" {
			t.Errorf("card before the decision: %s", diff)
		}
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		if diff := cmp.Diff([]operator.Resolution{done.Resolution}, record.Resolutions); diff != "" {
			t.Errorf("stored: %s", diff)
		}
		if id := done.Resolution.ID; !done.Resolution.CreatedAt.Equal(card.TimeOf(id)) {
			t.Errorf("decided at %s, want %s from its id", done.Resolution.CreatedAt, card.TimeOf(id))
		}
		s.settle()
	})
}
