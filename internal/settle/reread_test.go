package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// recordingChain records the reads of a chain, hides a transaction, and adds
// transfers.
type recordingChain struct {
	settle.Chain
	asked  settle.Query // last
	last   settle.View
	blocks int64 // newest blocks read last
	shown  int   // transfers in the last view
	hidden string
	added  []card.Transfer // always shown
	listed []card.Transfer // always in the mempool
}

func (c *recordingChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := c.Chain.Scan(ctx, q)
	kept := v.Transfers[:0]
	for _, t := range v.Transfers {
		if t.TxID != c.hidden {
			kept = append(kept, t)
		}
	}
	for _, t := range c.added {
		if v.Covers(t.Height) {
			kept = append(kept, t)
		}
	}
	v.Transfers = append(kept, c.listed...)
	c.asked, c.last, c.blocks, c.shown = q, v, v.Tip.Height-v.Since, len(v.Transfers)
	return v, err
}

// again returns the number of older blocks reread.
func (c *recordingChain) again() (n int64) {
	for _, b := range c.last.Again {
		n += b.Last - b.First + 1
	}
	return n
}

// forget hides the transaction that paid for a card.
func (c *recordingChain) forget(s *fixture, x *card.Card) {
	s.t.Helper()
	record, err := s.store.CardDetail(s.t.Context(), x.UUID)
	check(s.t, err)
	c.hidden = record.Transfers[0].TxID
}

// slicesInRound is the number of slices that reread all blocks applied in a
// test, while no blocks are mined.
const slicesInRound = 12

// sliceEvery is the time between two slices.
const sliceEvery = 5 * time.Second

// until makes up to most passes until one fails, and returns their number and the
// error.
func (s *fixture) until(w *settle.Watcher, most int) (int, error) {
	for n := range most {
		s.now = s.now.Add(sliceEvery)
		if err := w.Tick(s.t.Context()); err != nil {
			return n + 1, err
		}
	}
	return most, nil
}

// locked returns a transfer at a height that its sender locked.
func (s *fixture) locked(c *card.Card, amount card.Amount, height int64) card.Transfer {
	return card.Transfer{Currency: "monero", TxID: fmt.Sprint("locked ", height), Address: c.Address, Amount: amount,
		Height: height, Locked: true, FirstSeenAt: s.now}
}

func TestWatcher_Pass_ReadsNewBlocksAndRereadsSlices(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		paid, pooled := s.order(), s.order()
		chain := &recordingChain{Chain: s.chain}
		w := s.watch(chain, settle.Config{CompareEvery: sliceEvery})
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
		check(t, w.Tick(t.Context())) // a new process rereads all
		s.want(paid, card.AwaitingPayment, card.Paid, coin, 203)
		s.want(pooled, card.AwaitingPayment, card.Detected, coin, 0)
		pass(0, 1) // the mempool
		s.mine(4)
		pass(4, 1)
		s.pay(pooled, 0, 2)
		pass(2, 1)
		s.want(pooled, card.AwaitingPayment, card.Confirming, coin, 2)
		pass(0, 0)

		chain.forget(s, pooled)
		pass(0, 0)
		s.now = s.now.Add(sliceEvery)
		pass(0, 0)
		if n := chain.again(); n != 10 {
			t.Errorf("compared %d blocks, want a twelfth of 120", n)
		}
		if _, err := s.until(w, slicesInRound); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("the wallet forgot a payment: %v", err)
		}
		s.want(pooled, card.AwaitingPayment, card.Confirming, coin, 2)
	})
}

func TestWatcher_BlockReplaced_RereadInNextPass(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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

func TestWatcher_LockEnds_RereadFindsIt(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.mine(20)
		chain := &lockedChain{Chain: s.chain,
			transfers: []card.Transfer{{Currency: "monero", TxID: "x", Address: c.Address, Amount: coin, Height: 5,
				Locked: true, FirstSeenAt: s.now}}}
		w := s.watch(chain, settle.Config{CompareEvery: sliceEvery})
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 17)
		s.mine(300)
		chain.transfers[0].Locked = false
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 317)
		s.now = s.now.Add(sliceEvery)
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Paid, coin, 317)
	})
}

// While blocks are mined and passes fail, a round rereads every applied block
// once, and no slice exceeds its share.
func TestWatcher_Round_RereadsEveryBlock(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(300)
		chain := &recordingChain{Chain: s.chain}
		var fails error
		flaky := &failingChain{Chain: chain, err: &fails}
		w := s.watch(flaky, settle.Config{CompareEvery: sliceEvery})
		check(t, w.Tick(t.Context()))
		const height = 301
		at := map[int64]int{} // slices since the last reread, by block
		for n := range 5 * slicesInRound {
			s.now = s.now.Add(sliceEvery)
			fails = nil
			if n%7 == 3 {
				fails = card.ErrChainNotReady
				if err := w.Tick(t.Context()); !errors.Is(err, fails) {
					t.Fatal(err)
				}
				fails = nil
			}
			if n%6 == 5 {
				s.mine(1)
			}
			check(t, w.Tick(t.Context()))
			v, read := chain.last, int64(0)
			for h := v.Tip.Height - 119; h <= height; h++ {
				if !v.Covers(h) {
					continue
				}
				read++
				if old := at[h]; n-old > slicesInRound+3 {
					t.Errorf("block %d was compared after %d slices, and again after %d", h, old, n)
				}
				at[h] = n
			}
			if read > 11 {
				t.Errorf("slice %d has %d blocks", n, read)
			}
		}
		for h := int64(height - 100); h <= height; h++ {
			if 5*slicesInRound-at[h] > slicesInRound+3 {
				t.Errorf("block %d was compared after %d slices of %d", h, at[h], 5*slicesInRound)
			}
		}
	})
}

// failingChain is a chain whose scans fail at times.
type failingChain struct {
	settle.Chain
	err *error
}

func (f *failingChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := f.Chain.Scan(ctx, q)
	return v, errors.Join(err, *f.err)
}

// The next pass rereads a slice that was read but not applied.
func TestWatcher_SliceNotApplied_RereadAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(300)
		chain := &recordingChain{Chain: s.chain}
		var fails error
		w := s.watch(&failingChain{chain, &fails}, settle.Config{CompareEvery: sliceEvery})
		check(t, w.Tick(t.Context()))
		fails, s.now = card.ErrChainNotReady, s.now.Add(sliceEvery)
		if err := w.Tick(t.Context()); !errors.Is(err, fails) {
			t.Fatal(err)
		}
		first := chain.last.Again
		fails = nil
		check(t, w.Tick(t.Context()))
		if diff := cmp.Diff(first, chain.last.Again); diff != "" || len(first) != 1 {
			t.Errorf("read %v, then another slice: %s", first, diff)
		}
	})
}

// The wallet shows a payment in a newer block, although its first block is
// still in the chain: a pass that reads only the newer one must notice.
func TestWatcher_BlockNotRead_PaymentStays(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.mine(20)
		chain := &recordingChain{Chain: s.chain}
		w := s.watch(chain, settle.Config{CompareEvery: time.Hour})
		moves := card.Transfer{Currency: "monero", TxID: "moves", Output: 1, Address: c.Address, Amount: coin, Height: 15,
			FirstSeenAt: s.now}
		chain.added = []card.Transfer{moves}
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 7)
		s.mine(1)
		moves.Height = 22
		chain.added = []card.Transfer{moves}
		for range 2 { // the second pass follows a rescan without success
			if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) ||
				!strings.Contains(err.Error(), "it is now in block 22") {
				t.Errorf("error %v", err)
			}
			s.want(c, card.AwaitingPayment, card.Confirming, coin, 7)
		}
		moves.Height, moves.Output = 22, 2 // another output of the transaction may be in that block
		first := moves
		first.Height, first.Output = 15, 1
		chain.added = []card.Transfer{first}
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 8)
	})
}

func TestWatcher_OtherOutputOfTransaction_IsNew(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		one, other := s.order(), s.order()
		s.mine(20)
		chain := &recordingChain{Chain: s.chain}
		w := s.watch(chain, settle.Config{CompareEvery: time.Hour})
		x := card.Transfer{Currency: "monero", TxID: "two outputs", Output: 1, Address: one.Address, Amount: coin,
			Height: 15, FirstSeenAt: s.now}
		chain.added = []card.Transfer{x}
		check(t, w.Tick(t.Context()))
		s.mine(1)
		x.Output, x.Address, x.Height = 2, other.Address, 0
		chain.listed = []card.Transfer{x}
		check(t, w.Tick(t.Context()))
		s.want(one, card.AwaitingPayment, card.Confirming, coin, 8)
		s.want(other, card.AwaitingPayment, card.Detected, coin, 0)
	})
}

func TestWatcher_MempoolStillListsMined_StaysConfirmed(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		check(t, s.watcher.Close(t.Context()))
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		chain := &recordingChain{Chain: s.chain}
		w := s.watch(chain, settle.Config{CompareEvery: sliceEvery})
		check(t, w.Tick(t.Context()))
		stale := record.Transfers[0]
		stale.Height, stale.Amount, stale.Counted = 0, coin+1, false // of two outputs with one key, it shows both in full
		chain.listed = []card.Transfer{stale}
		for range 3 {
			check(t, w.Tick(t.Context()))
			s.mine(1)
		}
		check(t, w.Tick(t.Context()))
		s.want(c, card.Generated, card.Paid, coin, 13)

		chain.listed[0].Address = "another"
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) ||
			!strings.Contains(err.Error(), "it now pays to another") {
			t.Errorf("error %v", err)
		}
		chain.listed = nil
		check(t, w.Tick(t.Context())) // after a rescan
		// A wallet that shows it only in the mempool has lost its block, which
		// rereading the block detects.
		stale.Address, stale.Amount = c.Address, coin
		chain.hidden, chain.listed = stale.TxID, []card.Transfer{stale}
		n, err := s.until(w, slicesInRound)
		if !errors.Is(err, card.ErrWalletLost) || !strings.Contains(err.Error(), "it is now in block 0") {
			t.Errorf("after %d slices: error %v", n, err)
		}
		s.want(c, card.Generated, card.Paid, coin, 13)
	})
}

// A wallet that forgot a transfer is noticed within a round, in any block.
func TestWatcher_WalletForgets_NoticedWithinRound(t *testing.T) {
	for _, depth := range []int{1, 2, 60, 115} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				s.mine(200)
				c := s.order()
				s.pay(c, coin-1, 1)
				s.mine(depth - 1)
				chain := &recordingChain{Chain: s.chain}
				w := s.watch(chain, settle.Config{CompareEvery: sliceEvery})
				check(t, w.Tick(t.Context()))
				if n, err := s.until(w, 2*slicesInRound); err != nil {
					t.Fatalf("slice %d: %v", n, err)
				}
				chain.forget(s, c)
				if n, err := s.until(w, slicesInRound+1); !errors.Is(err, card.ErrWalletLost) {
					t.Errorf("not within %d slices: %v", n, err)
				}
				s.want(c, card.AwaitingPayment, card.Underpaid, coin-1, int64(depth))
				chain.hidden = "" // a rescan helps
				check(t, w.Tick(t.Context()))
				if chain.last.Since != 0 {
					t.Errorf("after a rescan it read above %d", chain.last.Since)
				}
				s.wantNonePending()
			})
		})
	}
}

func TestWatcher_OlderBlocksWithLocks_RereadInTurn(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(100)
		chain := &recordingChain{Chain: s.chain}
		var cards []*card.Card
		for i := range int64(25) {
			c := s.order()
			cards = append(cards, c)
			chain.added = append(chain.added, s.locked(c, coin, 10+2*i))
		}
		beside := s.locked(cards[0], 1, 11) // in the next block
		chain.added = append(chain.added, beside)
		w := s.watch(chain, settle.Config{CompareEvery: sliceEvery})
		check(t, w.Tick(t.Context()))
		s.mine(300)
		check(t, w.Tick(t.Context()))
		read := map[int64]int{}
		for range 6 {
			s.now = s.now.Add(sliceEvery)
			check(t, w.Tick(t.Context()))
			older := 0
			for h := int64(1); h <= 401-120; h++ {
				if chain.last.Covers(h) {
					older++
					read[h]++
				}
			}
			for i, b := range chain.asked.Again[1:] {
				if before := chain.asked.Again[i]; b.First == before.Last+1 {
					t.Errorf("blocks %d to %d are queried as two ranges", before.First, b.Last)
				}
			}
			if older > 10 {
				t.Errorf("%d older blocks with one slice", older)
			}
		}
		for h := int64(1); h <= 401-120; h++ {
			want := 0
			if h == 11 || h >= 10 && h <= 58 && h%2 == 0 {
				want = 2
			}
			if read[h] != want {
				t.Errorf("block %d was read %d times in two rounds, want %d", h, read[h], want)
			}
		}
		for i := range chain.added {
			chain.added[i].Locked = false
		}
		for range 4 { // the finished card no longer takes a turn
			s.now = s.now.Add(sliceEvery)
			check(t, w.Tick(t.Context()))
		}
		for i, c := range cards {
			received := coin
			if i == 0 {
				received++
			}
			s.want(c, card.AwaitingPayment, card.Paid, received, 401-(10+2*int64(i))+1)
		}
		s.now = s.now.Add(sliceEvery)
		if check(t, w.Tick(t.Context())); chain.again() != 10 {
			t.Errorf("%d blocks were compared, although nothing is locked", chain.again())
		}
	})
}

// A replica that takes over rereads everything at first. If it watched before,
// it continues in slices of the blocks applied by now.
func TestWatcher_OtherReplica_ContinuesRereading(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(200)
		c := s.order()
		s.pay(c, coin, 1)
		chain := &recordingChain{Chain: s.chain}
		one := s.watch(chain, settle.Config{CompareEvery: sliceEvery, Replica: "one"})
		check(t, one.Tick(t.Context()))
		if n, err := s.until(one, 5); err != nil {
			t.Fatalf("slice %d: %v", n, err)
		}
		check(t, one.Close(t.Context()))

		chain.forget(s, c)
		s.name = "two"
		two := s.watch(chain, settle.Config{CompareEvery: sliceEvery})
		if err := two.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("the first pass of another process: %v", err)
		}
		chain.hidden = ""
		check(t, two.Tick(t.Context()))
		s.mine(500) // the window moves on, beyond the blocks that the first one reread
		later := s.order()
		s.pay(later, coin, 3)
		check(t, two.Tick(t.Context()))
		check(t, two.Close(t.Context()))

		check(t, one.Tick(t.Context())) // its tip is not the applied one
		if chain.last.Since != chain.last.Tip.Height {
			t.Errorf("it read above %d of %d", chain.last.Since, chain.last.Tip.Height)
		}
		chain.forget(s, later)
		if n, err := s.until(one, slicesInRound+1); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("not within %d slices: %v", n, err)
		}
		s.want(later, card.AwaitingPayment, card.Confirming, coin, 3)
	})
}

// A reorganization within a slice, or below it, is read from its first block.
func TestQuery_View(t *testing.T) {
	tips := []card.Tip{{Height: 100, Hash: "a"}, {Height: 90, Hash: "b"}}
	again := []settle.Blocks{{First: 3, Last: 3}, {First: 50, Last: 60}}
	for name, tt := range map[string]struct {
		q    settle.Query
		kept int64
		want settle.View
	}{
		"nothing is known": {settle.Query{Since: 7}, 0, settle.View{Since: 7}},
		"nothing has changed": {settle.Query{Known: tips, Since: 100, Again: again}, 100,
			settle.View{Since: 100, Kept: 100, Again: again}},
		"blocks were replaced": {settle.Query{Known: tips, Since: 100, Again: again}, 90,
			settle.View{Since: 90, Kept: 90, Again: again}},
		"no known block is there": {settle.Query{Known: tips, Since: 100, Again: again}, 0, settle.View{}},
		"everything":              {settle.Query{Known: tips}, 100, settle.View{Kept: 100}},
		"a slice up to the newest": {
			settle.Query{Known: tips, Since: 100, Again: []settle.Blocks{{First: 3, Last: 3}, {First: 91, Last: 100}}}, 100,
			settle.View{Since: 90, Kept: 100, Again: again[:1]}},
		"replaced within the slice": {settle.Query{Known: tips, Since: 100, Again: again}, 55,
			settle.View{Since: 49, Kept: 55, Again: again[:1]}},
		"replaced at once above it": {settle.Query{Known: tips, Since: 100, Again: again}, 60,
			settle.View{Since: 49, Kept: 60, Again: again[:1]}},
		"replaced at its beginning": {settle.Query{Known: tips, Since: 100, Again: again}, 49,
			settle.View{Since: 49, Kept: 49, Again: again[:1]}},
		"replaced below everything": {settle.Query{Known: tips, Since: 100, Again: again}, 2,
			settle.View{Since: 2, Kept: 2}},
		"no blocks in a slice": {
			settle.Query{Known: tips, Since: 100, Again: []settle.Blocks{{First: 101, Last: 100}}}, 100,
			settle.View{Since: 100, Kept: 100}},
		"stretches follow each other": {
			settle.Query{Known: tips, Since: 100, Again: []settle.Blocks{{First: 80, Last: 90}, {First: 91, Last: 100}}}, 100,
			settle.View{Since: 79, Kept: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.q.View(tt.kept)); diff != "" {
				t.Error(diff)
			}
		})
	}
	v := settle.Query{Known: tips, Since: 100, Again: again}.View(100)
	for height, want := range map[int64]bool{0: true, 2: false, 3: true, 4: false, 49: false, 50: true, 60: true,
		61: false, 100: false, 101: true} {
		if v.Covers(height) != want {
			t.Errorf("covers %d: %t", height, !want)
		}
	}
}
