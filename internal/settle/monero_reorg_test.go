package settle_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

func TestWatcher_MoneroReorgOfAnyDepth_BeforeIssue(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		var cards []*card.Card // each paid in its own block
		var heights []int64
		for range 12 {
			c := s.order()
			s.paid(c, coin, 1)
			cards = append(cards, c)
			heights = append(heights, s.net.Height(t))
		}
		s.tick() // the oldest three are paid now, but the supplier is not called before the reorganization
		s.want(cards[0], card.AwaitingPayment, card.Paid, coin, s.confirmations(cards[0]))
		s.want(cards[11], card.AwaitingPayment, card.Confirming, coin, 1)
		top := s.net.Height(t)
		for i := len(cards) - 1; i >= 0; i-- {
			depth := int(top - heights[i] + 1)
			s.net.Reorg(t, depth, depth, true) // the height is the same: only the hashes differ
			s.tick()
			s.want(cards[i], card.AwaitingPayment, card.Unpaid, 0, 0)
			for j, c := range cards[:i] {
				if got := s.confirmations(c); got != top-heights[j]+1 {
					t.Errorf("depth %d: %d confirmations of the payment at depth %d", depth, got, top-heights[j]+1)
				}
			}
		}
		s.mine(2)
		s.settle()
		s.wantIssued(0)
		s.wantMoney(ledger{})
		s.wantEvents(cards[0], card.EventDetected)
	})
}

func TestWatcher_MoneroMinedAgainLower_PaysOnce(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		// made now, so that its decoys are old enough for the lower height
		tx := s.net.Conflict(t, c.Address, s.net.Address)[0]
		amount := card.Amount(tx.Amount)
		start := s.net.Height(t)
		s.mine(4)
		check(t, s.net.Send(t, tx))
		s.net.Confirm(t, tx.TxID, 1)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, amount, 1)
		high := s.net.Height(t)
		depth := int(high - start)
		s.net.Reorg(t, depth, depth+1, false)
		s.settle()
		got := s.want(c, card.AwaitingPayment, card.Confirming, amount, s.confirmations(c))
		if got.Height >= high || got.Height <= start {
			t.Errorf("mined at %d, before at %d", got.Height, high)
		}
		s.net.Confirm(t, tx.TxID, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, amount, 10)
		s.wantIssued(1)
		s.wantEvents(c, card.EventDetected, card.EventGenerated)
		s.wantMoney(ledger{Counted: amount, Made: coin, Surplus: amount - coin, Paid: 1, Issued: 1})
	})
}

func TestWatcher_MoneroReorgOf18Blocks_AfterIssue(t *testing.T) {
	t.Parallel()
	onMoneroPostgres(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.paid(c, coin, 18)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 18)
		s.net.Reorg(t, 18, 19, true)
		s.settle()
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.wantEvents(c, card.EventDetected, card.EventGenerated, card.EventReversed)
		s.wantMoney(ledger{Lost: coin, Paid: 1, Issued: 1})
		s.doubts = []string{lost}
		s.reconcile()
		s.later += 10 * time.Second // the account's debt is cached for a while
		_, err := create(t.Context(), s.orders, s.account, "150")
		if !errors.Is(err, card.ErrAccountFrozen) {
			t.Errorf("a new card of the account: %v", err)
		}

		if done := s.resolve(c, operator.WriteOff); done.Resolution.Amount != coin {
			t.Errorf("%+v", done)
		}
		s.doubts = nil
		s.later += 10 * time.Second
		next := s.wantAddress()
		s.paid(next, coin, 10)
		s.settle()
		s.want(next, card.Generated, card.Paid, coin, 10)
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.wantIssued(2)
		s.wantMoney(ledger{Counted: coin, Made: coin, Lost: coin, WrittenOff: coin, Paid: 2, Issued: 2})
	}, func(s *moneroFixture) { s.policy.FreezeReversed = true })
}

func TestWatcher_MoneroBlocksDropped_ConfirmNothing(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.paid(c, coin, 8)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 8)
		before := s.facts(c)
		s.mine(2)
		s.net.Wallet.Refresh(t) // 10 confirmations, as the wallet still shows
		s.net.Pop(t, 3)
		s.refuses(card.ErrChainNotReady)
		s.unchanged(before)
		s.mine(1) // the wallet follows, but the height is unchanged
		s.settle()
		s.unchanged(before)
		s.mine(1)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 9)
		s.wantIssued(0)
		s.mine(1)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_MoneroReorg_SlicesFindForgottenTransfers(t *testing.T) {
	hidden := "" // a transaction that the wallet forgets
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		txID := s.paid(c, coin, 3)
		s.tick()
		slice := func() error {
			s.later += sliceEvery
			return s.watcher.Tick(t.Context())
		}
		for range slicesInRound + 1 {
			check(t, slice())
			s.want(c, card.AwaitingPayment, card.Confirming, coin, 3)
		}
		s.net.Reorg(t, 2, 3, false)
		check(t, slice())
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 4)
		before := s.facts(c)
		hidden = txID
		var err error
		for n := 0; n <= slicesInRound && err == nil; n++ {
			err = slice()
		}
		if !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("the wallet forgot a payment: %v", err)
		}
		s.unchanged(before)
		hidden = ""
		s.recovers()
		s.net.Reorg(t, 4, 5, true)
		check(t, slice())
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.wantMoney(ledger{})
	}, func(s *moneroFixture) {
		s.compare = sliceEvery
		s.wallet.Target(edited(t, s.net.WalletURL, func(method string, result map[string]any) {
			if in, some := result["in"].([]any); some && method == "get_transfers" {
				result["in"] = slices.DeleteFunc(in, func(e any) bool { return e.(map[string]any)["txid"] == hidden })
			}
		}))
	})
}

func TestWatcher_MoneroChainShorter_ChangesNothing(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		kept, gone := s.order(), s.order()
		s.paid(kept, coin, 4)
		s.paid(gone, coin, 4)
		s.settle()
		before := s.facts(kept, gone)
		s.net.Reorg(t, 6, 3, true) // node and wallet agree on it
		s.refuses(card.ErrChainNotReady)
		s.unchanged(before)
		s.mine(4)
		s.settle()
		s.want(gone, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.want(kept, card.AwaitingPayment, card.Confirming, coin, s.confirmations(kept))
		s.net.Confirm(t, before[0].Transfers[0].TxID, 10)
		s.settle()
		s.want(kept, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
		s.wantMoney(ledger{Counted: coin, Made: coin, Paid: 1, Issued: 1})
	})
}

func TestWatcher_MoneroReorgOf101Blocks_RescansWallet(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) { tooDeep(t, s, 102) })
}

func TestWatcher_MoneroReorgOf101Blocks_SameHeight_IsNoticed(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) { tooDeep(t, s, 101) })
}

// tooDeep replaces more blocks than the wallet follows. The wallet stays on the
// old chain, which some versions report as a success.
func tooDeep(t *testing.T, s *moneroFixture, blocks int) {
	t.Cleanup(func() { s.net.Payer.Rescan(t) }) // the payer's wallet cannot follow either
	made, open := s.order(), s.order()
	s.paid(made, coin, 10)
	s.settle()
	s.want(made, card.Generated, card.Paid, coin, 10)
	s.paid(open, coin, 3)
	s.settle()
	before := s.facts(made, open)

	s.net.Reorg(t, 101, blocks, true)
	s.refuses(card.ErrWalletLost)
	s.unchanged(before)
	s.wantIssued(1)
	s.recovers()
	s.want(made, card.Generated, card.Reversed, 0, 0)
	s.want(open, card.AwaitingPayment, card.Unpaid, 0, 0)
	s.wantIssued(1)
	s.wantEvents(made, card.EventDetected, card.EventGenerated, card.EventReversed)
	s.wantMoney(ledger{Lost: coin, Paid: 1, Issued: 1})
	s.doubts = []string{lost}
}
