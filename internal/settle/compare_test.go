package settle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// watched records from where a chain was read, and hides a transaction.
type watched struct {
	settle.Chain
	blocks int64 // how many the last view was read from
	shown  int   // how many transfers it had
	hidden string
}

func (c *watched) Scan(ctx context.Context, known []card.Tip, since, newest int64) (settle.View, error) {
	v, err := c.Chain.Scan(ctx, known, since, newest)
	kept := v.Transfers[:0]
	for _, t := range v.Transfers {
		if t.TxID != c.hidden {
			kept = append(kept, t)
		}
	}
	v.Transfers, c.blocks, c.shown = kept, v.Tip.Height-v.Since, len(kept)
	return v, err
}

func TestWatcher_APassReadsOnlyWhatIsNewAndComparesTheRestNowAndThen(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		paid, pooled := s.order(), s.order()
		chain := &watched{Chain: s.chain}
		w := s.watch(chain, settle.Config{CompareEvery: time.Minute})
		pass := func(wantBlocks int64, wantTransfers int) {
			t.Helper()
			check(t, w.Tick(t.Context()))
			if chain.blocks != wantBlocks || chain.shown != wantTransfers {
				t.Errorf("read %d blocks and %d transfers, want %d and %d", chain.blocks, chain.shown, wantBlocks, wantTransfers)
			}
		}
		s.pay(paid, coin, 3)
		s.pay(pooled, coin, 0)
		s.mine(200)
		check(t, w.Tick(t.Context())) // a new process compares
		s.want(paid, card.AwaitingPayment, card.Paid, coin, 203)
		s.want(pooled, card.AwaitingPayment, card.Detected, coin, 0)
		pass(0, 1) // the mempool
		s.mine(4)
		pass(4, 1)
		s.pay(pooled, 0, 2)
		pass(2, 1)
		s.want(pooled, card.AwaitingPayment, card.Confirming, coin, 2)
		pass(0, 0)

		record, err := s.store.Record(t.Context(), pooled.UUID)
		check(t, err)
		chain.hidden = record.Transfers[0].TxID // the wallet forgets it
		pass(0, 0)
		s.now = s.now.Add(time.Minute)
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("it forgot a payment: %v", err)
		}
		s.want(pooled, card.AwaitingPayment, card.Confirming, coin, 2)
	})
}

func TestWatcher_AReplacedBlockIsReadAgainAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		w := s.watch(s.chain, settle.Config{CompareEvery: time.Hour})
		s.mine(10)
		s.pay(c, coin, 3)
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 3)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 3, true))
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}

func TestWatcher_TheEndOfALockIsFoundByComparing(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.mine(20)
		chain := &locking{Chain: s.chain, transfers: []card.Transfer{{Currency: "monero", TxID: "x", Address: c.Address, Amount: coin, Height: 5,
			Locked: true, FirstSeenAt: s.now}}}
		w := s.watch(chain, settle.Config{CompareEvery: time.Minute})
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 17)
		s.mine(300)
		chain.transfers[0].Locked = false
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 317)
		s.now = s.now.Add(time.Minute)
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Paid, coin, 317)
	})
}
