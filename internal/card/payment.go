package card

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

// PaymentState is the state of a card's payment. The contract describes each
// value.
type PaymentState string

const (
	Unpaid     PaymentState = "unpaid"
	Detected   PaymentState = "detected"
	Underpaid  PaymentState = "underpaid"
	Confirming PaymentState = "confirming"
	Paid       PaymentState = "paid"
	Late       PaymentState = "late"
	Expired    PaymentState = "expired"
	Canceled   PaymentState = "canceled"
	Reversed   PaymentState = "reversed"
)

// PaymentStates returns every payment state.
func PaymentStates() []PaymentState {
	return []PaymentState{Unpaid, Detected, Underpaid, Confirming, Paid, Late, Expired, Canceled, Reversed}
}

// Transfer is an amount that arrived at one of our addresses. A transfer that
// left the chain stays stored, but is no longer Counted.
type Transfer struct {
	Currency    string
	TxID        string
	Output      int64 // distinguishes the outputs that one transaction pays us
	Address     string
	Amount      Amount
	Height      int64 // of its block; 0 in the mempool
	Locked      bool  // unspendable for now, at the sender's choice
	FirstSeenAt time.Time
	Counted     bool
}

// Confirmations returns the number of blocks that confirm the transfer, its own
// included; 0 in the mempool.
func (t Transfer) Confirmations(tip int64) int64 { return confirmations(t.Height, tip) }

// Tip is the newest block of a chain.
type Tip struct {
	Height int64
	Hash   string
	Time   time.Time // according to the block
}

// Assessment is the result of Assess.
type Assessment struct {
	State    PaymentState
	Received Amount // sum of the counted transfers
	// The amount that made the payment Paid, and must remain: the price, the
	// price at the rate for late money, or the accepted amount. 0 before.
	Settled     Amount
	Height      int64 // block of the transfer that the card waits for; 0 if there is none, or it is in the mempool
	Credit      Credit
	ReadyHeight int64 // when the tip reaches it, the card is assessed again even without a new fact; 0 if never
}

// Assess decides the state of a card's payment. It is pure: the same card,
// counted transfers, tip and rate give the same result, in any order of the
// transfers and any number of calls. today is the current rate, which only
// money needs that was first seen after the quote ended; the zero Rate is an
// unknown one.
//
// Only firm transfers pay: they are confirmed and can be spent. Other transfers
// never delay a card that the firm ones pay for.
//
// A generated card is never revoked: it is Paid, or Reversed once its money
// left the chain.
func Assess(c *Card, transfers []Transfer, tip Tip, today Rate) Assessment {
	all := sumOf(c, transfers, func(Transfer) bool { return true })
	firm := sumOf(c, transfers, func(t Transfer) bool { return c.firm(t, tip) })
	a := Assessment{Received: all.kept + c.Refunded, Settled: c.Settled}
	expired := c.canceled() || c.Refunded > 0 || !tip.Time.Before(c.ExpiresAt) // no more money is expected
	// The transfers that pay, and the price at today's rate if that decided.
	pays, worth := firm, Amount(0)
	switch {
	case c.Status == Generated && all.kept < c.Settled:
		a.State = Reversed
	case c.Status == Generated:
		a.State, pays = Paid, all
	case all.kept <= 0 && c.canceled():
		a.State = Canceled
	case all.kept <= 0 && expired:
		a.State = Expired
	case all.kept <= 0:
		a.State = Unpaid
	case c.enough(firm):
		a.State = Paid
	case firm.late() && c.Coin.Covers(firm.kept, c.USD, today):
		a.State = Paid
		worth, _ = c.Coin.Price(c.USD, today) // without it, a fall of the rate would become a surplus
	case c.enough(all):
		a.State = Confirming
	case !all.late() && expired:
		a.State = Late // too little, and its time has passed
	case !all.late():
		a.State = Underpaid
	case firm.kept <= 0 || today.USD.Units == 0 || c.Coin.Covers(all.kept, c.USD, today):
		a.State = Confirming // unknown worth never moves toward issuing, nor toward an operator
	default:
		a.State = Late
	}
	if a.State == Paid && (a.Settled == 0 || pays.kept < a.Settled) {
		a.Settled = min(pays.kept, c.price(pays, worth)) // a generated card with less is Reversed
	}
	after := *c
	after.State, after.Received, after.Settled = a.State, a.Received, a.Settled
	a.Height = awaitedHeight(&after, transfers)
	if a.State == Confirming && a.Height == 0 {
		a.State, after.State = Detected, Detected
	}
	a.ReadyHeight = nextReadyHeight(&after, transfers, tip, all.late() && firm.kept > 0 && today.USD.Units == 0)
	a.Credit = CreditOf(&after)
	return a
}

// sum adds up transfers to a card, less its refunds.
type sum struct {
	kept   Amount
	inTime Amount // the part first seen before the quote ended
}

func (s sum) late() bool { return s.inTime < s.kept }

func sumOf(c *Card, transfers []Transfer, which func(Transfer) bool) sum {
	s := sum{-c.Refunded, -c.Refunded}
	for _, t := range transfers {
		if !t.Counted || !which(t) {
			continue
		}
		s.kept += t.Amount
		if t.FirstSeenAt.Before(c.quoteEnd()) {
			s.inTime += t.Amount
		}
	}
	return s
}

// canceled reports whether the client canceled the card.
func (c *Card) canceled() bool { return !c.CanceledAt.IsZero() }

// quoteEnd returns when the quote expires, or when the client canceled the card
// before that. Money first seen later is late.
func (c *Card) quoteEnd() time.Time {
	if c.canceled() && c.CanceledAt.Before(c.ExpiresAt) {
		return c.CanceledAt
	}
	return c.ExpiresAt
}

// firm reports whether a transfer is confirmed and can be spent.
func (c *Card) firm(t Transfer, tip Tip) bool {
	return t.Height > 0 && tip.Height >= c.readyAt(t) && !t.Locked
}

// readyAt returns the tip that confirms a mined transfer.
func (c *Card) readyAt(t Transfer) int64 { return t.Height + int64(c.ConfirmationsRequired) - 1 }

// enough reports whether s pays the price without the need of a rate. An amount
// that was enough once stays enough while it is in the chain, because the card
// may already be on order.
func (c *Card) enough(s sum) bool {
	return s.inTime >= c.Amount || c.Accepted > 0 && s.kept >= c.Accepted || c.Settled > 0 && s.kept >= c.Settled
}

// price returns the part of s that a card costs; the rest is a surplus. worth
// is the price at today's rate, if that decided.
func (c *Card) price(s sum, worth Amount) Amount {
	switch {
	case s.inTime >= c.Amount:
		return c.Amount
	case worth > 0:
		return max(c.Amount, worth)
	}
	return max(c.Amount, c.Accepted)
}

// awaitedHeight returns the block of the transfer that a card waits, or waited,
// for: the newest of those it needs. It returns 0 if that is in the mempool.
func awaitedHeight(c *Card, transfers []Transfer) (height int64) {
	for _, t := range needed(c, transfers) {
		if t.Height == 0 {
			return 0
		}
		height = max(height, t.Height)
	}
	return height
}

// needed returns the transfers with the most confirmations that add up to the
// amount a card needs; all transfers if they do not. Locked transfers come
// last.
func needed(c *Card, transfers []Transfer) []Transfer {
	need := c.Refunded + c.Amount
	switch {
	case c.Settled > 0:
		need = c.Refunded + c.Settled
	case c.Accepted > 0:
		need = c.Refunded + min(c.Accepted, c.Amount)
	}
	byAge := slices.DeleteFunc(slices.Clone(transfers), func(t Transfer) bool { return !t.Counted })
	slices.SortFunc(byAge, func(a, b Transfer) int {
		switch {
		case a.Locked && !b.Locked:
			return 1
		case b.Locked && !a.Locked:
			return -1
		}
		return cmp.Compare(uint64(a.Height-1), uint64(b.Height-1)) // sorts 0, the mempool, after all blocks
	})
	for i, t := range byAge {
		if need <= 0 {
			return byAge[:i]
		}
		need -= t.Amount
	}
	return byAge
}

// Awaited returns the transfers that a card needs and that are not firm: they
// lack confirmations or are locked.
func Awaited(c *Card, transfers []Transfer, tip Tip) []Transfer {
	return slices.DeleteFunc(needed(c, transfers), func(t Transfer) bool { return c.firm(t, tip) })
}

// nextReadyHeight returns the tip that makes the next transfer of an unpaid
// card firm. A card that waits for a rate is assessed again with the next
// block.
func nextReadyHeight(c *Card, transfers []Transfer, tip Tip, forRate bool) (height int64) {
	if !slices.Contains([]PaymentState{Detected, Confirming, Late}, c.State) {
		return 0
	}
	if forRate {
		return tip.Height + 1
	}
	for _, t := range transfers {
		if at := c.readyAt(t); t.Counted && t.Height > 0 && !t.Locked && at > tip.Height && (height == 0 || at < height) {
			height = at
		}
	}
	return height
}

// Firm returns the amount of a card's firm transfers, less its refunds.
func Firm(c *Card, transfers []Transfer, tip Tip) Amount {
	return sumOf(c, transfers, func(t Transfer) bool { return c.firm(t, tip) }).kept
}

// Unlocked returns the amount of a card's transfers that are not locked, less
// its refunds.
func Unlocked(c *Card, transfers []Transfer) Amount {
	return sumOf(c, transfers, func(t Transfer) bool { return !t.Locked }).kept
}

// Confirmed reports whether a card has transfers and all of them are firm.
func Confirmed(c *Card, transfers []Transfer, tip Tip) bool {
	counted := func(t Transfer) bool { return t.Counted }
	return slices.ContainsFunc(transfers, counted) &&
		!slices.ContainsFunc(transfers, func(t Transfer) bool { return t.Counted && !c.firm(t, tip) })
}

// Verdict is a card's assessment with its consequences. All of it is stored in
// one transaction.
type Verdict struct {
	Card       *Card // before the assessment
	Assessment Assessment
	Issue      bool   // the card is paid and must be issued
	Event      *Event // for the account; nil for none
}

// Alarm reports whether the card newly needs an operator.
func (v Verdict) Alarm() bool {
	return v.Event != nil &&
		(v.Assessment.State == Late || v.Assessment.State == Reversed || v.Event.Type == EventRefundDue)
}

// Judge assesses a card and derives the consequences. Its event, if any, gets
// the given id, a version 7 UUID, and the id's time.
func Judge(c *Card, transfers []Transfer, tip Tip, today Rate, eventID uuid.UUID) Verdict {
	a := Assess(c, transfers, tip, today)
	v := Verdict{Card: c, Assessment: a, Issue: a.State == Paid && c.Status == AwaitingPayment}
	after := *c
	after.State, after.Received = a.State, a.Received
	kind := TransitionEvent(c.State, a.State)
	if due := after.RefundDue(); due > 0 && due != c.RefundDue() {
		kind = EventRefundDue // replaces EventDetected
	}
	if kind != "" {
		e := NewEvent(eventID, c, kind, c.Status, a.State)
		v.Event = &e
	}
	return v
}

// TransitionEvent returns the event for a change of state, or "".
func TransitionEvent(from, to PaymentState) EventType {
	if from == to {
		return ""
	}
	seen := []PaymentState{Detected, Confirming, Paid}
	switch to {
	case Detected, Confirming, Paid:
		switch {
		case from == Reversed:
			return EventRestored // only a generated card, which is Paid, gets here
		case slices.Contains(seen, from):
			return ""
		}
		return EventDetected
	case Underpaid:
		return EventUnderpaid
	case Late:
		return EventLate
	case Expired:
		return EventExpired
	case Canceled:
		return EventCanceled
	case Reversed:
		return EventReversed
	}
	return ""
}
