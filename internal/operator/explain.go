package operator

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Wait is the reason why a card is not issued yet.
type Wait string

// The reasons.
const (
	ForNothing       Wait = "nothing"       // it is issued, or nothing more is expected
	ForMoney         Wait = "money"         // the customer has to send more
	ForConfirmations Wait = "confirmations" // of transfers
	ForUnlock        Wait = "unlock"        // transfers are locked by their senders
	ForRate          Wait = "rate"          // the current worth of late money is unknown
	ForSupplier      Wait = "supplier"      // it is paid, and being issued
	ForDecision      Wait = "decision"      // an operator must decide: its money is late or lost, or it can't be issued
)

// Explanation describes why a card waits, and the decisions that an operator
// can make.
type Explanation struct {
	Wait      Wait
	Since     time.Time       // ForDecision and ForUnlock; zero if unknown
	Until     time.Time       // ForMoney: the end of the quote; ForSupplier: the next attempt
	Missing   card.Amount     // ForMoney: the rest of the price
	Transfers []card.Transfer // ForConfirmations and ForUnlock: transfers that it needs and that can't pay yet
	Lost      card.Amount     // left the chain after issue or refund, and is not written off
	Worth     *Worth          // current worth of its money; nil if irrelevant or unknown
	Choices   []Choice        // possible decisions
}

// Worth is the current worth of a card's money.
type Worth struct {
	Rate    card.Rate
	USD     card.USD    // of the money received and not given back
	Short   card.USD    // shortfall to the card's balance; 0 for none
	Missing card.Amount // the shortfall in coins
}

// Choice is a decision that an operator can make now.
type Choice struct {
	Kind   ResolutionKind
	Amount card.Amount // accepted, refunded or written off; 0 with Retry
	LeftOut
	Cost card.USD // Accept and Retry: the card's balance minus the worth of the money; 0 if unknown
}

// LeftOut is the part of a card's money that a decision does not cover.
type LeftOut struct {
	Locked      card.Amount // by the senders
	Unconfirmed card.Amount // Refund: may still leave the chain
}

// Explain returns why a card waits, and the possible decisions. today is the
// current or the last known rate; zero if unknown. It is a pure function.
func Explain(r CardDetail, today card.Rate) Explanation {
	c := r.Card
	ev := evidence{tip: card.Tip{Height: c.TipHeight}, intent: r.Intent, transfers: r.Transfers}
	x := Explanation{Wait: ForNothing, Lost: c.Credit.Lost - c.Credit.WrittenOff}
	kept := c.Received - c.Refunded
	switch {
	case x.Lost > 0:
		x.Wait = ForDecision
	case c.Status == card.Generated:
	case c.State == card.Paid && r.Intent.waits(), c.State == card.Late:
		x.Wait = ForDecision
	case c.State == card.Paid:
		x.Wait = ForSupplier
		if r.Intent != nil {
			x.Until = r.Intent.DueAt
		}
	case c.State == card.Detected || c.State == card.Confirming:
		x.Transfers = card.Awaited(c, r.Transfers, ev.tip)
		x.Wait = waitFor(x.Transfers)
	case c.State == card.Underpaid, c.State == card.Unpaid && c.Refunded == 0:
		x.Wait, x.Missing, x.Until = ForMoney, c.Amount-max(0, kept), c.ExpiresAt
	}
	x.Since = since(r, x)
	x.Worth = worth(c, kept, today, x.Wait)
	x.Choices = choices(c, ev, today)
	return x
}

// waitFor returns the reason why a card waits for transfers.
func waitFor(transfers []card.Transfer) Wait {
	if len(transfers) == 0 {
		return ForRate
	}
	for _, t := range transfers {
		if !t.Locked {
			return ForConfirmations
		}
	}
	return ForUnlock
}

// since returns when a card began to wait for an operator or an unlock.
func since(r CardDetail, x Explanation) time.Time {
	switch {
	case x.Wait == ForUnlock:
		first := x.Transfers[0].FirstSeenAt
		for _, t := range x.Transfers {
			if t.FirstSeenAt.Before(first) {
				first = t.FirstSeenAt
			}
		}
		return first
	case x.Wait != ForDecision:
		return time.Time{}
	case x.Lost > 0:
		return lastEvent(r.Events, card.EventReversed)
	case r.Card.State == card.Late:
		return lastEvent(r.Events, card.EventLate)
	case r.Intent.refundDue():
		return lastEvent(r.Events, card.EventRefundDue)
	case r.Intent.OpenedAt != nil:
		return *r.Intent.OpenedAt
	}
	return time.Time{}
}

// lastEvent returns the time of the last event of a type; zero if there is
// none.
func lastEvent(events []card.Event, kind card.EventType) (at time.Time) {
	for _, e := range events {
		if e.Type == kind {
			at = e.CreatedAt
		}
	}
	return at
}

// worth returns the current worth of a card's money. For a paid card it is only
// relevant to an operator who can retry or refund; nothing is missing then.
func worth(c *card.Card, kept card.Amount, today card.Rate, wait Wait) *Worth {
	price, err := c.Coin.Price(c.USD, today)
	paid := c.State == card.Paid
	if err != nil || kept <= 0 || c.Status == card.Generated || paid && wait != ForDecision {
		return nil
	}
	is := c.Coin.Worth(kept, today)
	if paid {
		return &Worth{Rate: today, USD: is}
	}
	return &Worth{Rate: today, USD: is, Short: max(0, c.USD-is), Missing: max(0, price-kept)}
}

// choices returns the decisions that ResolveCard would accept now.
func choices(c *card.Card, ev evidence, today card.Rate) (all []Choice) {
	for _, kind := range []ResolutionKind{Accept, Retry, Refund, WriteOff} {
		decided := *c
		amount, nothing, err := decide(&decided, kind, ev)
		if err != nil || nothing {
			continue
		}
		choice := Choice{Kind: kind, Amount: amount, LeftOut: leftOut(c, kind, amount, ev)}
		if kind == Retry {
			amount = c.Received - c.Refunded
		}
		if (kind == Accept || kind == Retry) && today.USD.Units > 0 {
			choice.Cost = max(0, c.USD-c.Coin.Worth(amount, today))
		}
		all = append(all, choice)
	}
	return all
}

// leftOut returns the money that a decision about amount does not cover.
func leftOut(c *card.Card, kind ResolutionKind, amount card.Amount, ev evidence) LeftOut {
	var locked card.Amount
	for _, t := range ev.transfers {
		if t.Counted && t.Locked {
			locked += t.Amount
		}
	}
	switch kind {
	case Accept:
		return LeftOut{Locked: locked}
	case Refund:
		could := c.Received - c.Refunded
		if c.Status == card.Generated {
			could = c.Credit.Surplus
		}
		left := max(0, could-amount)
		locked = min(locked, left)
		return LeftOut{Locked: locked, Unconfirmed: left - locked}
	}
	return LeftOut{}
}
