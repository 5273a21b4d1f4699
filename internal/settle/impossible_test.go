package settle_test

import (
	"errors"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

func TestWatcher_MoreCoinsThanExist_ChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		q := s.pebbles()
		w := s.watch(&walletOfNet{derivedChain: derivedChain{q}}, settle.Config{FillBatch: 200, Reread: 5})
		check(t, w.Tick(t.Context()))
		c, other := s.orderPebbles(), s.orderPebbles()
		most := pebble.MaxAmount()
		refused := func() {
			t.Helper()
			if err := w.Tick(t.Context()); !errors.Is(err, card.ErrImpossible) {
				t.Errorf("error %v", err)
			}
			if err := w.Health(); !errors.As(err, new(card.Unready)) {
				t.Errorf("health is %v", err)
			}
		}
		q.pay(c.Address, most)
		q.pay(c.Address, most)
		q.pay(c.Address, most)
		q.pay(other.Address, other.Amount)
		refused()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.want(other, card.AwaitingPayment, card.Unpaid, 0, 0)

		q.paid = q.paid[2:]
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Paid, most, 2)
		s.want(other, card.AwaitingPayment, card.Confirming, other.Amount, 1)

		for range 20 { // older blocks are not reread
			q.mine()
		}
		check(t, w.Tick(t.Context()))
		q.pay(c.Address, 1)
		q.paid[len(q.paid)-1].TxID = "one more"
		refused()
		s.want(c, card.AwaitingPayment, card.Paid, most, 22)
		q.paid = q.paid[:len(q.paid)-1]
		check(t, w.Tick(t.Context()))
	})
}
