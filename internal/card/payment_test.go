package card_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
)

var epoch = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

// At 150 US dollars per coin, a card of 150 costs 100 units here, which keeps
// the numbers small.
func order(change ...func(*card.Card)) *card.Card {
	c := &card.Card{
		Coin: card.Currency{Code: "monero", Decimals: 2, Confirmations: 10}, USD: 150_00, Amount: 100,
		ConfirmationsRequired: 10,
		ExpiresAt:             epoch.Add(time.Hour), Status: card.AwaitingPayment, State: card.Unpaid,
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func generated(c *card.Card) { c.Status, c.State, c.Settled = card.Generated, card.Paid, 100 }

// cheap was issued for late money that was worth more than at the quote.
func cheap(c *card.Card) { generated(c); c.Settled = 75 }

// accepted is a card with an accepted amount of 60; refunded is a card with 99
// refunded.
func accepted(c *card.Card) { c.Accepted = 60 }
func refunded(c *card.Card) { c.Refunded = 99 }

func in(amount card.Amount, height int64, change ...func(*card.Transfer)) card.Transfer {
	t := card.Transfer{Amount: amount, Height: height, FirstSeenAt: epoch, Counted: true}
	for _, f := range change {
		f(&t)
	}
	return t
}

func locked(t *card.Transfer) { t.Locked = true }
func gone(t *card.Transfer)   { t.Counted = false }
func late(t *card.Transfer)   { t.FirstSeenAt = epoch.Add(time.Hour) }

// canceled ends the quote after ten minutes.
func canceled(c *card.Card)        { c.CanceledAt = epoch.Add(10 * time.Minute) }
func afterCancel(t *card.Transfer) { t.FirstSeenAt = epoch.Add(10 * time.Minute) }

func TestAssess(t *testing.T) {
	tip := card.Tip{Height: 109, Time: epoch}
	afterExpiry := card.Tip{Height: 109, Time: epoch.Add(time.Hour)}
	same, dearer, cheaper, unknown := rateOf(t, "150"), rateOf(t, "200"), rateOf(t, "149"), card.Rate{}
	type transfers = []card.Transfer
	for name, tt := range map[string]struct {
		card *card.Card
		in   transfers
		tip  card.Tip
		rate card.Rate
		want card.Assessment
	}{
		"nothing":         {order(), nil, tip, same, card.Assessment{State: card.Unpaid}},
		"nothing in time": {order(), nil, afterExpiry, same, card.Assessment{State: card.Expired}},
		"canceled":        {order(canceled), nil, tip, same, card.Assessment{State: card.Canceled}},
		"canceled, quote ended": {order(canceled), nil, afterExpiry, same,
			card.Assessment{State: card.Canceled}},
		"canceled, its money left the chain": {order(canceled), transfers{in(100, 100, gone)}, tip, same,
			card.Assessment{State: card.Canceled}},
		"canceled, and paid before": {order(canceled), transfers{in(100, 100)}, tip, cheaper,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"canceled, and half paid before": {order(canceled), transfers{in(50, 100)}, tip, same,
			card.Assessment{State: card.Late, Received: 50, Height: 100}},
		"canceled, then paid": {order(canceled), transfers{in(100, 100, afterCancel)}, tip, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"canceled, then paid too little": {order(canceled), transfers{in(100, 100, afterCancel)}, tip, cheaper,
			card.Assessment{State: card.Late, Received: 100, Height: 100}},
		"canceled, then paid, no rate known": {order(canceled), transfers{in(100, 100, afterCancel)}, tip, unknown,
			card.Assessment{State: card.Confirming, Received: 100, Height: 100, ReadyHeight: 110}},
		"canceled, then paid, in the mempool": {order(canceled), transfers{in(100, 0, afterCancel)}, tip, same,
			card.Assessment{State: card.Detected, Received: 100}},
		"canceled, then paid and refunded": {order(canceled, refunded), transfers{in(99, 50, late)}, afterExpiry,
			dearer, card.Assessment{State: card.Canceled, Received: 99, Height: 50}},
		"canceled after expiry": {order(func(c *card.Card) { c.CanceledAt = c.ExpiresAt.Add(time.Hour) }),
			transfers{in(100, 100, late)}, afterExpiry, cheaper, card.Assessment{State: card.Late, Received: 100, Height: 100}},
		"all left the chain": {order(), transfers{in(100, 100, gone)}, tip, same,
			card.Assessment{State: card.Unpaid}},
		"exact, in the mempool": {order(), transfers{in(100, 0)}, tip, same,
			card.Assessment{State: card.Detected, Received: 100}},
		"in the mempool of a young chain": {order(), transfers{in(100, 0)}, card.Tip{Height: 5, Time: epoch}, same,
			card.Assessment{State: card.Detected, Received: 100}},
		"exact, in the newest block": {order(), transfers{in(100, 109)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 109, ReadyHeight: 118}},
		"exact, one confirmation short": {order(), transfers{in(100, 101)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 101, ReadyHeight: 110}},
		"exact, confirmed": {order(), transfers{in(100, 100)}, tip, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"exact, confirmed, after expiry": {order(), transfers{in(100, 100)}, afterExpiry, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"one unit short": {order(), transfers{in(99, 50)}, tip, same,
			card.Assessment{State: card.Underpaid, Received: 99, Height: 50}},
		"short, after expiry": {order(), transfers{in(99, 50)}, afterExpiry, same,
			card.Assessment{State: card.Late, Received: 99, Height: 50}},
		"short and late": {order(), transfers{in(99, 50, late)}, afterExpiry, same,
			card.Assessment{State: card.Late, Received: 99, Height: 50}},
		"short and late, in the mempool": {order(), transfers{in(99, 0, late)}, afterExpiry, same,
			card.Assessment{State: card.Detected, Received: 99}},
		"short and late, no rate known": {order(), transfers{in(99, 50, late)}, afterExpiry, unknown,
			card.Assessment{State: card.Confirming, Received: 99, Height: 50, ReadyHeight: 110}},
		"late and locked": {order(), transfers{in(100, 50, late, locked)}, afterExpiry, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 50}},
		"accepted": {order(accepted), transfers{in(60, 100)}, afterExpiry, unknown,
			card.Assessment{State: card.Paid, Received: 60, Settled: 60, Height: 100}},
		"accepted, not confirmed": {order(accepted), transfers{in(60, 101)}, afterExpiry, same,
			card.Assessment{State: card.Confirming, Received: 60, Height: 101, ReadyHeight: 110}},
		"accepted, a part left the chain": {order(accepted), transfers{in(59, 100), in(1, 100, gone)}, afterExpiry,
			same, card.Assessment{State: card.Late, Received: 59, Height: 100}},
		"accepted, more than the price": {order(accepted), transfers{in(60, 100), in(60, 100, late)}, afterExpiry,
			cheaper, card.Assessment{State: card.Paid, Received: 120, Settled: 100, Height: 100}},
		"refunded": {order(refunded), transfers{in(99, 50, late)}, afterExpiry, dearer,
			card.Assessment{State: card.Expired, Received: 99, Height: 50}},
		"refunded, then paid again": {order(refunded), transfers{in(99, 50, late), in(100, 90, late)},
			afterExpiry, same, card.Assessment{State: card.Paid, Received: 199, Settled: 100, Height: 90}},
		"refunded, then dust": {order(refunded), transfers{in(99, 50, late), in(1, 90, late)}, afterExpiry,
			same, card.Assessment{State: card.Late, Received: 100, Height: 90}},
		"generated, surplus refunded": {order(generated, refunded), transfers{in(199, 50)}, tip, same,
			card.Assessment{State: card.Paid, Received: 199, Settled: 100, Height: 50}},
		"refunded, then it left the chain": {order(generated, refunded), transfers{in(198, 50)}, tip, same,
			card.Assessment{State: card.Reversed, Received: 198, Settled: 100, Height: 50}},
		"split, newest part decides": {order(), transfers{in(60, 50), in(40, 105)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 105, ReadyHeight: 114}},
		"split, one in the mempool": {order(), transfers{in(60, 50), in(40, 0)}, tip, same,
			card.Assessment{State: card.Detected, Received: 100}},
		"split, all confirmed": {order(), transfers{in(60, 50), in(40, 100)}, tip, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"one part left the chain": {order(), transfers{in(60, 50), in(40, 100, gone)}, tip, same,
			card.Assessment{State: card.Underpaid, Received: 60, Height: 50}},
		"too much": {order(), transfers{in(250, 100)}, tip, same,
			card.Assessment{State: card.Paid, Received: 250, Settled: 100, Height: 100}},
		"locked": {order(), transfers{in(100, 50, locked)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 50}},
		"locked part": {order(), transfers{in(60, 50), in(40, 50, locked)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 50}},
		"late, worth the same": {order(), transfers{in(100, 100, late)}, afterExpiry, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"late, worth more": {order(), transfers{in(100, 100, late)}, afterExpiry, dearer,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"late, worth less": {order(), transfers{in(100, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Late, Received: 100, Height: 100}},
		"late, no rate known": {order(), transfers{in(100, 100, late)}, afterExpiry, unknown,
			card.Assessment{State: card.Confirming, Received: 100, Height: 100, ReadyHeight: 110}},
		"late, not confirmed": {order(), transfers{in(100, 105, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Confirming, Received: 100, Height: 105, ReadyHeight: 114}},
		"late, not confirmed, no rate known": {order(), transfers{in(100, 105, late)}, afterExpiry, unknown,
			card.Assessment{State: card.Confirming, Received: 100, Height: 105, ReadyHeight: 114}},
		"late, fewer coins worth enough": {order(), transfers{in(75, 100, late)}, afterExpiry, dearer,
			card.Assessment{State: card.Paid, Received: 75, Settled: 75, Height: 100}},
		"in time, fewer coins are short": {order(), transfers{in(75, 100)}, tip, dearer,
			card.Assessment{State: card.Underpaid, Received: 75, Height: 100}},
		"late, today's price": {order(), transfers{in(101, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 101, Settled: 101, Height: 100}},
		"late, beyond today's price": {order(), transfers{in(150, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 150, Settled: 101, Height: 100}},
		"late, more was accepted": {order(func(c *card.Card) { c.Accepted = 120 }),
			transfers{in(130, 100, late)}, afterExpiry, rateOf(t, "100"),
			card.Assessment{State: card.Paid, Received: 130, Settled: 120, Height: 100}},
		"enough in time, more was accepted": {order(func(c *card.Card) { c.Accepted = 120 }),
			transfers{in(100, 50), in(30, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 130, Settled: 100, Height: 50}},
		"late top-up worth enough": {order(), transfers{in(60, 50), in(40, 100, late)}, afterExpiry, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"late top-up worth less": {order(), transfers{in(60, 50), in(40, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Late, Received: 100, Height: 100}},
		"enough in time, surplus late": {order(), transfers{in(100, 50), in(1, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 101, Settled: 100, Height: 50}},
		"paid in time, half refunded": {order(func(c *card.Card) { c.Refunded = 50 }), transfers{in(100, 100)},
			tip, same, card.Assessment{State: card.Late, Received: 100, Height: 100}},
		"paid in time, all refunded": {order(func(c *card.Card) { c.Refunded = 100 }), transfers{in(100, 100)},
			tip, same, card.Assessment{State: card.Expired, Received: 100, Height: 100}},
		"refunded, then left the chain unpaid": {order(func(c *card.Card) { c.Refunded = 100 }),
			transfers{in(100, 100, gone)}, tip, same, card.Assessment{State: card.Expired}},
		"once paid late, then cheaper": {order(func(c *card.Card) { c.State, c.Settled = card.Paid, 75 }),
			transfers{in(75, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 75, Settled: 75, Height: 100}},
		"once paid late, then dust": {order(func(c *card.Card) { c.State, c.Settled = card.Paid, 75 }),
			transfers{in(75, 100, late), in(1, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 76, Settled: 75, Height: 100}},
		"once paid at a higher price": {order(func(c *card.Card) { c.State, c.Settled = card.Paid, 101 }),
			transfers{in(101, 100, late)}, afterExpiry, cheaper,
			card.Assessment{State: card.Paid, Received: 101, Settled: 101, Height: 100}},
		"paid, one unit locked": {order(), transfers{in(100, 100), in(1, 50, locked)}, tip, same,
			card.Assessment{State: card.Paid, Received: 101, Settled: 100, Height: 100}},
		"paid, and one unit in the mempool": {order(), transfers{in(100, 100), in(1, 0)}, tip, same,
			card.Assessment{State: card.Paid, Received: 101, Settled: 100, Height: 100}},
		"paid, and one unit in the newest": {order(), transfers{in(100, 100), in(1, 109)}, tip, same,
			card.Assessment{State: card.Paid, Received: 101, Settled: 100, Height: 100}},
		"confirming, and one unit in the pool": {order(), transfers{in(100, 105), in(1, 0)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 101, Height: 105, ReadyHeight: 114}},
		"confirming, and one unit in a newer": {order(), transfers{in(100, 105), in(1, 107)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 101, Height: 105, ReadyHeight: 114}},
		"dust before the payment": {order(), transfers{in(1, 50), in(100, 105)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 101, Height: 105, ReadyHeight: 114}},
		"each part waits for its confirmations": {order(), transfers{in(50, 104), in(50, 106)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 100, Height: 106, ReadyHeight: 113}},
		"locked, and paid again": {order(), transfers{in(100, 50, locked), in(100, 100)}, tip, same,
			card.Assessment{State: card.Paid, Received: 200, Settled: 100, Height: 100}},
		"locked, paid again in the mempool": {order(), transfers{in(100, 50, locked), in(100, 105)}, tip, same,
			card.Assessment{State: card.Confirming, Received: 200, Height: 105, ReadyHeight: 114}},
		"late, one unit locked": {order(), transfers{in(100, 100, late), in(1, 50, late, locked)},
			afterExpiry, same, card.Assessment{State: card.Paid, Received: 101, Settled: 100, Height: 100}},
		"late, short, one unit in the pool": {order(), transfers{in(60, 100, late), in(1, 0, late)}, afterExpiry, same,
			card.Assessment{State: card.Late, Received: 61}},
		"late, short, one unit in the newest": {order(), transfers{in(60, 100, late), in(1, 109, late)}, afterExpiry, same,
			card.Assessment{State: card.Late, Received: 61, Height: 109, ReadyHeight: 118}},
		"late, short, rest unconfirmed": {order(), transfers{in(60, 100, late), in(40, 105, late)}, afterExpiry,
			same, card.Assessment{State: card.Confirming, Received: 100, Height: 105, ReadyHeight: 114}},
		"late, short, the rest is locked": {order(), transfers{in(60, 100, late), in(40, 100, late, locked)},
			afterExpiry, same, card.Assessment{State: card.Confirming, Received: 100, Height: 100}},
		"late, missing unit in time": {order(), transfers{in(60, 100), in(39, 100), in(1, 109, late)},
			afterExpiry, same, card.Assessment{State: card.Confirming, Received: 100, Height: 109, ReadyHeight: 118}},
		"in time short, worth enough, dust": {order(), transfers{in(75, 100), in(1, 0, late)}, afterExpiry, dearer,
			card.Assessment{State: card.Detected, Received: 76}},
		"locked in time, paid late": {order(), transfers{in(100, 50, locked), in(75, 100, late)}, afterExpiry,
			dearer, card.Assessment{State: card.Paid, Received: 175, Settled: 75, Height: 100}},
		"locked in time, paid late, no rate": {order(), transfers{in(100, 50, locked), in(75, 100, late)}, afterExpiry,
			unknown, card.Assessment{State: card.Confirming, Received: 175, Height: 100, ReadyHeight: 110}},
		"in time short, dust locked, no rate": {order(), transfers{in(75, 100), in(1, 50, late, locked)}, afterExpiry,
			unknown, card.Assessment{State: card.Confirming, Received: 76, Height: 100, ReadyHeight: 110}},
		"accepted, and one unit locked": {order(accepted), transfers{in(60, 100), in(1, 50, locked)}, afterExpiry,
			unknown, card.Assessment{State: card.Paid, Received: 61, Settled: 60, Height: 100}},
		"accepted, and one unit in the pool": {order(accepted), transfers{in(60, 100), in(1, 0)}, afterExpiry, unknown,
			card.Assessment{State: card.Paid, Received: 61, Settled: 60, Height: 100}},
		"once paid, part mined again": {order(func(c *card.Card) { c.State, c.Settled = card.Paid, 100 }),
			transfers{in(60, 100), in(40, 0)}, tip, same, card.Assessment{State: card.Detected, Received: 100, Settled: 100}},
		"refunded, then paid again, and dust": {order(refunded),
			transfers{in(99, 50, late), in(100, 90, late), in(1, 0, late)}, afterExpiry, same,
			card.Assessment{State: card.Paid, Received: 200, Settled: 100, Height: 90}},
		"generated": {order(generated), transfers{in(100, 100)}, tip, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100, Height: 100}},
		"generated, then late surplus": {order(generated), transfers{in(100, 100), in(9, 0, late)}, afterExpiry,
			same, card.Assessment{State: card.Paid, Received: 109, Settled: 100, Height: 100}},
		"generated, back in the mempool": {order(generated), transfers{in(100, 0)}, tip, same,
			card.Assessment{State: card.Paid, Received: 100, Settled: 100}},
		"generated, money left the chain": {order(generated), transfers{in(100, 100, gone)}, tip, same,
			card.Assessment{State: card.Reversed, Settled: 100}},
		"generated cheaply, then dust": {order(cheap), transfers{in(75, 100, late), in(1, 0, late)}, afterExpiry,
			cheaper, card.Assessment{State: card.Paid, Received: 76, Settled: 75, Height: 100}},
		"generated, a part left": {order(generated), transfers{in(60, 100), in(40, 100, gone)}, tip, same,
			card.Assessment{State: card.Reversed, Settled: 100, Received: 60, Height: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			after := *tt.card
			after.State, after.Received, after.Settled = tt.want.State, tt.want.Received, tt.want.Settled
			tt.want.Credit = card.CreditOf(&after)
			for range 5 { // the order of transfers must not matter
				rand.Shuffle(len(tt.in), func(i, j int) { tt.in[i], tt.in[j] = tt.in[j], tt.in[i] })
				if diff := cmp.Diff(tt.want, card.Assess(tt.card, tt.in, tt.tip, tt.rate)); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestTransitionEvent_OncePerState(t *testing.T) {
	for _, tt := range []struct {
		from, to card.PaymentState
		want     card.EventType
	}{
		{card.Unpaid, card.Unpaid, ""},
		{card.Unpaid, card.Detected, card.EventDetected},
		{card.Unpaid, card.Paid, card.EventDetected},
		{card.Detected, card.Confirming, ""},
		{card.Confirming, card.Paid, ""},
		{card.Paid, card.Confirming, ""},
		{card.Unpaid, card.Underpaid, card.EventUnderpaid},
		{card.Underpaid, card.Confirming, card.EventDetected},
		{card.Confirming, card.Late, card.EventLate},
		{card.Unpaid, card.Expired, card.EventExpired},
		{card.Expired, card.Detected, card.EventDetected},
		{card.Unpaid, card.Canceled, card.EventCanceled},
		{card.Canceled, card.Canceled, ""},
		{card.Canceled, card.Detected, card.EventDetected},
		{card.Canceled, card.Late, card.EventLate},
		{card.Detected, card.Canceled, card.EventCanceled},
		{card.Paid, card.Reversed, card.EventReversed},
		{card.Reversed, card.Paid, card.EventRestored},
		{card.Detected, card.Unpaid, ""},
	} {
		if got := card.TransitionEvent(tt.from, tt.to); got != tt.want {
			t.Errorf("%s to %s: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestSecret_NeverShown(t *testing.T) {
	showsNothing(t,
		card.Credentials{CardNumber: "canary", SecurityCode: "canary", URLPassword: "canary", URL: "canary",
			ExpirationDate: "canary"})
}
