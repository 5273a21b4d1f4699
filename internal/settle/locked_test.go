package settle_test

import (
	"context"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// lockedChain is a chain with transfers whose senders lock them.
type lockedChain struct {
	settle.Chain
	transfers []card.Transfer
	deep      int64 // how many blocks were read last
}

func (l *lockedChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := l.Chain.Scan(ctx, q)
	l.deep = v.Tip.Height - v.Since
	for _, t := range l.transfers {
		if v.Covers(t.Height) {
			v.Transfers = append(v.Transfers, t)
		}
	}
	return v, err
}

func TestWatcher_LockedForever_NotRereadForever(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(1000)
		c := s.order()
		lock := func(id, address string, height int64) card.Transfer {
			return card.Transfer{Currency: "monero", TxID: id, Address: address, Amount: coin, Height: height, Locked: true,
				FirstSeenAt: s.now}
		}
		chain := &lockedChain{Chain: s.chain, transfers: []card.Transfer{lock("ever", "of no card", 500)}}
		w := s.sibling(s.store, chain, 0)
		pass := func(mine int, deep int64) {
			t.Helper()
			s.mine(mine)
			check(t, w.Tick(t.Context()))
			if chain.deep != deep {
				t.Errorf("read %d blocks, want %d", chain.deep, deep)
			}
		}
		check(t, w.Tick(t.Context()))
		pass(0, 502)     // from below it
		pass(4000, 4502) // it may still be unlocked
		pass(2000, 6502) // the tip that was applied is still near
		pass(0, 120)     // no longer waited for
		pass(2000, 2120) // new blocks are read as always
		chain.transfers = append(chain.transfers, lock("a while", c.Address, 8900))
		pass(0, 120)
		pass(3000, 3120)
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 3102)
		chain.transfers[1].Locked = false
		pass(0, 3102) // reread until unlocked, although another transfer is locked forever
		s.want(c, card.AwaitingPayment, card.Paid, coin, 3102)
		pass(0, 120)
	})
}
