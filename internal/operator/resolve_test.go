package operator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

func TestResolve_AcceptLateMoney_Once(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.rates.usd = "100"
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin, 10)
		s.wantBooks(ledger{Counted: coin, Held: coin, Late: 1})
		asked := operator.Decision{CardUUID: c.UUID, Kind: operator.Accept, Note: "a regular", Operator: "alice",
			DryRun: true}
		if _, err := s.service.ResolveCard(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin, 10) // dry run
		done := s.resolve(c, operator.Accept)
		if done.Unchanged || done.After != card.Paid || done.Resolution.Amount != coin {
			t.Errorf("%+v", done)
		}
		if again := s.resolve(c, operator.Accept); !again.Unchanged {
			t.Errorf("repeated: %+v", again)
		}
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
		s.wantBooks(ledger{Counted: coin, Made: coin, Paid: 1, Issued: 1})
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		if len(record.Resolutions) != 1 || record.Resolutions[0].Operator != "alice" ||
			record.Resolutions[0].Note != "as agreed" {
			t.Errorf("stored: %+v", record.Resolutions)
		}
	})
}

func TestResolve_RefundUnderpaid_CanBePaidAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin/2, 10)
		s.settle()
		s.now = s.now.Add(3 * time.Hour)
		s.mine(1)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin/2, 11) // too little, and the quote has expired
		if done := s.resolve(c, operator.Refund); done.After != card.Expired || done.Resolution.Amount != coin/2 {
			t.Errorf("%+v", done)
		}
		if again := s.resolve(c, operator.Refund); !again.Unchanged {
			t.Errorf("repeated: %+v", again)
		}
		s.wantBooks(ledger{Counted: coin / 2, Refunded: coin / 2})
		s.pay(c, coin/2, 10) // refunded money does not count
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin, 10)
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin*3/2, 10)
		s.wantIssued(1)
		s.wantBooks(ledger{Counted: coin * 3 / 2, Made: coin, Refunded: coin / 2, Paid: 1, Issued: 1})
	})
}

func TestResolve_Surplus_Refunded(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, 3*coin, 10)
		s.settle()
		s.wantBooks(ledger{Counted: 3 * coin, Made: coin, Surplus: 2 * coin, Paid: 1, Issued: 1})
		if done := s.resolve(c, operator.Refund); done.After != card.Paid || done.Resolution.Amount != 2*coin {
			t.Errorf("%+v", done)
		}
		s.want(c, card.Generated, card.Paid, 3*coin, 10)
		s.wantBooks(ledger{Counted: 3 * coin, Made: coin, Refunded: 2 * coin, Paid: 1, Issued: 1})
	})
}

func TestResolve_Loss_WrittenOff(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.discrepancies = []string{lost}
		s.reconcile()
		if done := s.resolve(c, operator.WriteOff); done.Resolution.Amount != coin || done.After != card.Reversed {
			t.Errorf("%+v", done)
		}
		s.discrepancies = nil
		s.wantBooks(ledger{Lost: coin, WrittenOff: coin, Paid: 1, Issued: 1})
		s.pay(c, coin/2, 10) // the money returns
		s.settle()
		s.wantEvents(c, card.EventDetected, card.EventGenerated, card.EventReversed)
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.pay(c, coin, 10)
		s.settle()
		s.wantEvents(c, card.EventDetected, card.EventGenerated, card.EventReversed, card.EventRestored)
	})
}

func TestResolve_RefundDue_RetriedOrRefunded(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		again, back := s.order(), s.order()
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		s.pay(again, coin, 10)
		s.pay(back, coin, 10)
		s.settle()
		s.discrepancies = []string{declined, declined}
		s.reconcile()
		found, err := s.store.FindCards(t.Context(), operator.Search{NeedsOperator: true, Limit: 10})
		check(t, err)
		if len(found) != 2 {
			t.Errorf("%d cards need an operator", len(found))
		}
		s.supplier.fault = nil
		if done := s.resolve(again, operator.Retry); done.After != card.Paid {
			t.Errorf("%+v", done)
		}
		if done := s.resolve(back, operator.Refund); done.After != card.Expired && done.After != card.Unpaid {
			t.Errorf("%+v", done)
		}
		s.settle()
		s.discrepancies = nil
		s.want(again, card.Generated, card.Paid, coin, 20)
		s.wantIssued(1)
	})
}

// A card that may have been issued despite an error is parked, and an operator
// can retry or refund it like a declined one.
func TestResolve_Parked_RetriedOrRefunded(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		again, back := s.order(), s.order()
		s.supplier.fault = func(_ int, c *card.Credentials) error { c.SecurityCode = "x"; return nil }
		s.pay(again, coin, 10)
		s.pay(back, coin, 10)
		s.settle()
		s.discrepancies = []string{parked, parked}
		s.reconcile()
		s.supplier.fault = nil
		if done := s.resolve(again, operator.Retry); done.Unchanged || done.After != card.Paid {
			t.Errorf("%+v", done)
		}
		if done := s.resolve(back, operator.Refund); done.Resolution.Amount != coin {
			t.Errorf("%+v", done)
		}
		s.retryIntents()
		s.discrepancies = nil
		s.want(again, card.Generated, card.Paid, coin, 20)
		s.wantBooks(ledger{Counted: 2 * coin, Made: coin, Refunded: coin, Paid: 1, Issued: 1})
	})
}

func TestResolve_InvalidDecision_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c, paid, made := s.order(), s.order(), s.order()
		s.pay(made, coin, 10)
		s.settle()
		s.pay(paid, coin, 10)
		s.tick()
		for _, tt := range []struct {
			name string
			card uuid.UUID
			kind operator.ResolutionKind
			want error
		}{
			{"no card", uuid.New(), operator.Accept, card.ErrNoRow},
			{"nothing to accept", c.UUID, operator.Accept, operator.ErrNothingReceived},
			{"nothing to refund", c.UUID, operator.Refund, operator.ErrNothingReceived},
			{"nothing to write off", c.UUID, operator.WriteOff, operator.ErrNothingLost},
			{"nothing to retry", c.UUID, operator.Retry, operator.ErrNotParked},
			{"being issued", paid.UUID, operator.Refund, operator.ErrBeingIssued},
			{"issued", made.UUID, operator.Accept, operator.ErrIssued},
		} {
			_, err := s.service.ResolveCard(t.Context(),
				operator.Decision{CardUUID: tt.card, Kind: tt.kind, Note: "x", Operator: "x"})
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		for _, d := range []operator.Decision{{CardUUID: c.UUID, Kind: operator.Accept, Operator: "x"},
			{CardUUID: c.UUID, Kind: operator.Accept, Note: "x"},
			{CardUUID: made.UUID, Kind: "burn", Note: "x", Operator: "x"}} {
			if _, err := s.service.ResolveCard(t.Context(), d); err == nil {
				t.Errorf("%+v was accepted", d)
			}
		}
		s.settle()
	})
}

func TestReconcile_ChangedRows_ReportsDiscrepancies(t *testing.T) {
	for want, wreck := range map[string]string{
		"it has credentials, but is not issued":              "UPDATE cards SET status = 'awaiting_payment'",
		"it is issued, but has no credentials":               "DELETE FROM credentials",
		"it is issued, but its intent is not done":           "UPDATE intents SET state = 'open'",
		"its received amount does not match its transfers":   "UPDATE cards SET received = received + 1",
		"its refunded amount does not match its resolutions": "UPDATE cards SET refunded = 1",
		"the account's events have gaps":                     "UPDATE accounts SET last_seq = last_seq + 1",
		"it is paid, but has no intent":                      "DELETE FROM intents",
	} {
		t.Run(want, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				c := s.order()
				s.pay(c, coin, 10)
				s.settle()
				s.reconcile()
				_, err := s.direct.Exec(wreck)
				check(t, err)
				books, err := s.service.Reconcile(t.Context(), operator.Audit{})
				check(t, err)
				found := false
				for _, d := range books.Discrepancies {
					found = found || d.Text == want
					s.discrepancies = append(s.discrepancies, d.Text)
				}
				if !found {
					t.Errorf("discrepancies %q", s.discrepancies)
				}
			})
		})
	}
}

func TestReconcile_WaitingCards_AreNoDiscrepancies(t *testing.T) {
	const unissue, deleted = "UPDATE cards SET status = 'awaiting_payment'", "DELETE FROM credentials"
	for kind, changes := range map[operator.WaitingKind][]string{
		operator.WaitingRefundDue: {unissue, deleted, "UPDATE intents SET state = 'refund_due'"},
		operator.WaitingParked:    {unissue, deleted, "UPDATE intents SET state = 'parked'"},
		operator.WaitingUnissued:  {unissue, deleted, "UPDATE intents SET state = 'open', attempts = 10"},
		operator.WaitingReversed: {"UPDATE transfers SET counted = FALSE",
			"UPDATE cards SET received = 0, credit_paid = 0, credit_lost = amount, payment_state = 'reversed'"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				c := s.order()
				s.pay(c, coin, 10)
				s.settle()
				for _, change := range changes {
					_, err := s.direct.Exec(change)
					check(t, err)
				}
				books, err := s.service.Reconcile(t.Context(), operator.Audit{})
				check(t, err)
				s.discrepancies = []string{string(kind)}
				if len(books.Discrepancies) != 0 || len(books.Waiting) != 1 {
					t.Fatalf("%+v", books)
				}
				if w := books.Waiting[0]; w.Kind != kind || w.CardUUID != c.UUID || w.Amount != coin || w.Currency != "monero" {
					t.Errorf("%+v", w)
				}
			})
		})
	}
}

func TestResolve_RefundUnconfirmed_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin/2, 0)
		s.settle()
		s.now = s.now.Add(3 * time.Hour)
		s.mine(1)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin/2, 0)
		refund := operator.Decision{CardUUID: c.UUID, Kind: operator.Refund, Note: "x", Operator: "x"}
		if _, err := s.service.ResolveCard(t.Context(), refund); !errors.Is(err, operator.ErrNotConfirmed) {
			t.Errorf("in the mempool: %v", err)
		}
		s.pay(c, 0, 9)
		s.settle()
		if _, err := s.service.ResolveCard(t.Context(), refund); !errors.Is(err, operator.ErrNotConfirmed) {
			t.Errorf("too few confirmations: %v", err)
		}
		s.mine(1)
		s.settle()
		s.resolve(c, operator.Refund)
	})
}

func TestResolve_AnotherAmount_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.rates.usd = "10"
		s.pay(c, coin/2, 10)
		s.settle()
		saw := coin / 2
		s.pay(c, coin/4, 10) // after the operator read the amount
		s.settle()
		decision := operator.Decision{CardUUID: c.UUID, Kind: operator.Refund, Amount: &saw, Note: "x", Operator: "x"}
		if _, err := s.service.ResolveCard(t.Context(), decision); !errors.Is(err, operator.ErrAnotherAmount) {
			t.Errorf("%v", err)
		}
		s.wantBooks(ledger{Counted: coin * 3 / 4, Held: coin * 3 / 4, Late: 1})
		saw = coin * 3 / 4
		if done, err := s.service.ResolveCard(t.Context(), decision); err != nil || done.After != card.Expired {
			t.Errorf("%+v, %v", done, err)
		}
		s.wantBooks(ledger{Counted: coin * 3 / 4, Refunded: coin * 3 / 4})
	})
}

func TestResolve_RefundedMoneyLeavesChain_IsLost(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c, other := s.order(), s.order()
		s.pay(c, coin/2, 10)
		s.settle()
		s.now = s.now.Add(3 * time.Hour)
		s.mine(1)
		s.settle()
		s.resolve(c, operator.Refund)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 11, true))
		s.rates.usd = "10"
		s.pay(other, coin/2, 10)
		s.settle()
		s.wantBooks(ledger{Counted: coin / 2, Held: coin / 2, Lost: coin / 2, Late: 1})
		found, err := s.store.FindCards(t.Context(), operator.Search{NeedsOperator: true, Limit: 10})
		check(t, err)
		if len(found) == 0 || found[0].UUID != c.UUID {
			t.Errorf("%d cards need an operator", len(found))
		}
		s.discrepancies = []string{lost}
		s.reconcile()
		s.resolve(c, operator.WriteOff)
		s.discrepancies = nil
	})
}

func TestResolve_AcceptedThenRefunded_IsNotEnough(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin/2, 0)
		s.settle()
		s.resolve(c, operator.Accept)
		s.now = s.now.Add(3 * time.Hour)
		s.pay(c, 0, 9)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin/2, 9)
		s.rates.usd = "10"
		s.supplier.fault = func(int, *card.Credentials) error { return errDeclined }
		s.mine(1)
		s.settle()
		s.resolve(c, operator.Refund) // the supplier issued none
		s.supplier.fault = nil
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin, 10)
		s.wantIssued(0)
	})
}

func TestResolve_LossAfterSurplusRefund_WrittenOffWhole(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, 2*coin, 10)
		s.settle()
		s.resolve(c, operator.Refund)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		if done := s.resolve(c, operator.WriteOff); done.Resolution.Amount != 2*coin {
			t.Errorf("%+v", done)
		}
		s.wantBooks(ledger{Lost: 2 * coin, WrittenOff: 2 * coin, Paid: 1, Issued: 1})
	})
}

func TestResolve_LateMoneyWasEnough_StaysEnough(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.pay(c, coin, 10)
		s.supplier.fault = func(attempt int, _ *card.Credentials) error {
			if attempt == 1 {
				return errors.New("connection reset by peer") // after the card was issued
			}
			return nil
		}
		s.settle()
		s.rates.usd = "10" // today it is worth too little
		s.pay(c, 1, 0)
		s.tick()
		s.want(c, card.AwaitingPayment, card.Paid, coin+1, 10) // a difference of one unit
		if _, err := s.service.ResolveCard(t.Context(),
			operator.Decision{CardUUID: c.UUID, Kind: operator.Refund, Note: "x", Operator: "x"}); !errors.Is(err,
			operator.ErrBeingIssued) {
			t.Errorf("the supplier may have issued it: %v", err)
		}
		s.pay(c, 0, 10)
		s.tick()
		s.retryIntents()
		s.want(c, card.Generated, card.Paid, coin+1, 20)
		s.wantIssued(1)
	})
}
