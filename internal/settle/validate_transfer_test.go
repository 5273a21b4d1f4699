package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// editedChain is a chain whose transfers a test changes.
type editedChain struct {
	settle.Chain
	edit func(t *card.Transfer) // if set
}

func (r *editedChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := r.Chain.Scan(ctx, q)
	for i := range v.Transfers {
		if r.edit != nil {
			r.edit(&v.Transfers[i])
		}
	}
	return v, err
}

func (*editedChain) Recover(context.Context, string, *settle.Address, func(string)) error { return nil }

func TestWatcher_ChangeInKeptBlock_IsRejected(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(t *card.Transfer)
		says string
	}{
		"less":                {func(t *card.Transfer) { t.Amount-- }, "its amount to "},
		"nothing":             {func(t *card.Transfer) { t.Amount = 0 }, "is now 0, not"},
		"more":                {func(t *card.Transfer) { t.Amount *= 2 }, "its amount to "},
		"another address":     {func(t *card.Transfer) { t.Address = "another" }, "it now pays to another"},
		"another block":       {func(t *card.Transfer) { t.Height-- }, "it is now in block "},
		"back in the mempool": {func(t *card.Transfer) { t.Height = 0 }, "it is now in block 0"},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				issued, waiting := s.order(), s.order()
				s.pay(issued, coin, 10)
				s.settle()
				s.pay(waiting, coin-1, 1) // one more would be enough
				wallet := &editedChain{Chain: s.chain}
				w := s.watch(wallet, settle.Config{FillBatch: 200})
				check(t, w.Tick(t.Context()))
				s.mine(20)
				check(t, w.Tick(t.Context()))
				wallet.edit = func(x *card.Transfer) { tt.edit(x) }
				for range 3 { // the second pass is after a rescan
					s.mine(1)
					err := w.Tick(t.Context())
					if !errors.Is(err, card.ErrWalletLost) || !strings.Contains(err.Error(), tt.says) ||
						!strings.Contains(err.Error(), "still in the chain") {
						t.Errorf("error %v", err)
					}
					if err := w.Health(); err == nil {
						t.Error("it is ready")
					}
					s.want(issued, card.Generated, card.Paid, coin, 31)
					s.want(waiting, card.AwaitingPayment, card.Underpaid, coin-1, 21)
				}
				if note := s.pending(); !strings.Contains(note, tt.says) || !strings.Contains(note, "rescan --believe") {
					t.Errorf("an operator reads %q", note)
				}
				s.wantIssued(1)
				wallet.edit = nil
				check(t, w.Tick(t.Context()))
				s.want(issued, card.Generated, card.Paid, coin, 34)
				s.wantNonePending()
			})
		})
	}
}

func TestWatcher_OperatorBelieves_AmountChanges(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		wallet := &editedChain{Chain: s.chain, edit: func(x *card.Transfer) { x.Amount = coin / 2 }}
		w := s.watch(wallet, settle.Config{FillBatch: 200})
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("error %v", err)
		}
		check(t, s.store.AskForRescan(t.Context(), "monero", true))
		check(t, w.Tick(t.Context()))
		s.want(c, card.Generated, card.Reversed, coin/2, 10)
		check(t, w.Tick(t.Context())) // equals the stored transfer now
		wallet.edit = nil
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) { // valid for one rescan
			t.Errorf("error %v", err)
		}
		s.doubts = append(s.doubts, lost)
	})
}

// The mempool shows the full amounts of two outputs with one key. Once a block
// contains the second, its amount is only the difference, if it is larger.
func TestWatcher_MempoolAmount_MayFallButNotGrow(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 0)
		wallet := &editedChain{Chain: s.chain}
		w := s.watch(wallet, settle.Config{FillBatch: 200})
		height := int64(0)
		amount := func(a card.Amount) error {
			wallet.edit = func(x *card.Transfer) { x.Amount, x.Height = a, height }
			return w.Tick(t.Context())
		}
		check(t, amount(coin/2))
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/2, 0)
		for _, more := range []card.Amount{coin/2 + 1, coin} {
			if err := amount(more); !errors.Is(err, card.ErrWalletLost) || !strings.Contains(err.Error(), "of the mempool") {
				t.Errorf("error %v", err)
			}
		}
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/2, 0)
		check(t, amount(coin/4))
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/4, 0)
		cursor, err := s.store.Cursor(t.Context(), wallet.Currency())
		check(t, err)
		height = cursor.Tip.Height + 1 // that block contains it
		s.mine(1)
		if err := amount(coin); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/4, 0)
		check(t, amount(coin/8))
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/8, 1)
		if err := amount(coin/8 - 1); !errors.Is(err, card.ErrWalletLost) ||
			!strings.Contains(err.Error(), fmt.Sprintf("of block %d, which is still", height)) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/8, 1)
		s.wantIssued(0)
	})
}

// A reorganization may reverse the order of two outputs with one key.
func TestWatcher_BlocksReplaced_AmountMayGrow(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		q := s.pebbles()
		w := s.watch(&walletOfNet{derivedChain: derivedChain{q}}, settle.Config{FillBatch: 200})
		check(t, w.Tick(t.Context()))
		c := s.orderPebbles()
		q.pay(c.Address, c.Amount/2)
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Underpaid, c.Amount/2, 1)
		paid := q.paid[0]
		q.replace(1)
		paid.Amount = c.Amount
		q.paid = append(q.paid, paid)
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Paid, c.Amount, 2)
	})
}
