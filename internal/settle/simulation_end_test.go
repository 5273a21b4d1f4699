package settle_test

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// end stops every fault, lets everything confirm, and lets the processes
// finish.
func (h *history) end() {
	h.step++
	h.idle, h.w.dust = 0, 0
	h.node.down, h.node.foreign, h.node.behind = false, false, 0
	h.expireLease()
	if h.o.rate == 0 {
		h.o.rate = 120e8
	}
	h.repair()
	deep := h.w.top
	for _, tx := range h.w.txs {
		if tx.unlock != never {
			deep = max(deep, tx.unlock)
		}
	}
	for _, until := range []int64{0, deep + 13, 0} { // 13 confirmations are more than any card needs
		h.w.mineSome(1, 100)
		h.w.mineSome(int(max(0, until-h.w.height())), 100)
		if h.tick(h.active) != nil { // noticed only now: the chain was too short before
			h.repair()
		}
	}
	h.compareAll()
	for range 2 {
		h.issueAll()
		for _, x := range h.o.orders {
			if h.waits(x) != "" && x.state == card.Paid {
				h.resolve(x, operator.Retry)
			}
		}
	}
	h.reconcile()
	h.checkEnd()
}

// repair ticks until each usurped, forgotten or lost item is noticed.
func (h *history) repair() {
	h.w.now = h.w.now.Add(25 * time.Hour) // the wallet may be repaired, and every quote has expired
	for range 4 {
		if err := h.tick(h.active); err == nil && h.holder == h.active {
			return
		}
	}
}

// compareAll makes the watcher reread everything: each transfer that a wallet
// forgot, and each lock that ended, must be noticed by then.
func (h *history) compareAll() {
	for n := 0; h.compare >= 0 && n < slicesInAll; n++ { // otherwise every pass does
		h.w.now = h.w.now.Add(5 * time.Second)
		h.tick(h.active)
	}
	for _, tx := range h.w.txs {
		_, shown := h.o.read[fact{tx: tx.id}.key()]
		if tx.forgotten && shown && tx.height > h.w.height()-reread {
			h.fail("nobody noticed that the wallet forgot %s of block %d", tx.id, tx.height)
		}
	}
}

func (h *history) issueAll() {
	for range 10 {
		pl, _ := h.newPlan()
		n, err := h.active.issuer.IssueDue(context.WithValue(h.ctx, planKey{}, pl))
		h.need("issue", err)
		h.note("issues %d in the end", n)
		h.observe()
		if n == 0 {
			return
		}
	}
	h.fail("the supplier is asked again and again")
}

func (h *history) checkEnd() {
	numbers := map[string]int{}
	for _, x := range h.o.orders {
		c, err := h.active.orders.GetCard(h.ctx, h.account, x.id)
		if err != nil {
			h.fail("get card: %v", err)
			return
		}
		h.o.checkEnd(x, c, h.w)
		if c.Credentials != nil {
			number := c.Credentials.CardNumber.Reveal()
			if number != h.press.made(x) {
				h.fail("card %d is %s, which is not what the supplier made for it", x.index, number)
			}
			if other, taken := numbers[number]; taken {
				h.fail("cards %d and %d are the same", other, x.index)
			}
			numbers[number] = x.index
		}
		if x.decisions == 0 {
			continue
		}
		record, err := h.db.store.CardDetail(h.ctx, x.id)
		if h.need("record", err); len(record.Resolutions) != x.decisions {
			h.fail("%d decisions on card %d are kept, must be %d", len(record.Resolutions), x.index, x.decisions)
		}
	}
	h.checkEvents()
}

// checkEvents compares the events with the changes of state: one for each.
func (h *history) checkEvents() {
	rows, err := h.db.events.QueryContext(h.ctx)
	if err != nil {
		h.fail("read events: %v", err)
		return
	}
	defer func() { _ = rows.Close() }()
	told := make([][]card.EventType, len(h.o.orders))
	for rows.Next() {
		var id uuid.UUID
		var kind card.EventType
		h.need("read event", rows.Scan(&id, &kind))
		if x := h.order(id); x != nil {
			told[x.index] = append(told[x.index], kind)
		}
	}
	h.need("read events", rows.Err())
	for _, x := range h.o.orders {
		h.count("cards")
		h.count("card at the end " + string(x.state))
		for _, kind := range x.events {
			h.count("event " + string(kind))
		}
		if !slices.Equal(told[x.index], x.events) {
			h.fail("the account was told %v of card %d, must be %v", told[x.index], x.index, x.events)
		}
	}
}
