package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// damagedWallet is a wallet that may have lost its payments, and counts its
// rescans.
type damagedWallet struct {
	settle.Chain
	lost    bool
	lacks   error // the missing address; nil if none is
	rescans int
	rescan  func(progress func(string)) error // nil: no effect
}

func (a *damagedWallet) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	if a.lost {
		return emptyWallet{a.Chain}.Scan(ctx, q)
	}
	return a.Chain.Scan(ctx, q)
}

func (a *damagedWallet) Holds(ctx context.Context, newest settle.Address) error {
	if a.lacks != nil {
		return a.lacks
	}
	return a.Chain.Holds(ctx, newest)
}

func (a *damagedWallet) Recover(_ context.Context, _ string, _ *settle.Address, progress func(string)) error {
	a.rescans++
	if a.rescan == nil {
		return nil
	}
	return a.rescan(progress)
}

func (a *damagedWallet) wantRescans(t *testing.T, n int) {
	t.Helper()
	if a.rescans != n {
		t.Errorf("the wallet rescanned its chain %d times, want %d", a.rescans, n)
	}
}

// pending returns the reason for the pending rescan, or its progress.
func (s *fixture) pending() string {
	s.t.Helper()
	cursor, err := s.store.Cursor(s.t.Context(), chain.Currencies()[0])
	check(s.t, err)
	return cursor.Rescan
}

func (s *fixture) requestRescan() {
	s.t.Helper()
	check(s.t, s.store.AskForRescan(s.t.Context(), "monero", false))
}

func TestWatcher_RescanRequested_RunsOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		wallet := &damagedWallet{Chain: s.chain}
		w := s.watch(wallet, settle.Config{FillBatch: 200})
		check(t, w.Tick(t.Context()))
		wallet.wantRescans(t, 0)
		s.requestRescan()
		s.pay(c, coin, 10) // the pass after the rescan finds new blocks, too
		for range 3 {
			check(t, w.Tick(t.Context()))
			wallet.wantRescans(t, 1)
			s.wantNonePending()
		}
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

// onLost runs f on each database, for an issued card whose payment the wallet
// has lost since. loses makes a pass that fails with card.ErrWalletLost, and
// compares the number of rescans after it.
func onLost(t *testing.T,
	f func(s *fixture, c *card.Card, wallet *damagedWallet, w *settle.Watcher, loses func(rescans int))) {
	t.Helper()
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		wallet := &damagedWallet{Chain: s.chain, lost: true}
		w := s.watch(wallet, settle.Config{FillBatch: 200})
		f(s, c, wallet, w, func(rescans int) {
			t.Helper()
			if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
				t.Errorf("error %v", err)
			}
			wallet.wantRescans(t, rescans)
		})
	})
}

func (s *fixture) wantInVain() {
	s.t.Helper()
	if note := s.pending(); !strings.HasPrefix(note, "a rescan did not help: ") {
		s.t.Errorf("rescan state %q", note)
	}
}

func (s *fixture) wantNonePending() {
	s.t.Helper()
	if reason := s.pending(); reason != "" {
		s.t.Errorf("a rescan is pending: %s", reason)
	}
}

func TestWatcher_RescanWithoutSuccess_RepeatsAfterHour(t *testing.T) {
	onLost(t, func(s *fixture, c *card.Card, wallet *damagedWallet, w *settle.Watcher, loses func(int)) {
		t := s.t
		loses(0) // this pass requests the rescan
		loses(1)
		s.wantInVain()
		s.now = s.now.Add(time.Hour - time.Millisecond)
		loses(1)
		s.now = s.now.Add(time.Millisecond)
		loses(2)
		s.want(c, card.Generated, card.Paid, coin, 10)

		wallet.lost = false
		check(t, w.Tick(t.Context())) // the wallet shows everything again without another rescan
		wallet.wantRescans(t, 2)
		check(t, w.Tick(t.Context()))
		wallet.lost = true
		loses(2)
		loses(3) // after a rescan that helped, the next need not wait
	})
}

func TestWatcher_OperatorRequestsRescan_DoesNotWait(t *testing.T) {
	onLost(t, func(s *fixture, c *card.Card, wallet *damagedWallet, w *settle.Watcher, loses func(int)) {
		t := s.t
		loses(0)
		loses(1)
		s.requestRescan() // an operator has recreated the wallet, with too late a height
		loses(2)
		loses(2)
		s.wantInVain()
		wallet.rescan = func(func(string)) error { // recreated again, it shows everything after its rescan
			wallet.lost = false
			return nil
		}
		s.requestRescan()
		check(t, w.Tick(t.Context()))
		wallet.wantRescans(t, 3)
		s.wantNonePending()
		s.want(c, card.Generated, card.Paid, coin, 10)
	})
}

// A wallet can lose everything between a rescan and the pass over its view.
func TestWatcher_WalletLosesAddressesAgain_RescansImmediately(t *testing.T) {
	onLost(t, func(s *fixture, c *card.Card, wallet *damagedWallet, w *settle.Watcher, loses func(int)) {
		t := s.t
		wallet.lacks = fmt.Errorf("%w: it has no address 7", card.ErrWalletLost)
		for rescans := range 4 {
			loses(rescans)
		}
		wallet.rescan = func(func(string)) error {
			wallet.lacks, wallet.lost = nil, false
			return nil
		}
		check(t, w.Tick(t.Context()))
		s.want(c, card.Generated, card.Paid, coin, 10)
	})
}

func TestWatcher_Rescan_IsLoggedAndReported(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		wallet := &damagedWallet{Chain: s.chain}
		w, heard := s.listen(s.store, wallet)
		wallet.rescan = func(progress func(string)) error {
			progress("block 7 of 9")
			if err := w.Health(); !errors.Is(err, card.ErrWalletLost) || !strings.HasSuffix(err.Error(), ": block 7 of 9") {
				t.Errorf("health during the rescan: %v", err)
			}
			if note := s.pending(); note != "block 7 of 9" {
				t.Errorf("rescan state during the rescan: %q", note)
			}
			s.now = s.now.Add(90 * time.Second)
			return nil
		}
		s.requestRescan()
		check(t, w.Tick(t.Context()))
		check(t, w.Health())
		heard.want(t,
			`level=WARN msg="wallet rescan started" currency=monero reason="an operator asked for it"`,
			`level=INFO msg="wallet rescan in progress" currency=monero progress="block 7 of 9"`,
			`level=INFO msg="wallet rescan finished" currency=monero took=1m30s`)
	})
}

func TestWatcher_RescanFails_RetriesInNextPass(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		wallet := &damagedWallet{Chain: s.chain, rescan: func(func(string)) error { return errFault }}
		w := s.watch(wallet, settle.Config{FillBatch: 200})
		s.requestRescan()
		for i := range 2 {
			if err := w.Tick(t.Context()); !errors.Is(err, errFault) {
				t.Errorf("error %v", err)
			}
			wallet.wantRescans(t, i+1)
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0) // the wallet's view is not applied
		wallet.rescan = nil
		check(t, w.Tick(t.Context()))
		wallet.wantRescans(t, 3)
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

func TestWatcher_RescanProgressNotRecorded_Continues(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		wallet := &damagedWallet{Chain: s.chain, rescan: func(progress func(string)) error {
			progress("block 7 of 9")
			return nil
		}}
		w, heard := s.listen(silentStore{s.store}, wallet)
		s.requestRescan()
		check(t, w.Tick(t.Context()))
		heard.want(t,
			`level=WARN msg="wallet rescan started" currency=monero reason="an operator asked for it"`,
			`level=WARN msg="rescan progress not recorded" error="connection reset by peer"`,
			`level=INFO msg="wallet rescan in progress" currency=monero progress="block 7 of 9"`,
			`level=WARN msg="rescan progress not recorded" error="connection reset by peer"`,
			`level=INFO msg="wallet rescan finished" currency=monero took=0s`)
		s.wantNonePending()
	})
}

// silentStore is a database that records no progress and releases no lease.
type silentStore struct{ *store.Store }

func (silentStore) NoteRescan(context.Context, string, string) error { return errFault }

func (silentStore) ReleaseLease(context.Context, settle.Lease) error { return errFault }
