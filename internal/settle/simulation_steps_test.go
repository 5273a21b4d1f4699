package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// step is a possible action.
type step struct {
	weight int
	do     func()
}

func (h *history) steps() []step {
	return []step{
		{9, h.create}, {22, h.pay}, {8, h.topUp}, {20, h.mine}, {9, h.reorganize}, {5, h.doubleSpend}, {4, h.relayAgain},
		{9, h.passTime},
		{6, h.moveRate}, {3, h.stopWatching}, {4, h.breakNode}, {2, h.breakWallet}, {5, h.rob}, {3, h.restart},
		{4, h.takeOver}, {3, h.breakDisk}, {7, h.operate}, {6, h.grieve}, {4, h.cancel},
	}
}

const mostOrders = 8

// create orders a card.
func (h *history) create() {
	if len(h.o.orders) == mostOrders {
		return
	}
	usd := card.USD(h.w.between(50_00, 750_00))
	k := h.confirmations[h.w.r.IntN(len(h.confirmations))]
	c, err := create(h.ctx, h.active.orderService(k), h.account, usd.String())
	if errors.Is(err, card.ErrNoAddress) || errors.Is(err, card.ErrNoRate) {
		h.note("no card of %s dollars: %v", usd, err)
		return
	}
	if err != nil {
		h.fail("create card: %v", err)
		return
	}
	x := &sale{index: len(h.o.orders), id: c.UUID, usd: usd, price: price(usd, h.o.rate), address: c.Address,
		expires: h.w.now.Add(h.quoteTTL),
		k:       int64(k), state: card.Unpaid}
	if c.Amount != x.price || !c.ExpiresAt.Equal(x.expires) || c.State != card.Unpaid || c.Status != card.AwaitingPayment {
		h.fail("the new card costs %d until %s and is %s, must be %d until %s", c.Amount, c.ExpiresAt, c.State, x.price,
			x.expires)
	}
	if !slices.Contains(h.w.wallet, c.Address) ||
		slices.ContainsFunc(h.o.orders, func(other *sale) bool { return other.address == c.Address }) {
		h.fail("the new card's address %s is another's", c.Address)
	}
	if slices.ContainsFunc(h.o.facts, func(f fact) bool { return f.address == c.Address }) {
		h.fail("the new card's address %s has received money before", c.Address)
	}
	h.o.orders = append(h.o.orders, x)
	h.byID[c.UUID] = x
	h.note("card %d: %s dollars for %d to %s until %s, %d confirmations", x.index, usd, x.price, x.address,
		x.expires.Format("15:04:05"), k)
	h.observe()
}

// anyOrder returns an order, preferably a new one; nil if there is none.
func (h *history) anyOrder() *sale {
	n := len(h.o.orders)
	if n == 0 {
		return nil
	}
	return h.o.orders[max(h.w.r.IntN(n), h.w.r.IntN(n))]
}

// amount returns a plausible payment for an order.
func (h *history) amount(x *sale) card.Amount {
	switch h.w.r.IntN(10) {
	case 0:
		return x.price - 1
	case 1:
		return x.price/2 + 1
	case 2:
		return x.price + 1
	case 3:
		return x.price * 2
	case 4:
		return card.Amount(h.w.between(1, 1000))
	case 5:
		return x.price * 3 / 4
	}
	return x.price
}

// pay makes a transaction, and relays or mines it.
func (h *history) pay() {
	x := h.anyOrder()
	if x == nil {
		return
	}
	outputs := []output{{x.address, h.amount(x)}}
	switch h.w.r.IntN(14) {
	case 0:
		other := h.anyOrder()
		outputs = append(outputs, output{other.address, h.amount(other)})
	case 1:
		outputs[0].address = h.w.wallet[len(h.w.wallet)-1] // most likely free
	case 2:
		outputs[0].address = primary
	case 3:
		outputs[0].address = stranger
	case 4:
		outputs = append(outputs, output{x.address, 1}, output{stranger, 5})
	}
	h.send(outputs)
}

// topUp pays the missing amount.
func (h *history) topUp() {
	x := h.anyOrder()
	if x == nil {
		return
	}
	if due := x.price - h.o.money(x).total + x.refunded; due > 0 {
		h.send([]output{{x.address, due}})
	}
}

func (h *history) send(outputs []output) {
	tx := h.w.newTransaction(outputs...)
	if h.w.chance(12) {
		tx.unlock = h.w.height() + int64(h.w.between(1, 60))
	}
	how := "relayed"
	switch {
	case h.w.chance(60):
		h.w.relay(tx)
	case h.w.chance(80):
		how = "mined"
		h.w.mine([]*transaction{tx})
	default:
		how = "kept back"
	}
	h.note("%s pays %v, unlocks at %d: %s", tx.id, tx.outputs, tx.unlock, how)
}

// never is the height of a lock that lasts forever.
const never = 1 << 40

// grieve sends almost nothing to an order, in ways that must not delay it:
// locked forever, or in each of the next blocks.
func (h *history) grieve() {
	x := h.anyOrder()
	if x == nil {
		return
	}
	if h.w.chance(50) {
		tx := h.w.newTransaction(output{x.address, 1})
		tx.unlock = never
		if h.w.chance(50) {
			h.w.relay(tx)
		} else {
			h.w.mine([]*transaction{tx})
		}
		h.note("%s is one unit for card %d, locked for ever", tx.id, x.index)
		return
	}
	h.w.dustTo, h.w.dust = x.address, h.w.between(5, 40)
	h.note("each of %d blocks has one unit for card %d", h.w.dust, x.index)
}

func (h *history) mine() {
	n := h.w.between(1, 4)
	if h.w.chance(25) {
		n = h.w.between(5, 15)
	}
	h.w.mineSome(n, []int{100, 100, 60, 0}[h.w.r.IntN(4)])
	h.note("mines %d", n)
}

// reorganize replaces blocks, mostly few.
func (h *history) reorganize() {
	h.replace(h.w.between(1, []int{3, 12, 25}[h.w.r.IntN(3)]), 45)
}

// rob replaces the blocks needed to undo a payment, mostly of an issued card,
// and mostly permanently.
func (h *history) rob() {
	var made, all []int64
	for _, f := range h.o.facts {
		if f.height <= h.w.top-deepest {
			continue
		}
		all = append(all, f.height)
		if slices.ContainsFunc(h.o.orders, func(x *sale) bool { return x.generated && x.address == f.address }) {
			made = append(made, f.height)
		}
	}
	if len(made) > 0 && h.w.chance(80) {
		all = made
	}
	if len(all) > 0 {
		h.replace(int(h.w.height()-all[h.w.r.IntN(len(all))]+1), 80)
	}
}

// replace replaces blocks. Their transactions return to the mempool or, in lost
// percent of all cases, vanish or are double spent.
func (h *history) replace(depth, lost int) {
	depth = min(depth, int(deepest-(h.w.top-h.w.height())))
	if depth < 1 {
		return
	}
	var relayed, gone, replaced []string
	for _, tx := range h.w.drop(depth) {
		switch {
		case !h.w.chance(lost):
			h.w.relay(tx)
			relayed = append(relayed, tx.id)
		case h.w.chance(55):
			gone = append(gone, tx.id)
		default:
			other := h.w.conflict(tx)
			if h.w.chance(50) {
				h.w.relay(other)
			} else {
				h.w.mine([]*transaction{other})
			}
			replaced = append(replaced, fmt.Sprintf("%s by %s %v", tx.id, other.id, other.outputs))
		}
	}
	longer := h.w.between(0, 3)
	if h.w.chance(15) { // the longer chain does not exist yet
		longer = -h.w.between(1, depth)
	}
	for goal := h.w.top + int64(longer); h.w.height() < goal; {
		h.w.mineSome(1, []int{100, 50, 0}[h.w.r.IntN(3)])
	}
	h.note("reorganizes %d: relayed %v, gone %v, replaced %v", depth, relayed, gone, replaced)
}

// anyTransaction returns a transaction that fits; nil if none does.
func (h *history) anyTransaction(fits func(*transaction) bool) *transaction {
	var some []*transaction
	for _, tx := range h.w.txs {
		if fits(tx) {
			some = append(some, tx)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[h.w.r.IntN(len(some))]
}

// doubleSpend removes a transaction from the mempool by a conflicting one, or
// because the node forgets it.
func (h *history) doubleSpend() {
	tx := h.anyTransaction(func(tx *transaction) bool { return tx.pooled })
	if tx == nil {
		return
	}
	if h.w.chance(40) {
		tx.pooled = false
		h.note("%s is evicted", tx.id)
		return
	}
	other := h.w.conflict(tx)
	if h.w.chance(50) {
		h.w.relay(other)
	} else {
		h.w.mine([]*transaction{other})
	}
	h.note("%s is replaced by %s %v at %d", tx.id, other.id, other.outputs, other.height)
}

// relayAgain brings a vanished transaction back.
func (h *history) relayAgain() {
	tx := h.anyTransaction(func(tx *transaction) bool { return !tx.pooled && tx.height == 0 && h.w.rival(tx) == nil })
	if tx == nil {
		return
	}
	if h.w.chance(70) {
		h.w.relay(tx)
	} else {
		h.w.mine([]*transaction{tx})
	}
	h.note("%s comes back at %d", tx.id, tx.height)
}

func (h *history) passTime() {
	d := time.Duration(h.w.between(1, 40)) * time.Minute
	if h.w.chance(20) {
		d = time.Duration(h.w.between(1, 5)) * time.Hour
	}
	h.w.now = h.w.now.Add(d)
	if h.w.chance(60) {
		h.w.mineSome(1, 100)
	}
	h.note("%s pass", d)
}

func (h *history) moveRate() {
	switch {
	case h.o.rate == 0:
		h.o.rate = int64(h.w.between(50, 400)) * 1e8
	case h.w.chance(25):
		h.o.rate = 0
	default:
		h.o.rate = h.o.rate / 100 * int64(h.w.between(60, 160))
	}
	h.note("the rate is %s", card.Decimal{Units: h.o.rate, Scale: card.RateScale})
}

func (h *history) stopWatching() {
	h.idle = h.w.between(3, 12)
	h.note("nobody watches for %d steps", h.idle)
}

func (h *history) breakNode() {
	h.node.down, h.node.foreign, h.node.behind = false, false, 0
	switch h.w.r.IntN(3) {
	case 0:
		h.node.down = true
	case 1:
		h.node.foreign = true
	case 2:
		h.node.behind = int64(h.w.between(1, 6))
	}
	h.node.until = h.step + h.w.between(1, 5)
	h.note("the node is %+v", h.node)
}

// breakWallet makes the wallet forget stored transactions, or addresses.
func (h *history) breakWallet() {
	if h.w.chance(40) {
		h.w.known = h.w.r.IntN(len(h.w.wallet) + 1)
		h.note("the wallet knows %d of %d addresses", h.w.known, len(h.w.wallet))
		return
	}
	tx := h.anyTransaction(func(tx *transaction) bool { return tx.height > 0 && tx.height <= h.o.tip.Height })
	if tx != nil {
		tx.forgotten = true
		h.note("the wallet forgets %s", tx.id)
	}
}

// restart ends the active process. If it crashes, its lease stays for a while.
func (h *history) restart() {
	old := h.active
	if h.w.chance(50) {
		h.need("close", old.watcher.Close(h.ctx))
	} else if h.w.chance(70) {
		h.expireLease()
	}
	h.active = h.start()
	h.note("%s starts in the place of %s", h.active.name, old.name)
}

// takeOver lets the other replica watch: after a release, after an expired
// lease, or between a read and its commit.
func (h *history) takeOver() {
	old := h.active
	switch h.w.r.IntN(3) {
	case 0:
		h.need("close", old.watcher.Close(h.ctx))
		h.note("%s hands over to %s", old.name, h.spare.name)
	case 1:
		h.expireLease()
		h.note("%s takes over from %s", h.spare.name, old.name)
	case 2:
		if h.idle > 0 {
			return
		}
		h.note("%s takes over from %s while that reads", h.spare.name, old.name)
		old.meanwhile = func() {
			h.expireLease()
			h.w.mineSome(1, 100)
			_ = h.tick(h.spare)
		}
		_ = h.tick(old)
	}
	h.active, h.spare = h.spare, old
	if h.idle == 0 {
		h.tick(h.active)
	}
}

// breakDisk makes the store fail in the next pass.
func (h *history) breakDisk() {
	if h.idle > 0 {
		return
	}
	h.active.disk.before = h.w.chance(50)
	h.active.disk.after = !h.active.disk.before
	h.note("the disk fails, before %t", h.active.disk.before)
	_ = h.tick(h.active)
}

// whileIssuing returns an action during the supplier's work on a card.
func (h *history) whileIssuing(r *replica, x *sale) func() {
	return func() {
		if h.w.chance(40) { // another replica does the same
			h.w.frozen = true
			defer func() { h.w.frozen = false }()
			pl, _ := h.newPlan()
			n, err := h.spare.issuer.IssueDue(context.WithValue(h.ctx, planKey{}, pl))
			h.need("issue meanwhile", err)
			h.note("%s issues %d while %s does", h.spare.name, n, r.name)
			h.observe()
			return
		}
		h.leaves(x)
	}
}

// leaves removes the newest payment of an order from the chain, so that the
// next pass notices.
func (h *history) leaves(x *sale) {
	h.w.frozen = true
	defer func() { h.w.frozen = false }()
	h.replace(int(h.w.height()-h.o.newest(x)+1), 80)
	h.w.mineSome(h.w.between(0, 3), 50)
	_ = h.tick(h.active)
}

// operate makes a decision of an operator, mostly on a card that needs it.
func (h *history) operate() {
	var some []*sale
	for _, x := range h.o.orders {
		if x.state == card.Late || x.state == card.Reversed || x.refused && !x.generated || h.o.money(x).total > x.price {
			some = append(some, x)
		}
	}
	x := h.anyOrder()
	if len(some) > 0 && h.w.chance(85) {
		x = some[h.w.r.IntN(len(some))]
	}
	if x == nil {
		return
	}
	kind := []operator.ResolutionKind{operator.Accept, operator.Refund, operator.WriteOff, operator.Retry}[h.w.r.IntN(4)]
	switch {
	case x.state == card.Reversed && h.w.chance(70):
		kind = operator.WriteOff
	case x.refused && !x.generated && h.w.chance(70):
		kind = operator.Retry
	case x.state == card.Late && h.w.chance(70):
		kind = []operator.ResolutionKind{operator.Accept, operator.Refund}[h.w.r.IntN(2)]
	}
	h.resolve(x, kind)
}

// resolve makes an operator's decision, and checks that it is permitted and has
// the right amount.
func (h *history) resolve(x *sale, kind operator.ResolutionKind) {
	m, parked := h.o.money(x), h.waits(x) != ""
	kept, firm, unlocked := m.total-x.refunded, m.firm-x.refunded, m.unlocked-x.refunded
	may, amount := false, card.Amount(0)
	switch kind {
	case operator.Accept:
		may, amount = !x.generated && unlocked > 0 && x.state != card.Paid && (x.accepted == 0 || unlocked < x.accepted),
			min(unlocked, x.price)
	case operator.Refund:
		may, amount = firm > 0 && (parked || x.state != card.Paid && x.attempts == 0), firm
		if x.generated {
			may, amount = firm > x.settled, firm-x.settled
		}
	case operator.WriteOff:
		amount = x.must() - x.writeOffs - kept
		may = amount > 0
	case operator.Retry:
		may = parked && x.state == card.Paid
	}
	done, err := h.active.desk.ResolveCard(h.ctx,
		operator.Decision{CardUUID: x.id, Kind: kind, Note: "because", Operator: "olga"})
	h.note("operator: %s of card %d, %d%s", kind, x.index, done.Resolution.Amount, h.failed(err))
	if did := err == nil && !done.Unchanged; did != may || did && done.Resolution.Amount != amount &&
		kind != operator.Retry {
		h.fail("%s of card %d, which is %s and keeps %d: %t of %d (%v), must be %t of %d", kind, x.index, x.state, kept, did,
			done.Resolution.Amount, err, may, amount)
		return
	} else if did {
		x.decisions++
		x.decided = true
		h.count("operator " + string(kind))
		switch kind {
		case operator.Accept:
			x.accepted = amount
		case operator.Refund:
			if x.refunded += amount; !x.generated {
				x.accepted, x.found = 0, 0
			}
		case operator.WriteOff:
			x.writeOffs += amount
		case operator.Retry:
			x.refused = false
		}
		h.o.judge(x)
	}
	h.observe()
}
