package card

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// PaymentState says how far a card's payment is. The contract describes each value.
type PaymentState string

const (
	Unpaid     PaymentState = "unpaid"
	Detected   PaymentState = "detected"
	Underpaid  PaymentState = "underpaid"
	Confirming PaymentState = "confirming"
	Paid       PaymentState = "paid"
	Late       PaymentState = "late"
	Expired    PaymentState = "expired"
	Reversed   PaymentState = "reversed"
)

// PaymentStates returns every state that a payment can have.
func PaymentStates() []PaymentState {
	return []PaymentState{Unpaid, Detected, Underpaid, Confirming, Paid, Late, Expired, Reversed}
}

// Transfer is a fact about the chain: an amount that arrived at one of our addresses. A transfer that left the chain
// stays stored, but is no longer Counted.
type Transfer struct {
	Currency    string
	TxID        string
	Output      int64 // tells apart what one transaction pays us
	Address     string
	Amount      Amount
	Height      int64 // of its block; 0 in the mempool
	Locked      bool  // can't be spent yet, by the sender's will
	FirstSeenAt time.Time
	Counted     bool
}

// Tip is the newest block of a chain.
type Tip struct {
	Height int64
	Hash   string
	Time   time.Time // as the block says
}

// Assessment is what Assess finds: how far a payment is, and when to look at it again.
type Assessment struct {
	State       PaymentState
	Received    Amount // sum of the counted transfers
	Settled     Amount // what the payment was found Paid with, and must keep: the price, or what late money had to be worth, or what was accepted; 0 before
	Height      int64  // highest block of the counted transfers; 0 if there are none or one is in the mempool
	Credit      Credit // what it credits
	ReadyHeight int64  // tip at which the card must be assessed again without a new fact; 0 if never
}

// Assess decides how far the payment of a card is. It is pure: the same card, counted transfers, tip and rate give the
// same answer, however often and in whatever order they arrived. today is the current rate, needed only for money first seen
// after the quote expired; the zero Rate means that none is known.
//
// A generated card is never taken back: it is Paid, or Reversed once its money left the chain.
func Assess(c *Card, transfers []Transfer, tip Tip, today Rate) Assessment {
	sum := add(c, transfers)
	a := Assessment{Received: sum.received, Height: sum.height}
	kept, late := a.Received-c.Refunded, sum.inTime < a.Received
	quoted := sum.inTime-c.Refunded >= c.Amount
	// What was found enough once stays so, as long as it is there: the card may be being made.
	enough := quoted || (c.Accepted > 0 && kept >= c.Accepted) || (c.Settled > 0 && kept >= c.Settled)
	expired := !tip.Time.Before(c.ExpiresAt)
	price := c.Amount // what is kept beyond it is a surplus
	if !quoted {
		price = max(price, c.Accepted)
	}
	switch {
	case c.Status == Generated && kept < c.Settled:
		a.State = Reversed
	case c.Status == Generated:
		a.State = Paid
	case kept <= 0 && expired:
		a.State = Expired
	case kept <= 0:
		a.State = Unpaid
	case !enough && !late && expired:
		a.State = Late // too little, and its time is over
	case !enough && !late:
		a.State = Underpaid
	case a.Height == 0:
		a.State = Detected
	case tip.Height < sum.ready:
		a.State, a.ReadyHeight = Confirming, sum.ready
	case sum.locked:
		a.State = Confirming // unlocking is a new fact
	case enough:
		a.State = Paid
	case today.USD.Units == 0:
		a.State, a.ReadyHeight = Confirming, tip.Height+1 // unknown never moves toward issuing: look again with a rate
	case c.Coin.Covers(kept, c.USD, today):
		a.State = Paid
		worth, _ := c.Coin.Price(c.USD, today)
		price = max(c.Amount, worth) // or the fall of the rate would be given back as a surplus
	default:
		a.State = Late
	}
	a.Settled = c.Settled
	if a.State == Paid && (a.Settled == 0 || kept < a.Settled) {
		a.Settled = min(kept, price) // a generated card is Reversed then
	}
	after := *c
	after.State, after.Received, after.Settled = a.State, a.Received, a.Settled
	a.Credit = CreditOf(&after)
	return a
}

// counted is what the counted transfers of a card come to.
type counted struct {
	received, inTime Amount
	height           int64 // of the newest; 0 if there are none or one is in the mempool
	ready            int64 // tip at which all of them have their confirmations, unless one is in the mempool
	locked           bool  // one of them is
}

func add(c *Card, transfers []Transfer) counted {
	var sum counted
	mempool := false
	for _, t := range transfers {
		if !t.Counted {
			continue
		}
		sum.received += t.Amount
		if t.FirstSeenAt.Before(c.ExpiresAt) {
			sum.inTime += t.Amount
		}
		mempool = mempool || t.Height == 0
		sum.locked = sum.locked || t.Locked
		sum.height = max(sum.height, t.Height)
	}
	if mempool {
		sum.height = 0
	}
	sum.ready = sum.height + int64(c.ConfirmationsRequired) - 1
	return sum
}

// Confirmed reports whether everything that was received for a card has its confirmations and can be spent.
func Confirmed(c *Card, transfers []Transfer, tip Tip) bool {
	sum := add(c, transfers)
	return sum.height > 0 && tip.Height >= sum.ready && !sum.locked
}

// Verdict is what Judge finds of a card, and what follows from it. All of it is stored together.
type Verdict struct {
	Card       *Card // as it was before
	Assessment Assessment
	Issue      bool   // the card is paid and is to be issued
	Event      *Event // what the account is told; nil for nothing
}

// Alarm reports whether an operator must look at the card from now on.
func (v Verdict) Alarm() bool {
	return v.Event != nil && (v.Assessment.State == Late || v.Assessment.State == Reversed)
}

// Judge assesses a card, as Assess does, and says what follows. The event, if there is one, gets the id, a UUID version 7, and its time.
func Judge(c *Card, transfers []Transfer, tip Tip, today Rate, eventID uuid.UUID) Verdict {
	a := Assess(c, transfers, tip, today)
	v := Verdict{Card: c, Assessment: a, Issue: a.State == Paid && c.Status == AwaitingPayment}
	if kind := TransitionEvent(c.State, a.State); kind != "" {
		e := NewEvent(eventID, c, kind, c.Status, a.State)
		v.Event = &e
	}
	return v
}

// TransitionEvent returns the event that a change of state calls for, or "".
func TransitionEvent(from, to PaymentState) EventType {
	if from == to {
		return ""
	}
	seen := []PaymentState{Detected, Confirming, Paid}
	switch to {
	case Detected, Confirming, Paid:
		if slices.Contains(seen, from) || from == Reversed {
			return ""
		}
		return EventDetected
	case Underpaid:
		return EventUnderpaid
	case Late:
		return EventLate
	case Expired:
		return EventExpired
	case Reversed:
		return EventReversed
	}
	return ""
}
