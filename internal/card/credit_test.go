package card_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
)

func TestCreditOf_EveryCase(t *testing.T) {
	for name, tt := range map[string]struct {
		card card.Card
		want card.Credit
	}{
		"nothing received": {card.Card{State: card.Unpaid}, card.Credit{Due: 100}},
		"partly paid": {card.Card{State: card.Underpaid, Received: 40},
			card.Credit{Paid: 40, Due: 60}},
		"exactly, not confirmed":  {card.Card{State: card.Confirming, Received: 100}, card.Credit{Paid: 100}},
		"too much, not confirmed": {card.Card{State: card.Detected, Received: 130}, card.Credit{Paid: 130}},
		"too much, already paid": {card.Card{State: card.Paid, Received: 130, Settled: 100},
			card.Credit{Paid: 100, Surplus: 30}},
		"issued": {
			card.Card{Status: card.Generated, State: card.Paid, Received: 130, Settled: 100},
			card.Credit{Paid: 100, Surplus: 30}},
		"issued, surplus refunded first": {
			card.Card{Status: card.Generated, State: card.Paid, Received: 130, Settled: 100, Refunded: 30},
			card.Credit{Paid: 100, Refunded: 30}},
		"late":                      {card.Card{State: card.Late, Received: 70}, card.Credit{Held: 70, Due: 30}},
		"late, more than the price": {card.Card{State: card.Late, Received: 170}, card.Credit{Held: 170}},
		"late, partly refunded": {card.Card{State: card.Late, Received: 70, Refunded: 20},
			card.Credit{Held: 50, Refunded: 20}},
		"late, but once paid": {card.Card{State: card.Late, Received: 70, Settled: 90},
			card.Credit{Held: 70, Due: 20}},
		"late with a surplus": {card.Card{State: card.Late, Received: 100, Settled: 90},
			card.Credit{Held: 90, Surplus: 10}},
		"accepted amount received": {card.Card{State: card.Paid, Received: 70, Accepted: 70, Settled: 70},
			card.Credit{Paid: 70}},
		"accepted, then partly lost": {card.Card{State: card.Underpaid, Received: 50, Accepted: 70},
			card.Credit{Paid: 50, Due: 20}},
		"more accepted than the price": {card.Card{State: card.Underpaid, Received: 50, Accepted: 170},
			card.Credit{Paid: 50, Due: 50}},
		"canceled": {card.Card{State: card.Canceled, CanceledAt: epoch}, card.Credit{}},
		"canceled, then paid too little": {card.Card{State: card.Late, CanceledAt: epoch, Received: 70},
			card.Credit{Held: 70}},
		"all refunded": {card.Card{State: card.Expired, Received: 70, Refunded: 70},
			card.Credit{Refunded: 70}},
		"refunded, then left the chain": {card.Card{State: card.Expired, Received: 10, Refunded: 70},
			card.Credit{Refunded: 10, Lost: 60}},
		"issued, all lost": {card.Card{Status: card.Generated, State: card.Reversed, Settled: 100},
			card.Credit{Lost: 100}},
		"issued, some lost": {
			card.Card{Status: card.Generated, State: card.Reversed, Received: 40, Settled: 100},
			card.Credit{Paid: 40, Lost: 60}},
		"issued, lost with the refund": {
			card.Card{Status: card.Generated, State: card.Reversed, Settled: 100, Refunded: 30}, card.Credit{Lost: 130}},
		"lost and written off": {
			card.Card{Status: card.Generated, State: card.Reversed, Settled: 100, WrittenOff: 100},
			card.Credit{Lost: 100, WrittenOff: 100}},
		"written off, partly returned": {
			card.Card{Status: card.Generated, State: card.Reversed, Received: 70, Settled: 100, WrittenOff: 100},
			card.Credit{Paid: 70, Lost: 30, WrittenOff: 30}},
	} {
		tt.card.Amount = 100
		if diff := cmp.Diff(tt.want, card.CreditOf(&tt.card)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Credits add up to the receipts in every case, and no amount is negative.
func TestCreditOf_AddsUpToReceived(t *testing.T) {
	r := rand.New(rand.NewPCG(20261121, 5))
	states := []card.PaymentState{card.Unpaid, card.Detected, card.Underpaid, card.Confirming, card.Paid, card.Late,
		card.Expired, card.Canceled, card.Reversed}
	some := func() card.Amount { return card.Amount(r.IntN(3) * r.IntN(200)) }
	for range 100_000 {
		c := card.Card{Amount: 1 + card.Amount(r.IntN(200)), State: states[r.IntN(len(states))],
			Status:   []card.Status{card.AwaitingPayment, card.Generated}[r.IntN(2)],
			Received: some(), Settled: some(), Accepted: some(), Refunded: some(), WrittenOff: some()}
		k := card.CreditOf(&c)
		if k.Paid+k.Held+k.Surplus+k.Refunded != c.Received ||
			min(k.Paid, k.Held, k.Surplus, k.Refunded, k.Lost, k.WrittenOff, k.Due) < 0 || k.WrittenOff > k.Lost {
			t.Fatalf("%+v credits %+v", c, k)
		}
	}
}

// After a refund and after the issue no payment is requested, neither by an
// amount nor by a URI.
func TestCard_NothingDue_NoPaymentURI(t *testing.T) {
	for name, tt := range map[string]struct {
		card card.Card
		want string
	}{
		"unpaid":   {card.Card{State: card.Unpaid}, "monero:a?tx_amount=0.0000000001"},
		"expired":  {card.Card{State: card.Expired}, "monero:a?tx_amount=0.0000000001"},
		"refunded": {card.Card{State: card.Expired, Received: 70, Refunded: 70}, ""},
		"canceled": {card.Card{State: card.Canceled, CanceledAt: epoch}, ""},
		"canceled, and issued": {card.Card{Status: card.Generated, State: card.Paid, CanceledAt: epoch},
			"monero:a?tx_amount=0.0000000001"},
		"issued": {card.Card{Status: card.Generated, State: card.Paid, Received: 100, Settled: 100},
			"monero:a?tx_amount=0.0000000001"},
		"issued, surplus refunded": {
			card.Card{Status: card.Generated, State: card.Paid, Received: 130, Settled: 100, Refunded: 30},
			"monero:a?tx_amount=0.0000000001"},
		"refunded and paid again": {card.Card{State: card.Paid, Received: 170, Refunded: 70, Settled: 100}, ""},
	} {
		tt.card.Amount, tt.card.Address, tt.card.Coin = 100, "a", monero()
		if got := tt.card.PaymentURI(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A refund is due for a paid card that no supplier issues, and for no other.
func TestCard_RefundDue(t *testing.T) {
	for name, tt := range map[string]struct {
		card card.Card
		want card.Amount
	}{
		"no supplier issues it": {card.Card{Refused: true, State: card.Paid, Received: 130, Settled: 100}, 130},
		"no supplier, partly refunded": {
			card.Card{Refused: true, State: card.Paid, Received: 130, Settled: 100, Refunded: 30}, 100},
		"no supplier, refunded money left the chain": {
			card.Card{Refused: true, State: card.Paid, Received: 100, Settled: 100, Refunded: 130}, 0},
		"a supplier may issue it": {card.Card{State: card.Paid, Received: 130, Settled: 100}, 0},
		"issued later": {
			card.Card{Refused: true, Status: card.Generated, State: card.Paid, Received: 130, Settled: 100}, 0},
		"money left the chain": {card.Card{Refused: true, State: card.Confirming, Received: 130}, 0},
		"money is late":        {card.Card{State: card.Late, Received: 70}, 0},
	} {
		if got := tt.card.RefundDue(); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
