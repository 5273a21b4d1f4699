package card

import (
	"slices"
	"time"
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

// Transfer is a fact about the chain: an amount that arrived at one of our addresses. A transfer that left the chain
// stays stored, but is no longer Counted.
type Transfer struct {
	Currency    string
	TxID        string
	Output      int64 // tells apart what one transaction pays us; for monero the subaddress index
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
	Settled     Amount // what must stay for the payment to stay Paid: the price, or the less that late money was worth it; 0 if not Paid
	Height      int64  // highest block of the counted transfers; 0 if there are none or one is in the mempool
	ReadyHeight int64  // tip at which the card must be assessed again without a new fact; 0 if never
}

// Assess decides how far the payment of a card is. It is pure: the same card, counted transfers, tip and rate give the
// same answer, however often and in whatever order they arrived. late is today's rate, needed only for money first seen
// after the quote expired; the zero Rate means that none is known.
//
// A generated card is never taken back: it is Paid, or Reversed once its money left the chain.
func Assess(c *Card, transfers []Transfer, tip Tip, late Rate) Assessment {
	var a Assessment
	var inTime Amount
	mempool, locked := false, false
	for _, t := range transfers {
		if !t.Counted {
			continue
		}
		a.Received += t.Amount
		if t.FirstSeenAt.Before(c.ExpiresAt) {
			inTime += t.Amount
		}
		mempool = mempool || t.Height == 0
		locked = locked || t.Locked
		a.Height = max(a.Height, t.Height)
	}
	if mempool {
		a.Height = 0
	}
	ready := a.Height + int64(c.ConfirmationsRequired) - 1
	switch {
	case c.Status == Generated && a.Received < c.Settled:
		a.State, a.Settled = Reversed, c.Settled
	case c.Status == Generated:
		a.State, a.Settled = Paid, c.Settled
	case a.Received == 0 && !tip.Time.Before(c.ExpiresAt):
		a.State = Expired
	case a.Received == 0:
		a.State = Unpaid
	case a.Received < c.Amount && !(inTime < a.Received && worth(c, a.Received, late)):
		a.State = Underpaid
	case a.Height == 0:
		a.State = Detected
	case tip.Height < ready:
		a.State, a.ReadyHeight = Confirming, ready
	case locked:
		a.State = Confirming // unlocking is a new fact
	case inTime >= c.Amount:
		a.State = Paid
	case late.USD.Units == 0:
		a.State, a.ReadyHeight = Confirming, tip.Height+1 // unknown never moves toward issuing: look again with a rate
	case worth(c, a.Received, late):
		a.State = Paid
	default:
		a.State = Late
	}
	if a.State == Paid && a.Settled == 0 {
		a.Settled = min(a.Received, c.Amount)
	}
	return a
}

func worth(c *Card, received Amount, rate Rate) bool {
	return c.Coin.Covers(received, c.USD, rate)
}

// EventType names what an account is told.
type EventType string

const (
	EventGenerated EventType = "card.generated"
	EventDetected  EventType = "payment.detected"
	EventUnderpaid EventType = "payment.underpaid"
	EventLate      EventType = "payment.late"
	EventExpired   EventType = "payment.expired"
	EventReversed  EventType = "payment.reversed"
)

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
