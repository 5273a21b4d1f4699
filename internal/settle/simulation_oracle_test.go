package settle_test

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// oracle says what the contract demands of each card, from what the chain was seen to hold. It shares no code with the product.
type oracle struct {
	tip    card.Tip
	facts  []fact // of the last view that was applied
	firsts map[string]time.Time
	orders []*sale
	rate   int64 // today's, times 10^8; 0 if none is known
	fail   func(format string, args ...any)
}

// sale is a card, and what must be true of it.
type sale struct {
	index                         int
	id                            uuid.UUID
	usd                           card.USD
	price                         card.Amount
	address                       string
	expires                       time.Time
	k                             int64
	accepted, refunded, writeOffs card.Amount // what operators decided
	decisions                     int

	state     card.PaymentState // as it was found, and found right
	generated bool
	found     card.Amount // what it was found paid with, which is enough from then on
	settled   card.Amount // what the card was made for
	sealed    []byte
	events    []card.EventType // that it must have
	refused   bool             // the supplier gave a reason to ask an operator
	attempts  int

	facts string // by which late money was judged
	worth bool   // it was found worth the dollars
	unfit bool   // it was found worth less
	tried int64  // height at which there was no rate to judge it by
}

// must returns what has to stay in the chain of what was not given back.
func (x *sale) must() card.Amount {
	if x.generated {
		return x.settled
	}
	return 0
}

// isDue reports whether the supplier is to be asked.
func (x *sale) isDue() bool { return x.state == card.Paid && !x.generated }

// money is what an order got.
type money struct {
	total, early   card.Amount
	pooled, locked bool
	newest         int64
	facts          string
}

func (o *oracle) money(x *sale) money {
	var m money
	var facts []string
	for _, f := range o.facts {
		if f.address != x.address {
			continue
		}
		m.total += f.amount
		if o.first(f).Before(x.expires) {
			m.early += f.amount
		}
		m.pooled = m.pooled || f.height == 0
		m.locked = m.locked || f.locked
		m.newest = max(m.newest, f.height)
		facts = append(facts, fmt.Sprint(f.tx, f.output, f.height, f.locked))
	}
	slices.Sort(facts)
	m.facts = strings.Join(append(facts, fmt.Sprint(x.decisions)), " ")
	return m
}

// first returns when a transfer was shown to have been seen first.
func (o *oracle) first(f fact) time.Time { return o.firsts[fmt.Sprint(f.tx, "/", f.output)] }

// apply takes note of a view that the product has just stored.
func (o *oracle) apply(s *sight) {
	switch {
	case s.bad != "":
		o.fail("applied a view although %s", s.bad)
	case s.tip.Height < o.tip.Height:
		o.fail("applied a view of height %d after one of %d", s.tip.Height, o.tip.Height)
	}
	o.tip, o.facts = s.tip, s.facts
	for _, f := range s.facts {
		key := fmt.Sprint(f.tx, "/", f.output)
		if at, known := o.firsts[key]; !known || f.seenAt.Before(at) {
			o.firsts[key] = f.seenAt
		}
	}
	for _, x := range o.orders {
		o.judge(x)
	}
}

// judge takes note of what is found once and stays found.
func (o *oracle) judge(x *sale) {
	o.judgeLate(x)
	m := o.money(x)
	if kept := m.total - x.refunded; !x.generated && (x.found == 0 || kept < x.found) && kept > 0 && o.firm(x, m) && (o.enough(x, m) || x.worth && x.tried != o.tip.Height) {
		x.found = min(kept, o.cost(x, m))
	}
}

// cost returns what a card takes of the money that was found enough.
func (o *oracle) cost(x *sale, m money) card.Amount {
	switch kept := m.total - x.refunded; {
	case m.early-x.refunded >= x.price:
		return x.price
	case x.accepted > 0 && kept >= x.accepted:
		return max(x.price, x.accepted)
	}
	return max(x.price, price(x.usd, o.rate)) // late, and judged by today's rate
}

// judgeLate judges late money by today's rate once it can't be judged by anything else, and once for the same facts.
func (o *oracle) judgeLate(x *sale) {
	m := o.money(x)
	if x.facts != m.facts {
		x.facts, x.worth, x.unfit, x.tried = m.facts, false, false, 0
	}
	if x.worth || x.unfit || !o.firm(x, m) || o.enough(x, m) || m.early == m.total || m.total-x.refunded <= 0 {
		return
	}
	if o.rate == 0 {
		x.tried = o.tip.Height
		return
	}
	x.worth = worth(m.total-x.refunded, o.rate).Cmp(cents(x.usd)) >= 0
	x.unfit = !x.worth
}

// worth returns the exact worth of an amount in cents.
func worth(amount card.Amount, rate int64) *big.Rat {
	product := new(big.Int).Mul(big.NewInt(int64(amount)), big.NewInt(rate))
	return new(big.Rat).SetFrac(product, big.NewInt(1e18)) // 10^12 piconero, 10^8 of the rate, 10^-2 for cents
}

func cents(usd card.USD) *big.Rat { return big.NewRat(int64(usd), 1) }

// price returns the least amount that is worth the dollars.
func price(usd card.USD, rate int64) card.Amount {
	low, high := card.Amount(0), card.Amount(1<<62)
	for low+1 < high {
		middle := low + (high-low)/2
		if worth(middle, rate).Cmp(cents(usd)) >= 0 {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// firm reports whether everything that was counted is confirmed as often as required, and can be spent.
func (o *oracle) firm(x *sale, m money) bool {
	return m.newest > 0 && !m.pooled && !m.locked && o.tip.Height-m.newest+1 >= x.k
}

// enough reports whether no rate is needed to say that the price was paid.
func (o *oracle) enough(x *sale, m money) bool {
	kept := m.total - x.refunded
	return m.early-x.refunded >= x.price || x.accepted > 0 && kept >= x.accepted || x.found > 0 && kept >= x.found
}

// demands returns the states that a card may be in.
func (o *oracle) demands(x *sale) []card.PaymentState {
	m := o.money(x)
	kept, over := m.total-x.refunded, !o.tip.Time.Before(x.expires)
	nothing, late := kept <= 0, m.early < m.total
	good := o.enough(x, m)
	hopeful := !nothing && (good || late)
	var all []card.PaymentState
	for _, rule := range []struct {
		state card.PaymentState
		holds bool
	}{
		{card.Reversed, x.generated && kept < x.settled},
		{card.Paid, x.generated && kept >= x.settled},
		{card.Unpaid, !x.generated && nothing && !over},
		{card.Expired, !x.generated && nothing && over},
		{card.Underpaid, !x.generated && !nothing && !hopeful && !over},
		{card.Late, !x.generated && !nothing && !hopeful && over},
		{card.Detected, !x.generated && hopeful && m.pooled},
		{card.Confirming, !x.generated && hopeful && !m.pooled && !o.firm(x, m)},
		{card.Paid, !x.generated && hopeful && o.firm(x, m) && (good || x.worth)},
		{card.Late, !x.generated && hopeful && o.firm(x, m) && !good && x.unfit},
		// Money whose worth nobody knows waits; with a rate it may wait for the next block.
		{card.Confirming, !x.generated && hopeful && o.firm(x, m) && !good && (!x.worth && !x.unfit || x.tried == o.tip.Height)},
	} {
		if rule.holds {
			all = append(all, rule.state)
		}
	}
	return all
}

// check compares a card with what is demanded of it, and takes note of where it is.
func (o *oracle) check(x *sale, c *card.Card) {
	m := o.money(x)
	demanded := o.demands(x)
	if !slices.Contains(demanded, c.State) {
		o.fail("card %d is %s, must be %v: price %d, %d received, %d of it in time, %d kept, newest block %d, tip %d, locked %t",
			x.index, c.State, demanded, x.price, m.total, m.early, m.total-x.refunded, m.newest, o.tip.Height, m.locked)
	}
	if c.State == card.Confirming && x.tried == o.tip.Height {
		x.worth, x.unfit = false, false // it will be judged with the next block
	}
	if c.Received != m.total {
		o.fail("card %d received %d, must be %d", x.index, c.Received, m.total)
	}
	confirmations := int64(0)
	if !m.pooled && m.newest > 0 {
		confirmations = o.tip.Height - m.newest + 1
	}
	if c.Confirmations() != confirmations {
		o.fail("card %d has %d confirmations, must be %d", x.index, c.Confirmations(), confirmations)
	}
	generated := c.Status == card.Generated
	switch {
	case generated && !x.generated:
		if c.State != card.Paid {
			o.fail("card %d was made while it is %s", x.index, c.State)
		}
		x.generated, x.settled = true, x.found
		x.events = append(x.events, card.EventGenerated)
		if c.Sealed != nil {
			x.sealed = c.Sealed.CardNumber
		}
	case !generated && x.generated:
		o.fail("card %d was made, and is %s", x.index, c.Status)
	}
	if (c.Sealed != nil) != generated || generated && !bytes.Equal(x.sealed, c.Sealed.CardNumber) {
		o.fail("card %d is %s, and its credentials are gone, there too early, or changed", x.index, c.Status)
	}
	if generated && (c.Settled != x.settled || c.Credit.Surplus != max(0, m.total-x.refunded-x.settled)) {
		o.fail("card %d is settled by %d with a surplus of %d, must be %d of %d", x.index, c.Settled, c.Credit.Surplus, x.settled, m.total-x.refunded)
	}
	if k := c.Credit; k.Paid+k.Held+k.Surplus+k.Refunded != m.total || k.Lost != max(0, x.must()-(m.total-x.refunded), x.refunded-m.total) {
		o.fail("card %d credits %+v of %d, refunded %d, must keep %d", x.index, k, m.total, x.refunded, x.must())
	}
	if c.Accepted != x.accepted || c.Refunded != x.refunded || c.WrittenOff != x.writeOffs {
		o.fail("card %d has %d accepted, %d refunded, %d written off, must be %d, %d, %d", x.index,
			c.Accepted, c.Refunded, c.WrittenOff, x.accepted, x.refunded, x.writeOffs)
	}
	if c.State != x.state {
		if told := telling(x.state, c.State); told != "" {
			x.events = append(x.events, told)
		}
		x.state = c.State
	}
}

// telling returns what an account must be told of a change of state.
func telling(from, to card.PaymentState) card.EventType {
	told := map[card.PaymentState]card.EventType{card.Underpaid: card.EventUnderpaid, card.Late: card.EventLate, card.Expired: card.EventExpired,
		card.Reversed: card.EventReversed, card.Detected: card.EventDetected, card.Confirming: card.EventDetected, card.Paid: card.EventDetected}
	if told[to] == card.EventDetected && (told[from] == card.EventDetected || from == card.Reversed) {
		return "" // was told before
	}
	return told[to]
}

// checkBooks compares what was added up. waits says how the issuing of each order waits for an operator.
func (o *oracle) checkBooks(b operator.Books, waits []string) {
	var counted, unattributed card.Amount
	for _, f := range o.facts {
		counted += f.amount
		if !slices.ContainsFunc(o.orders, func(x *sale) bool { return x.address == f.address }) {
			unattributed += f.amount
		}
	}
	for _, coin := range b.Coins {
		if coin.Counted != counted || coin.Unattributed != unattributed || coin.Credited()+coin.Surplus+coin.Unattributed != counted {
			o.fail("%d are counted, %d of it unattributed, %d credited, %d surplus; must be %d, %d of it unattributed",
				coin.Counted, coin.Unattributed, coin.Credited(), coin.Surplus, counted, unattributed)
		}
	}
	if len(b.Coins) != 1 && counted > 0 {
		o.fail("there are books of %d coins", len(b.Coins))
	}
	var found, demanded []string
	for _, d := range b.Doubts {
		found = append(found, d.ID.String()+" "+d.Text)
	}
	doubt := func(x *sale, text string) { demanded = append(demanded, x.id.String()+" "+text) }
	for _, x := range o.orders {
		m := o.money(x)
		if x.must()-(m.total-x.refunded) > x.writeOffs {
			doubt(x, "its money left the chain after it was issued or refunded: write it off, or wait for it")
		}
		switch how := waits[x.index]; {
		case x.state != card.Paid:
		case how == "parked":
			doubt(x, "it is paid, but its issuing is parked: retry or refund it")
		case how == "refund_due":
			doubt(x, "it is paid, but the supplier declined it: retry or refund it")
		case !x.generated && x.attempts >= 10:
			doubt(x, "the supplier was asked ten times or more, and it is not issued yet")
		}
	}
	slices.Sort(found)
	slices.Sort(demanded)
	if !slices.Equal(found, demanded) {
		o.fail("the books doubt\n  %s\nand must doubt\n  %s", strings.Join(found, "\n  "), strings.Join(demanded, "\n  "))
	}
}

// checkEnd is what must be true when nothing fails any more and everything is deep in the chain: no card waits, and none that is
// paid for is missing. It looks at the chain itself.
func (o *oracle) checkEnd(x *sale, c *card.Card, w *world) {
	var total, early card.Amount
	for _, tx := range w.txs {
		for i, out := range tx.outputs {
			if tx.height == 0 || out.address != x.address {
				continue
			}
			total += out.amount
			if o.firsts[fmt.Sprint(tx.id, "/", i)].Before(x.expires) {
				early += out.amount
			}
		}
	}
	kept := total - x.refunded
	var demanded card.PaymentState
	switch {
	case c.Status == card.Generated && kept >= x.settled:
		demanded = card.Paid
	case c.Status == card.Generated:
		demanded = card.Reversed
	case kept <= 0:
		demanded = card.Expired
	case early-x.refunded >= x.price || x.accepted > 0 && kept >= x.accepted || x.found > 0 && kept >= x.found:
		demanded = "made"
	default:
		demanded = card.Late // worth less at the rate when it was judged
	}
	if c.State != demanded {
		o.fail("in the end card %d is %s, %s, must be %s: price %d, %d received, %d of it in time, %d refunded",
			x.index, c.Status, c.State, demanded, x.price, total, early, x.refunded)
	}
}
