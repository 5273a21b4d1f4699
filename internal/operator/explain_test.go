package operator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

func TestExplain_EveryState(t *testing.T) {
	quote := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	next := quote.Add(time.Hour)
	at := func(usd int64) card.Rate {
		return card.Rate{USD: card.Decimal{Units: usd * 1e8, Scale: card.RateScale}}
	}
	in := func(txid string, amount card.Amount, height int64) card.Transfer {
		return card.Transfer{TxID: txid, Amount: amount, Height: height, Counted: true}
	}
	locked := in("locked", 40, 50)
	locked.Locked = true
	worth := func(rate card.Rate, is, short card.USD, missing card.Amount) *operator.Worth {
		return &operator.Worth{Rate: rate, USD: is, Short: short, Missing: missing}
	}
	refund := func(amount card.Amount, left operator.LeftOut) operator.Choice {
		return operator.Choice{Kind: operator.Refund, Amount: amount, LeftOut: left}
	}
	accept := func(amount card.Amount, cost card.USD, left operator.LeftOut) operator.Choice {
		return operator.Choice{Kind: operator.Accept, Amount: amount, Cost: cost, LeftOut: left}
	}
	type transfers = []card.Transfer
	type choices = []operator.Choice
	var none operator.LeftOut
	for name, tt := range map[string]struct {
		card   card.Card
		in     transfers
		intent *operator.IntentRecord
		rate   card.Rate
		want   operator.Explanation
	}{
		"unpaid": {card.Card{State: card.Unpaid}, nil, nil, at(150),
			operator.Explanation{Wait: operator.ForMoney, Missing: 100, Until: quote}},
		"canceled": {card.Card{State: card.Canceled, CanceledAt: quote}, nil, nil, at(150),
			operator.Explanation{Wait: operator.ForNothing}},
		"canceled, then paid too little": {card.Card{State: card.Late, CanceledAt: quote, Received: 60},
			transfers{in("a", 60, 90)}, nil, at(150), operator.Explanation{
				Wait: operator.ForDecision, Worth: worth(at(150), 90_00, 60_00, 40),
				Choices: choices{accept(60, 60_00, none), refund(60, none)}}},
		"expired": {card.Card{State: card.Expired}, nil, nil, at(150), operator.Explanation{Wait: operator.ForNothing}},
		"too little": {card.Card{State: card.Underpaid, Received: 60}, transfers{in("a", 60, 90)}, nil, at(150),
			operator.Explanation{
				Wait: operator.ForMoney, Missing: 40, Until: quote, Worth: worth(at(150), 90_00, 60_00, 40),
				Choices: choices{accept(60, 60_00, none), refund(60, none)}}},
		"confirming": {card.Card{State: card.Confirming, Received: 100}, transfers{in("a", 60, 100), in("b", 40, 105)}, nil,
			at(150), operator.Explanation{
				Wait: operator.ForConfirmations, Transfers: transfers{in("b", 40, 105)}, Worth: worth(at(150), 150_00, 0, 0),
				Choices: choices{accept(100, 0, none), refund(60, operator.LeftOut{Unconfirmed: 40})}}},
		"in the mempool": {card.Card{State: card.Detected, Received: 100}, transfers{in("a", 100, 0)}, nil, at(150),
			operator.Explanation{
				Wait: operator.ForConfirmations, Transfers: transfers{in("a", 100, 0)}, Worth: worth(at(150), 150_00, 0, 0),
				Choices: choices{accept(100, 0, none)}}},
		"a part is locked": {card.Card{State: card.Confirming, Received: 100}, transfers{in("a", 60, 100), locked}, nil,
			at(150), operator.Explanation{
				Wait: operator.ForUnlock, Transfers: transfers{locked}, Worth: worth(at(150), 150_00, 0, 0),
				Choices: choices{accept(60, 60_00, operator.LeftOut{Locked: 40}), refund(60, operator.LeftOut{Locked: 40})}}},
		"all is locked": {card.Card{State: card.Confirming, Received: 40}, transfers{locked}, nil, at(150),
			operator.Explanation{
				Wait: operator.ForUnlock, Transfers: transfers{locked}, Worth: worth(at(150), 60_00, 90_00, 60)}},
		"late, without a rate": {card.Card{State: card.Confirming, Received: 100}, transfers{in("a", 100, 100)}, nil,
			card.Rate{}, operator.Explanation{
				Wait: operator.ForRate, Choices: choices{accept(100, 0, none), refund(100, none)}}},
		"late": {card.Card{State: card.Late, Received: 100}, transfers{in("a", 100, 100)}, nil, at(120), operator.Explanation{
			Wait: operator.ForDecision, Worth: worth(at(120), 120_00, 30_00, 25),
			Choices: choices{accept(100, 30_00, none), refund(100, none)}}},
		"late, and a part in the mempool": {card.Card{State: card.Late, Received: 70},
			transfers{in("a", 60, 100), in("b", 10, 0)}, nil, at(150), operator.Explanation{
				Wait: operator.ForDecision, Worth: worth(at(150), 105_00, 45_00, 30),
				Choices: choices{accept(70, 45_00, none), refund(60, operator.LeftOut{Unconfirmed: 10})}}},
		"too little at expiry, price rose since": {card.Card{State: card.Late, Received: 60},
			transfers{in("a", 60, 100)}, nil, at(300), operator.Explanation{
				Wait: operator.ForDecision, Worth: worth(at(300), 180_00, 0, 0),
				Choices: choices{accept(60, 0, none), refund(60, none)}}},
		"refunded": {card.Card{State: card.Expired, Received: 60, Refunded: 60}, transfers{in("a", 60, 100)}, nil, at(150),
			operator.Explanation{Wait: operator.ForNothing}},
		"refunded in time": {card.Card{State: card.Unpaid, Received: 60, Refunded: 60}, transfers{in("a", 60, 100)}, nil,
			at(150),
			operator.Explanation{Wait: operator.ForNothing}},
		"refunded, then left the chain": {card.Card{State: card.Expired, Refunded: 60}, nil, nil, at(150),
			operator.Explanation{
				Wait: operator.ForDecision, Lost: 60, Choices: choices{{Kind: operator.WriteOff, Amount: 60}}}},
		"paid": {card.Card{State: card.Paid, Received: 100, Settled: 100}, transfers{in("a", 100, 100)},
			&operator.IntentRecord{State: "open", Attempts: 2, DueAt: next}, at(150),
			operator.Explanation{Wait: operator.ForSupplier, Until: next}},
		"declined": {card.Card{State: card.Paid, Received: 100, Settled: 100}, transfers{in("a", 100, 100)},
			&operator.IntentRecord{State: "refund_due", Attempts: 1}, at(150), operator.Explanation{Wait: operator.ForDecision,
				Worth: worth(at(150), 150_00, 0, 0), Choices: choices{{Kind: operator.Retry}, refund(100, none)}}},
		"declined, price fell since": {card.Card{State: card.Paid, Received: 100, Settled: 100},
			transfers{in("a", 100, 100)},
			&operator.IntentRecord{State: "refund_due", Attempts: 1}, at(100), operator.Explanation{Wait: operator.ForDecision,
				Worth: worth(at(100), 100_00, 0, 0), Choices: choices{{Kind: operator.Retry, Cost: 50_00}, refund(100, none)}}},
		"declined, partly refunded": {card.Card{State: card.Paid, Received: 200, Refunded: 100, Settled: 100},
			transfers{in("a", 200, 100)},
			&operator.IntentRecord{State: "refund_due", Attempts: 1}, at(100), operator.Explanation{Wait: operator.ForDecision,
				Worth: worth(at(100), 100_00, 0, 0), Choices: choices{{Kind: operator.Retry, Cost: 50_00}, refund(100, none)}}},
		"issued": {card.Card{Status: card.Generated, State: card.Paid, Received: 100, Settled: 100},
			transfers{in("a", 100, 100)},
			&operator.IntentRecord{State: "done", Attempts: 1}, at(150), operator.Explanation{Wait: operator.ForNothing}},
		"issued, with a surplus": {card.Card{Status: card.Generated, State: card.Paid, Received: 150, Settled: 100},
			transfers{in("a", 130, 100), in("b", 20, 0)},
			&operator.IntentRecord{State: "done", Attempts: 1}, at(150), operator.Explanation{Wait: operator.ForNothing,
				Choices: choices{refund(30, operator.LeftOut{Unconfirmed: 20})}}},
		"reversed": {card.Card{Status: card.Generated, State: card.Reversed, Received: 40, Settled: 100},
			transfers{in("a", 40, 100)},
			&operator.IntentRecord{State: "done", Attempts: 1}, at(150),
			operator.Explanation{Wait: operator.ForDecision, Lost: 60,
				Choices: choices{{Kind: operator.WriteOff, Amount: 60}}}},
		"reversed, a part is written off": {
			card.Card{Status: card.Generated, State: card.Reversed, Settled: 100, WrittenOff: 60}, nil,
			&operator.IntentRecord{State: "done", Attempts: 1}, at(150),
			operator.Explanation{Wait: operator.ForDecision, Lost: 40,
				Choices: choices{{Kind: operator.WriteOff, Amount: 40}}}},
		"reversed, and written off": {card.Card{Status: card.Generated, State: card.Reversed, Settled: 100, WrittenOff: 100},
			nil,
			&operator.IntentRecord{State: "done", Attempts: 1}, at(150), operator.Explanation{Wait: operator.ForNothing}},
	} {
		c := tt.card
		c.Coin, c.USD, c.Amount, c.ConfirmationsRequired, c.TipHeight, c.ExpiresAt = card.Currency{Code: "monero",
			Decimals: 2}, 150_00, 100, 10, 109, quote
		c.Credit = card.CreditOf(&c)
		if diff := cmp.Diff(tt.want,
			operator.Explain(operator.CardDetail{Card: &c, Transfers: tt.in, Intent: tt.intent}, tt.rate),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A refund is due since the account's last event of it.
func TestExplain_RefundDue_Since(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 20, hour, 0, 0, 0, time.UTC) }
	event := func(kind card.EventType, hour int) card.Event { return card.Event{Type: kind, CreatedAt: at(hour)} }
	for name, tt := range map[string]struct {
		intent string
		events []card.Event
		want   time.Time
	}{
		"event": {"refund_due",
			[]card.Event{event(card.EventDetected, 9), event(card.EventRefundDue, 10), event(card.EventLate, 11)}, at(10)},
		"second event": {"refund_due", []card.Event{event(card.EventRefundDue, 10), event(card.EventRefundDue, 12)},
			at(12)},
		"no event":             {"refund_due", []card.Event{event(card.EventDetected, 9)}, time.Time{}},
		"no refund, but event": {"parked", []card.Event{event(card.EventRefundDue, 10)}, time.Time{}},
	} {
		c := card.Card{State: card.Paid, Received: 100, Settled: 100, Amount: 100, USD: 150_00,
			Coin: card.Currency{Code: "monero", Decimals: 2}}
		record := operator.CardDetail{Card: &c, Intent: &operator.IntentRecord{State: tt.intent}, Events: tt.events}
		if x := operator.Explain(record, card.Rate{}); x.Wait != operator.ForDecision || !x.Since.Equal(tt.want) {
			t.Errorf("%s: waits for %s since %s, want %s", name, x.Wait, x.Since, tt.want)
		}
	}
}

// The choices have the amounts and exclusions that ResolveCard then reports.
func TestResolve_Result_LeftOut(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.late(coin / 2)
		s.pay(c, coin/4, 5)
		s.pay(c, coin/8, 0)
		s.exec("UPDATE simulated_transfers SET height = 0 WHERE amount = $1", int64(coin/8))
		s.tick()
		for kind, want := range map[operator.ResolutionKind]operator.Resolved{
			operator.Accept: {Resolution: operator.Resolution{Amount: coin * 7 / 8}},
			operator.Refund: {Resolution: operator.Resolution{Amount: coin / 2},
				LeftOut: operator.LeftOut{Unconfirmed: coin * 3 / 8}},
		} {
			done, err := s.service.ResolveCard(t.Context(),
				operator.Decision{CardUUID: c.UUID, Kind: kind, Note: "x", Operator: "x", DryRun: true})
			if err != nil || done.Resolution.Amount != want.Resolution.Amount || done.LeftOut != want.LeftOut {
				t.Errorf("%s: %+v, %v", kind, done, err)
			}
		}
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		x := operator.Explain(record, card.Rate{})
		if len(x.Choices) != 2 || x.Choices[0].Amount != coin*7/8 || x.Choices[1].LeftOut.Unconfirmed != coin*3/8 {
			t.Errorf("%+v", x)
		}
	})
}
