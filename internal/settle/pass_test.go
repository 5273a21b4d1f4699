package settle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// replace replaces the newest n blocks with n+1 empty ones.
func (q *pebbleNet) replace(n int) {
	q.blocks = q.blocks[:len(q.blocks)-n]
	kept := int64(len(q.blocks))
	q.paid = slices.DeleteFunc(q.paid, func(t card.Transfer) bool { return t.Height > kept })
	for range n + 1 {
		q.blocks = append(q.blocks, uuid.NewString())
	}
}

// walletOfNet is the network of pebbles as seen by a wallet that follows
// reorganizations down to a depth.
type walletOfNet struct {
	derivedChain
	follows int64   // follows up to n replaced blocks; 0 for any number
	asked   []int64 // heights of the tips in its last query
}

func (c *walletOfNet) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	c.asked = nil
	for _, k := range q.Known {
		c.asked = append(c.asked, k.Height)
	}
	v, err := c.derivedChain.Scan(ctx, q)
	changed := len(q.Known) == 0 || q.Known[0].Hash != v.Tip.Hash
	if deep := v.Tip.Height - c.follows; err == nil && changed && c.follows > 0 && deep > 0 {
		v.Deep = card.Tip{Height: deep, Hash: c.q.blocks[deep-1], Time: v.Tip.Time}
	}
	return v, err
}

// pebbles opens the store for pebbles, too, and returns their network of 10
// blocks.
func (s *fixture) pebbles() *pebbleNet {
	s.t.Helper()
	s.coins(append(chain.Currencies(), pebble))
	q := &pebbleNet{now: s.clock}
	for range 10 {
		q.mine()
	}
	return q
}

// orderPebbles returns a card to be paid in pebbles. A watcher must have passed
// before.
func (s *fixture) orderPebbles() *card.Card {
	s.t.Helper()
	o, wrong := s.orders.Check(order.Request{USDAmount: "150", Currency: pebble.Code})
	if len(wrong) > 0 {
		s.t.Fatal(wrong)
	}
	c, _, err := s.orders.CreateCard(s.t.Context(), s.account, o, "")
	check(s.t, err)
	return c
}

func TestWatcher_Reorg_OlderMoneyMissing_Fails(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		q := s.pebbles()
		w := s.watch(&walletOfNet{derivedChain: derivedChain{q}}, settle.Config{FillBatch: 200})
		pass := func() {
			t.Helper()
			check(t, w.Tick(t.Context()))
		}
		pass()
		c := s.orderPebbles()
		q.pay(c.Address, c.Amount) // in block 11
		pass()
		q.mine() // block 12 is seen, and so are 13 and 14, which are replaced
		pass()
		q.mine()
		q.mine()
		pass()
		s.want(c, card.AwaitingPayment, card.Paid, c.Amount, 4)

		q.replace(2)
		paid := q.paid
		q.paid = nil // without a reorganization
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Paid, c.Amount, 4)
		q.paid = paid
		pass()
		s.want(c, card.AwaitingPayment, card.Paid, c.Amount, 5)

		q.replace(5) // its block, too
		pass()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}

func TestWatcher_TransferOfOtherProcessMissing_Fails(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		q := s.pebbles()
		first := s.watch(&walletOfNet{derivedChain: derivedChain{q}}, settle.Config{FillBatch: 200})
		other := s.watch(&walletOfNet{derivedChain: derivedChain{q}}, settle.Config{FillBatch: 200})
		check(t, first.Tick(t.Context()))
		check(t, first.Close(t.Context()))
		c := s.orderPebbles()
		q.pay(c.Address, c.Amount)
		q.mine()
		check(t, other.Tick(t.Context()))
		check(t, other.Close(t.Context()))
		q.mine()
		q.paid = nil // the first one's wallet has never seen it
		if err := first.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Paid, c.Amount, 2)
	})
}

// Each known tip may cost a call of the node.
func TestWatcher_Scan_QueriesOnlyRereadBlocks(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		q := s.pebbles()
		wallet := &walletOfNet{derivedChain: derivedChain{q}}
		w := s.watch(wallet, settle.Config{FillBatch: 200, Reread: 4})
		for _, want := range [][]int64{{10}, {11, 10}, {12, 11, 10}, {13, 12, 11, 10}, {14, 13, 12, 11}} {
			// the second pass queries the tips of the first; the third shows
			// that a pass without a new block changes nothing
			for range 3 {
				check(t, w.Tick(t.Context()))
			}
			if diff := cmp.Diff(want, wallet.asked); diff != "" {
				t.Errorf("queried other tips (-want +got):\n%s", diff)
			}
			q.mine()
		}
		q.replace(2) // 14, and 15, which was never seen
		for range 2 {
			check(t, w.Tick(t.Context()))
		}
		if diff := cmp.Diff([]int64{16, 13}, wallet.asked); diff != "" {
			t.Errorf("queried other tips after a reorganization (-want +got):\n%s", diff)
		}
	})
}

func TestWatcher_ReorgTooDeepForWallet_Rescans(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		q := s.pebbles()
		wallet := &walletOfNet{derivedChain: derivedChain{q}, follows: 5}
		pass := func() error { // of a new process
			t.Helper()
			w := s.watch(wallet, settle.Config{FillBatch: 200})
			defer func() { check(t, w.Close(t.Context())) }()
			return w.Tick(t.Context())
		}
		paid := func(c *card.Card) {
			t.Helper()
			q.pay(c.Address, c.Amount)
			check(t, pass())
			s.now = s.now.Add(time.Minute)
			check(t, pass()) // without a new block
			s.want(c, card.AwaitingPayment, card.Confirming, c.Amount, 1)
		}
		check(t, pass())
		c := s.orderPebbles()
		paid(c)
		q.replace(5)
		check(t, pass()) // as deep as the wallet can follow
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)

		paid(c)
		q.replace(6)
		if err := pass(); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Confirming, c.Amount, 1) // the wallet's view is not trusted now
		check(t, pass())                                              // it has rescanned
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		paid(c)
	})
}

func TestWatcher_BlockFromFuture_CountsAsPresent(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		mined := s.now.Add(30 * time.Minute)
		w := s.watch(datedChain{s.chain, mined}, settle.Config{FillBatch: 200})
		for _, tt := range []struct{ now, want time.Time }{
			{s.now, s.now},
			{s.now.Add(time.Minute), s.now.Add(time.Minute)}, // no new block, but the cursor's time advances
			{mined.Add(time.Minute), mined},
		} {
			s.now = tt.now
			check(t, w.Tick(t.Context()))
			cursor, err := s.store.Cursor(t.Context(), s.chain.Currency())
			check(t, err)
			if got := cursor.Tip.Time; got.UnixMilli() != tt.want.UnixMilli() {
				t.Errorf("at %s the newest block is of %s, want %s", tt.now, got, tt.want)
			}
		}
	})
}

// datedChain is a chain whose newest block has a given time.
type datedChain struct {
	settle.Chain
	mined time.Time
}

func (d datedChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := d.Chain.Scan(ctx, q)
	v.Tip.Time = d.mined
	return v, err
}

func TestWatcher_CursorCannotMove_CountsNoMoney(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		w, heard := s.listen(stuckCursor{s.store}, s.chain)
		if err := w.Tick(t.Context()); !errors.Is(err, errFault) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		heard.want(t)
		s.tick()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

// stuckCursor is a database that fails to move its cursors.
type stuckCursor struct{ *store.Store }

func (s stuckCursor) SettleTx(ctx context.Context, f func(settle.Tx) error) error {
	return s.Store.SettleTx(ctx, func(tx settle.Tx) error { return f(stuckCursorTx{tx}) })
}

type stuckCursorTx struct{ settle.Tx }

func (stuckCursorTx) SaveCursor(context.Context, string, settle.Cursor) error { return errFault }

func TestWatcher_WrongWallet_IsRejectedWithoutRescan(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		w := s.watch(slowScan{Chain: otherChain{s.chain}, ahead: func(context.Context) error { return card.ErrWalletLost }},
			settle.Config{FillBatch: 200})
		for range 2 {
			if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWrongChain) || errors.Is(err, card.ErrWalletLost) {
				t.Errorf("error %v", err)
			}
		}
		if reason := s.pending(); reason != "" {
			t.Errorf("a rescan is pending: %s", reason)
		}
	})
}

func TestWatcher_ComparesWalletEvery15Seconds(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		compared := 0
		w := s.watch(slowScan{Chain: s.chain, ahead: func(context.Context) error { compared++; return nil }},
			settle.Config{FillBatch: 200})
		for _, tt := range []struct {
			wait time.Duration
			want int
		}{{0, 1}, {0, 1}, {15*time.Second - 1, 1}, {1, 2}, {14 * time.Second, 2}, {time.Hour, 3}} {
			s.now = s.now.Add(tt.wait)
			check(t, w.Tick(t.Context()))
			if compared != tt.want {
				t.Errorf("compared %d times, want %d", compared, tt.want)
			}
		}
	})
}
