package settle_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// oracle computes the contract's requirements for each card from the observed
// states of the chain. It shares no code with the product.
type oracle struct {
	tip    card.Tip
	facts  []fact // of the last applied view
	firsts map[string]time.Time
	read   map[string]bool // its state when its block was read last, and its lock at that time
	orders []*sale
	rate   int64 // today's, times 10^8; 0 if unknown
	fail   func(format string, args ...any)
}

// sale is a card with its requirements.
type sale struct {
	index                         int
	id                            uuid.UUID
	usd                           card.USD
	price                         card.Amount
	address                       string
	expires                       time.Time // or its cancellation, if earlier
	canceled                      bool
	k                             int64
	accepted, refunded, writeOffs card.Amount // operators' decisions
	decisions                     int
	decided                       bool // since the last check

	state     card.PaymentState // last correct state
	generated bool
	found     card.Amount // the amount that made it paid, which remains sufficient
	settled   card.Amount // the amount the card was issued for
	sealed    []byte
	events    []card.EventType // required events
	refundDue bool             // no supplier makes the card
	due       card.Amount      // the last refund due in an event to the account
	dueAgain  bool             // a pass found a larger refund due, which also reports the detection
	refused   bool             // the supplier's reason for an operator's decision
	attempts  int

	facts string // that judged late money
	worth bool   // the firm money was worth the dollars
	hope  bool   // it was not, but together with the rest it was
	unfit bool   // not even together
	tried int64  // height without a rate to judge it
}

// must returns the amount that has to stay in the chain, less refunds.
func (x *sale) must() card.Amount {
	if x.generated {
		return x.settled
	}
	return 0
}

// checkRefund compares a card like check, and expects an event whenever the
// amount due to the customer changes.
func (o *oracle) checkRefund(x *sale, c *card.Card, refundDue bool) {
	due := card.Amount(0)
	if refundDue && c.State == card.Paid {
		due = o.money(x).total - x.refunded
	}
	told := due > 0 && due != x.due
	x.dueAgain = told && x.refundDue
	o.check(x, c)
	if told {
		x.events = append(x.events, card.EventRefundDue)
	}
	x.refundDue, x.due = refundDue, due
}

// isDue reports whether the supplier must be called.
func (x *sale) isDue() bool { return x.state == card.Paid && !x.generated }

// money is the money for an order. Firm money is fully confirmed and can be
// spent.
type money struct {
	total, early    card.Amount
	firm, firmEarly card.Amount
	unlocked        card.Amount
	facts           string // its dependencies
	parts           []fact
}

func (o *oracle) money(x *sale) money {
	var m money
	var facts []string
	for _, f := range o.facts {
		if f.address != x.address {
			continue
		}
		firm := f.height > 0 && !f.locked && o.tip.Height-f.height+1 >= x.k
		m.total += f.amount
		early := o.first(f).Before(x.expires)
		if early {
			m.early += f.amount
		}
		if firm {
			m.firm += f.amount
		}
		if firm && early {
			m.firmEarly += f.amount
		}
		if !f.locked {
			m.unlocked += f.amount
		}
		m.parts = append(m.parts, f)
		facts = append(facts, fmt.Sprint(f.tx, f.output, f.height, f.locked, firm))
	}
	slices.Sort(facts)
	m.facts = strings.Join(append(facts, fmt.Sprint(x.decisions)), " ")
	return m
}

// newest returns the height of the newest block that has money for a card.
func (o *oracle) newest(x *sale) (height int64) {
	for _, f := range o.money(x).parts {
		height = max(height, f.height)
	}
	return height
}

// first returns when a transfer was first shown.
func (o *oracle) first(f fact) time.Time { return o.firsts[f.key()] }

// apply records a view that the product has just stored.
func (o *oracle) apply(s *observation) {
	switch {
	case s.bad != "":
		o.fail("applied a view although %s", s.bad)
	case s.tip.Height < o.tip.Height:
		o.fail("applied a view of height %d after one of %d", s.tip.Height, o.tip.Height)
	}
	for _, f := range s.forgot {
		if _, shown := o.read[f.key()]; shown {
			o.fail("applied a view although the wallet forgot %s", f.tx)
		}
	}
	for _, f := range s.hidden {
		delete(o.read, f.key())
	}
	o.facts = nil
	for _, f := range s.facts {
		if locked, shown := o.read[f.key()]; !f.unread {
			o.read[f.key()] = f.locked
		} else if shown {
			f.locked = locked
		} else if f.height = 0; !f.listed {
			continue // the wallet had lost its address
		}
		if _, known := o.firsts[f.key()]; !known {
			o.firsts[f.key()] = latest(f.seenAt, o.tip.Time) // regardless of the miner's clock
		}
		o.facts = append(o.facts, f)
	}
	s.tip.Time = latest(s.tip.Time, o.tip.Time)
	o.tip = s.tip
	for _, x := range o.orders {
		o.judge(x)
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// judge records findings that are final.
func (o *oracle) judge(x *sale) {
	o.judgeLate(x)
	m := o.money(x)
	if kept := m.firm - x.refunded; !x.generated && (x.found == 0 || kept < x.found) && o.pays(x, m) {
		x.found = min(kept, o.cost(x, m))
	}
}

// pays reports whether the firm money pays for a card.
func (o *oracle) pays(x *sale, m money) bool {
	return m.firm > x.refunded && (enough(x, m.firm, m.firmEarly) || x.worth && x.tried != o.tip.Height)
}

// cost returns the part of enough money that a card takes.
func (o *oracle) cost(x *sale, m money) card.Amount {
	switch kept := m.firm - x.refunded; {
	case m.firmEarly-x.refunded >= x.price:
		return x.price
	case x.accepted > 0 && kept >= x.accepted:
		return max(x.price, x.accepted)
	}
	return max(x.price, price(x.usd, o.rate)) // late, and judged by today's rate
}

// judgeLate judges late money by today's rate if nothing else decides, and only
// once for the same facts.
func (o *oracle) judgeLate(x *sale) {
	m := o.money(x)
	if x.facts != m.facts {
		x.facts, x.worth, x.hope, x.unfit, x.tried = m.facts, false, false, false, 0
	}
	if x.worth || x.hope || x.unfit || m.firm <= x.refunded || m.early == m.total || enough(x, m.firm, m.firmEarly) {
		return
	}
	if o.rate == 0 {
		x.tried = o.tip.Height
		return
	}
	buys := func(amount card.Amount) bool { return worth(amount-x.refunded, o.rate).Cmp(cents(x.usd)) >= 0 }
	x.worth = m.firmEarly < m.firm && buys(m.firm)
	x.hope = !x.worth && buys(m.total)
	x.unfit = !x.worth && !x.hope
}

// worth returns the exact worth of an amount in cents.
func worth(amount card.Amount, rate int64) *big.Rat {
	product := new(big.Int).Mul(big.NewInt(int64(amount)), big.NewInt(rate))
	return new(big.Rat).SetFrac(product, big.NewInt(1e18)) // 10^12 piconero, 10^8 of the rate, 10^-2 for cents
}

func cents(usd card.USD) *big.Rat { return big.NewRat(int64(usd), 1) }

// price returns the smallest amount worth the dollars.
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

// enough reports whether a total pays the price without the need of a rate.
// early is the part that arrived in time.
func enough(x *sale, total, early card.Amount) bool {
	kept := total - x.refunded
	return early-x.refunded >= x.price || x.accepted > 0 && kept >= x.accepted || x.found > 0 && kept >= x.found
}

// confirmations returns the confirmations of the transfer that a card waits
// for: the fewest among the most confirmed transfers that reach the needed
// amount. Locked transfers do not count if the rest is enough.
func (o *oracle) confirmations(x *sale, m money) int64 {
	need := x.price
	if x.accepted > 0 {
		need = min(need, x.accepted)
	}
	if x.found > 0 {
		need = x.found
	}
	need += x.refunded
	confirmations := func(f fact) int64 {
		if f.height == 0 {
			return 0
		}
		return o.tip.Height - f.height + 1
	}
	fewest, taken := int64(0), card.Amount(0)
	for _, locked := range []bool{false, true} {
		var some []fact
		for _, f := range m.parts {
			if f.locked == locked {
				some = append(some, f)
			}
		}
		slices.SortFunc(some, func(a, b fact) int { return cmp.Compare(confirmations(b), confirmations(a)) })
		for _, f := range some {
			if taken >= need {
				return fewest
			}
			if n := confirmations(f); taken == 0 || n < fewest {
				fewest = n
			}
			taken += f.amount
		}
	}
	return fewest
}

// demands returns the states that a card may be in.
func (o *oracle) demands(x *sale) []card.PaymentState {
	m := o.money(x)
	kept, over := m.total-x.refunded, x.canceled || x.refunded > 0 || !o.tip.Time.Before(x.expires)
	nothing, late := kept <= 0, m.early < m.total
	good := enough(x, m.total, m.early)
	pays := o.pays(x, m)
	// Money of unknown worth waits; with a rate it may wait for the next block.
	unsure := late && (m.firm <= x.refunded || x.hope || !x.worth && !x.unfit || x.tried == o.tip.Height)
	waits := !x.generated && !nothing && !pays && (good || unsure)
	pooled := waits && o.confirmations(x, m) == 0
	var all []card.PaymentState
	for _, rule := range []struct {
		state card.PaymentState
		holds bool
	}{
		{card.Reversed, x.generated && kept < x.settled},
		{card.Paid, x.generated && kept >= x.settled},
		{card.Unpaid, !x.generated && nothing && !over},
		{card.Expired, !x.generated && nothing && over && !x.canceled},
		{card.Canceled, !x.generated && nothing && x.canceled},
		{card.Underpaid, !x.generated && !nothing && !good && !late && !over},
		{card.Late, !x.generated && !nothing && !good && !late && over},
		{card.Detected, waits && pooled},
		{card.Confirming, waits && !pooled},
		{card.Paid, !x.generated && !nothing && pays},
		{card.Late, !x.generated && !nothing && !good && late && m.firm > x.refunded && x.unfit},
	} {
		if rule.holds {
			all = append(all, rule.state)
		}
	}
	return all
}

// check compares a card with its requirements, and records its state.
func (o *oracle) check(x *sale, c *card.Card) {
	m := o.money(x)
	demanded := o.demands(x)
	if !slices.Contains(demanded, c.State) {
		o.fail("card %d is %s, must be %v: price %d, %d received, %d of it in time, %d kept, %d firm, tip %d, %+v",
			x.index, c.State, demanded, x.price, m.total, m.early, m.total-x.refunded, m.firm, o.tip.Height, m.parts)
	}
	if x.tried == o.tip.Height && (c.State == card.Confirming || c.State == card.Detected) {
		x.worth, x.hope, x.unfit = false, false, false // it will be judged with the next block
	}
	if c.Received != m.total {
		o.fail("card %d received %d, must be %d", x.index, c.Received, m.total)
	}
	confirmations := o.confirmations(x, m)
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
		o.fail("card %d is settled by %d with a surplus of %d, must be %d of %d", x.index, c.Settled, c.Credit.Surplus,
			x.settled, m.total-x.refunded)
	}
	if k := c.Credit; k.Paid+k.Held+k.Surplus+k.Refunded != m.total ||
		k.Lost != max(0, x.must()-(m.total-x.refunded), x.refunded-m.total) {
		o.fail("card %d credits %+v of %d, refunded %d, must keep %d", x.index, k, m.total, x.refunded, x.must())
	}
	if c.Accepted != x.accepted || c.Refunded != x.refunded || c.WrittenOff != x.writeOffs {
		o.fail("card %d has %d accepted, %d refunded, %d written off, must be %d, %d, %d", x.index,
			c.Accepted, c.Refunded, c.WrittenOff, x.accepted, x.refunded, x.writeOffs)
	}
	if c.State != x.state {
		again := x.dueAgain || x.decided && slices.Contains(x.events, card.EventDetected) // decisions do not add money
		if event := requiredEvent(x.state, c.State); event != "" && !(event == card.EventDetected && again) {
			x.events = append(x.events, event)
		}
		x.state = c.State
	}
	x.decided = false
}

// requiredEvent returns the event that a change of state requires.
func requiredEvent(from, to card.PaymentState) card.EventType {
	told := map[card.PaymentState]card.EventType{card.Underpaid: card.EventUnderpaid, card.Late: card.EventLate,
		card.Expired: card.EventExpired, card.Canceled: card.EventCanceled,
		card.Reversed: card.EventReversed, card.Detected: card.EventDetected, card.Confirming: card.EventDetected,
		card.Paid: card.EventDetected}
	switch {
	case from == card.Reversed && to == card.Paid:
		return card.EventRestored
	case told[to] == card.EventDetected && told[from] == card.EventDetected:
		return "" // reported before
	}
	return told[to]
}

// checkBooks compares the totals. waits has the reason why each order waits for
// an operator.
func (o *oracle) checkBooks(b operator.Books, waits []string) {
	var counted, unattributed card.Amount
	for _, f := range o.facts {
		counted += f.amount
		if !slices.ContainsFunc(o.orders, func(x *sale) bool { return x.address == f.address }) {
			unattributed += f.amount
		}
	}
	for _, coin := range b.Coins {
		all := card.TotalOf(counted)
		if !coin.Counted.Equal(all) || !coin.Unattributed.Equal(card.TotalOf(unattributed)) ||
			!coin.Credited().Add(coin.Surplus, coin.Unattributed).Equal(all) {
			o.fail("%s are counted, %s of it unattributed, %s credited, %s surplus; must be %d, %d of it unattributed",
				coin.Counted, coin.Unattributed, coin.Credited(), coin.Surplus, counted, unattributed)
		}
	}
	if len(b.Coins) != 1 && counted > 0 {
		o.fail("there are books of %d coins", len(b.Coins))
	}
	var found, demanded []string
	if len(b.Discrepancies) > 0 {
		o.fail("the books doubt %+v", b.Discrepancies)
	}
	for _, w := range b.Waiting {
		if w.Kind != operator.WaitingUnattributed && w.Kind != operator.WaitingLate {
			found = append(found, fmt.Sprintf("%s %s", w.CardUUID, w.Kind))
		}
	}
	wait := func(x *sale, kind operator.WaitingKind) {
		demanded = append(demanded, fmt.Sprintf("%s %s", x.id, kind))
	}
	for _, x := range o.orders {
		m := o.money(x)
		if x.must()-(m.total-x.refunded) > x.writeOffs {
			wait(x, operator.WaitingReversed)
		}
		switch how := waits[x.index]; {
		case x.state != card.Paid:
		case how == "parked":
			wait(x, operator.WaitingParked)
		case how == "refund_due":
			wait(x, operator.WaitingRefundDue)
		case !x.generated && x.attempts >= 10:
			wait(x, operator.WaitingUnissued)
		}
	}
	slices.Sort(found)
	slices.Sort(demanded)
	if !slices.Equal(found, demanded) {
		o.fail("there waits\n  %s\nand must wait\n  %s", strings.Join(found, "\n  "), strings.Join(demanded, "\n  "))
	}
}

// checkEnd checks the state without faults and with everything deep in the
// chain: no card waits, and no paid card is missing. It reads the chain itself.
func (o *oracle) checkEnd(x *sale, c *card.Card, w *world) {
	var total, firm, early card.Amount
	for _, tx := range w.txs {
		for i, out := range tx.outputs {
			if tx.height == 0 || out.address != x.address {
				continue
			}
			total += out.amount
			if tx.unlock == never {
				continue
			}
			firm += out.amount
			if o.first(fact{tx: tx.id, output: int64(i)}).Before(x.expires) {
				early += out.amount
			}
		}
	}
	kept, m := total-x.refunded, o.money(x)
	var demanded card.PaymentState
	switch {
	case c.Status == card.Generated && kept >= x.settled:
		demanded = card.Paid
	case c.Status == card.Generated:
		demanded = card.Reversed
	case kept <= 0 && x.canceled:
		demanded = card.Canceled
	case kept <= 0:
		demanded = card.Expired
	case enough(x, firm, early):
		demanded = "made"
	// forever, because of locked transfers
	case firm <= x.refunded && m.early < m.total, enough(x, m.total, m.early), x.hope:
		demanded = card.Confirming
	default:
		demanded = card.Late // worth less at the rate when it was judged
	}
	if c.State != demanded {
		o.fail("in the end card %d is %s, %s, must be %s: price %d, %d received, %d of it in time, %d refunded",
			x.index, c.Status, c.State, demanded, x.price, total, early, x.refunded)
	}
}
