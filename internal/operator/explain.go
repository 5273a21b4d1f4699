package operator

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Wait is what a card waits for.
type Wait string

// What a card can wait for.
const (
	ForNothing       Wait = "nothing"       // it is issued, or nothing is expected any more
	ForMoney         Wait = "money"         // more of it, from the customer
	ForConfirmations Wait = "confirmations" // of transfers
	ForUnlock        Wait = "unlock"        // the senders of transfers have locked them
	ForRate          Wait = "rate"          // what late money is worth today is not known
	ForSupplier      Wait = "supplier"      // it is paid, and is being issued
	ForDecision      Wait = "decision"      // of an operator: its money is late or lost, or it can't be issued
)

// Explanation says what a card waits for and why, and what an operator can
// decide.
type Explanation struct {
	Wait      Wait
	Since     time.Time       // ForDecision and ForUnlock; zero if it is not known
	Until     time.Time       // ForMoney: the end of the quote; ForSupplier: the next attempt
	Missing   card.Amount     // ForMoney: how much more
	Transfers []card.Transfer // ForConfirmations and ForUnlock: those that it needs and that can't pay yet
	// left the chain after the card was issued or the money was given back, and
	// is not written off
	Lost    card.Amount
	Worth   *Worth   // what was received is worth today; nil if nothing depends on it, or if no rate is known
	Choices []Choice // what can be decided now
}

// Worth says what the money of a card is worth.
type Worth struct {
	Rate    card.Rate
	USD     card.USD    // what was received and not given back
	Short   card.USD    // that it lacks to the card's balance; 0 if it lacks nothing
	Missing card.Amount // that would make up for it
}

// Choice is a decision that an operator can take now.
type Choice struct {
	Kind   ResolutionKind
	Amount card.Amount // it is about; 0 with Retry
	LeftOut
	Cost card.USD // Accept and Retry: what the card's balance exceeds the worth of the money by; 0 if no rate is known
}

// LeftOut is what a decision leaves out of the money that it could be about.
type LeftOut struct {
	Locked      card.Amount // by the senders
	Unconfirmed card.Amount // Refund: may still leave the chain
}

// Explain says what a card waits for, and what can be decided of it. today is
// the current rate, or the last one that is known; the zero Rate means that
// none is. It is pure.
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

// waitFor returns what a card waits for that needs so many transfers more.
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

// since returns since when a card waits for an operator, or for an unlock.
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

// lastEvent returns when an account was last told of a kind of event; zero if it was
// not.
func lastEvent(events []card.Event, kind card.EventType) (at time.Time) {
	for _, e := range events {
		if e.Type == kind {
			at = e.CreatedAt
		}
	}
	return at
}

// worth returns what the money of a card is worth today. That of a paid card
// matters only to an operator who may have it issued or give the money back;
// nothing is missing then.
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

// choices returns what ResolveCard would do now.
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

// leftOut returns what a decision about an amount leaves out.
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
