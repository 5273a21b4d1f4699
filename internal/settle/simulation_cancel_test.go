package settle_test

import (
	"errors"

	"github.com/cardmint/cardmint/internal/card"
)

// cancel cancels an order for the client, sometimes between the read and the
// commit of a pass.
func (h *history) cancel() {
	x := h.anyOrder()
	if x == nil {
		return
	}
	if h.idle == 0 && h.w.chance(30) {
		h.active.meanwhile = func() { h.cancelNow(x) }
		_ = h.tick(h.active)
		return
	}
	h.cancelNow(x)
}

// cancelNow cancels an order, and checks that it may be canceled.
func (h *history) cancelNow(x *sale) {
	m := h.o.money(x)
	ended := m.total == 0 && x.refunded == 0 && (x.state == card.Canceled || x.state == card.Expired)
	may := ended || m.total == 0 && x.refunded == 0 && x.state == card.Unpaid
	c, err := h.active.orderService(int(x.k)).CancelCard(h.ctx, h.account, x.id)
	h.note("the client cancels card %d%s", x.index, h.failed(err))
	switch {
	case (err == nil) != may || err != nil && !errors.Is(err, card.ErrHasPayments):
		h.fail("card %d, which is %s and received %d, was canceled: %t, %v", x.index, x.state, m.total, err == nil, err)
		return
	case err != nil:
		return
	case ended && c.State != x.state:
		h.fail("card %d, which is %s, is %s after it was canceled", x.index, x.state, c.State)
	case !ended:
		h.count("client cancels")
		x.canceled = true
		if h.w.now.Before(x.expires) {
			x.expires = h.w.now
		}
	}
	h.observe()
}
