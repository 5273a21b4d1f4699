package operator_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

var firstTx, secondTx = strings.Repeat("1", 64), strings.Repeat("2", 64)

// refundWith records a refund with its transaction.
func (s *fixture) refundWith(c *card.Card, txid string, amount *card.Amount, dryRun bool) (operator.Resolved, error) {
	s.t.Helper()
	return s.service.ResolveCard(s.t.Context(),
		operator.Decision{CardUUID: c.UUID, Kind: operator.Refund, Amount: amount, TxID: txid, Note: "sent", Operator: "ann",
			DryRun: dryRun})
}

// wantRefund compares the refund that the account sees.
func (s *fixture) wantRefund(c *card.Card, amount card.Amount, txid string) {
	s.t.Helper()
	got, err := s.store.CardByUUID(s.t.Context(), s.account, c.UUID)
	check(s.t, err)
	if got.Refunded != amount || got.RefundTxID != txid || got.RefundedAt.IsZero() != (amount == 0) {
		s.t.Errorf("refunded %d by %q at %s, want %d by %q", got.Refunded, got.RefundTxID, got.RefundedAt, amount, txid)
	}
}

func TestResolve_RefundTransaction_AddedLater(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.wantRefund(c, 0, "")
		s.resolve(c, operator.Refund)
		s.wantRefund(c, coin/2, "")
		wrong, right := coin, coin/2
		if _, err := s.refundWith(c, firstTx, &wrong, false); !errors.Is(err, operator.ErrAnotherAmount) {
			t.Errorf("error %v", err)
		}
		if done, err := s.refundWith(c, firstTx, nil, true); err != nil || done.ExistingRefund == nil ||
			done.ExistingRefund.Amount != right ||
			done.Unchanged {
			t.Errorf("%+v, %v", done, err)
		}
		s.wantRefund(c, right, "")
		done, err := s.refundWith(c, firstTx, &right, false)
		check(t, err)
		if done.After != done.Card.State || done.Resolution.TxID != firstTx || done.Resolution.Amount != 0 {
			t.Errorf("%+v", done)
		}
		s.wantRefund(c, right, firstTx)
		if done, err := s.refundWith(c, firstTx, &wrong, false); err != nil || !done.Unchanged {
			t.Errorf("repeated: %+v, %v", done, err)
		}
		_, err = s.refundWith(c, secondTx, &right, false) // corrects the first
		check(t, err)
		s.wantRefund(c, right, secondTx)
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		var txids []string
		for _, r := range record.Resolutions {
			txids = append(txids, r.TxID)
		}
		if !slices.Equal(txids, []string{"", firstTx, secondTx}) {
			t.Errorf("stored %q", txids)
		}
	})
}

func TestResolve_RefundTransaction_AddedToRefundWithoutOne(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.resolve(c, operator.Refund)
		s.pay(c, coin/4, 10)
		s.tick()
		done, err := s.refundWith(c, firstTx, nil, false)
		check(t, err)
		if done.ExistingRefund == nil || done.ExistingRefund.Amount != coin/2 {
			t.Errorf("%+v", done)
		}
		s.wantRefund(c, coin/2, firstTx)
		if done, err = s.refundWith(c, firstTx, nil, false); err != nil || !done.Unchanged {
			t.Errorf("repeated: %+v, %v", done, err)
		}
		done, err = s.refundWith(c, secondTx, nil, false) // refunds the rest
		check(t, err)
		if done.ExistingRefund != nil || done.Resolution.Amount != coin/4 {
			t.Errorf("%+v", done)
		}
		s.wantRefund(c, coin*3/4, secondTx)
	})
}

// A transaction counts as one refund, however often it is recorded.
func TestResolve_RefundTransaction_AddedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		_, err := s.refundWith(c, firstTx, nil, false)
		check(t, err)
		s.pay(c, coin/4, 10)
		s.tick()
		_, err = s.refundWith(c, secondTx, nil, false)
		check(t, err)
		wantNothing := func() {
			t.Helper()
			if done, err := s.refundWith(c, firstTx, nil, false); err != nil || !done.Unchanged ||
				done.ExistingRefund == nil ||
				done.ExistingRefund.Amount != coin/2 {
				t.Errorf("%+v, %v", done, err)
			}
			s.wantRefund(c, coin*3/4, secondTx)
		}
		wantNothing()
		s.pay(c, coin/8, 10)
		s.tick()
		wantNothing()
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		if len(record.Resolutions) != 2 {
			t.Errorf("%+v", record.Resolutions)
		}
	})
}

func TestResolve_TransactionWithoutRefund_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		for _, kind := range []operator.ResolutionKind{operator.Accept, operator.Retry, operator.WriteOff} {
			if _, err := s.service.ResolveCard(t.Context(),
				operator.Decision{CardUUID: c.UUID, Kind: kind, TxID: firstTx, Note: "x", Operator: "x"}); err == nil {
				t.Errorf("%s: no error", kind)
			}
		}
		if done, err := s.refundWith(c, firstTx, nil, false); err != nil || done.Resolution.Amount != coin/2 ||
			done.ExistingRefund != nil {
			t.Errorf("%+v, %v", done, err) // recorded after it was sent
		}
		s.wantRefund(c, coin/2, firstTx)
	})
}

// Refunded money buys no card, even if the customer pays again or an operator
// retries.
func TestResolve_RefundDueRefunded_NeverIssued(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		s.wantEvents(c, card.EventDetected, card.EventRefundDue)
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		x := operator.Explain(record, card.Rate{USD: card.Decimal{Units: 120_00000000, Scale: card.RateScale}})
		if x.Wait != operator.ForDecision || x.Since.IsZero() || x.Worth == nil || x.Worth.USD != 120_00 ||
			len(x.Choices) != 2 || x.Choices[0].Cost != 30_00 {
			t.Errorf("%+v", x)
		}
		if i := record.Intent; len(i.Refusals) != 1 || i.Refusals[0].Reason != "out of stock" || i.OpenedAt == nil {
			t.Errorf("%+v", i)
		}
		s.resolve(c, operator.Refund)
		s.supplier.fault = nil
		s.wantRefused(c, operator.Retry, operator.ErrRefunded)
		s.pay(c, coin, 10) // an unexpected second payment
		s.settle()
		s.retryIntents()
		s.settle()
		s.wantIssued(0)
		s.wantRefund(c, coin, "")
		s.resolve(c, operator.Refund)
		s.wantRefund(c, 2*coin, "")
	})
}

// A refunded customer must not pay again, so the card requests no money. If
// money arrives anyway, each change of the amount due has an event.
func TestResolve_RefundDuringQuote_RequestsNoMoney(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		events := []card.EventType{card.EventDetected, card.EventRefundDue}
		due := func(want card.Amount, more ...card.EventType) {
			t.Helper()
			events = append(events, more...)
			s.wantEvents(c, events...)
			now, err := s.store.CardByUUID(t.Context(), s.account, c.UUID)
			check(t, err)
			if now.RefundDue() != want {
				t.Errorf("%d is due, want %d", now.RefundDue(), want)
			}
		}
		due(coin)
		s.resolve(c, operator.Refund)
		s.want(c, card.AwaitingPayment, card.Expired, coin, 10)
		due(0, card.EventExpired)
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin*3/2, 10)
		due(0, card.EventLate)
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Paid, 2*coin, 10)
		due(coin, card.EventRefundDue)
		s.settle()
		due(coin)
		s.pay(c, coin, 10)
		s.settle()
		due(2*coin, card.EventRefundDue)
		s.resolve(c, operator.Refund)
		due(0, card.EventExpired)
		s.wantIssued(0)
		s.wantRefund(c, 3*coin, "")
	})
}

// After a reorganization removes the payment and it returns, the refund is due
// again, with another event.
func TestResolve_RefundDueAfterReorg_SendsEventAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		s.mine(30)
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		s.wantEvents(c, card.EventDetected, card.EventRefundDue)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		s.wantEvents(c, card.EventDetected, card.EventRefundDue, card.EventRefundDue)
		s.resolve(c, operator.Refund)
		s.wantIssued(0)
	})
}
