package settle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Two databases with one wallet detect each other within two passes. Neither
// sells or issues until an operator decides.
func TestWatcher_TwoDatabasesWithOneWallet_Stop(t *testing.T) {
	t.Parallel()
	one := newDeployment(t)
	sold := map[string]bool{}
	one.sell(5, sold)
	copied := one.backup()
	older(t, copied, time.Second)
	two := openDeployment(t, copied, one.wallet, one.account)
	two.pass()
	whys := []string{"the wallet carries epoch ", "another database uses the wallet, and has seen that this one does"}
	for i, b := range []*deployment{one, two, one, two} {
		err := b.watcher.Tick(t.Context())
		if !errors.Is(err, card.ErrWalletShared) || b.watcher.Health() == nil || !strings.Contains(err.Error(), whys[i%2]) {
			t.Errorf("error %v, want %q; health %v", err, whys[i%2], b.watcher.Health())
		}
	}
	for _, b := range []*deployment{one, two} {
		if got, err := b.store.TakeAddresses(t.Context(), "monero", 1); err != nil || len(got) != 0 {
			t.Errorf("took %v, error %v", got, err)
		}
		if state, err := b.store.PoolState(t.Context(), "monero"); err != nil || !state.Conflict {
			t.Errorf("%+v, error %v", state, err)
		}
	}
	third := openDeployment(t, copied, one.wallet, one.account) // a restart does not resolve the conflict
	check(t, two.watcher.Close(t.Context()))
	if err := third.watcher.Tick(t.Context()); !errors.Is(err, card.ErrWalletShared) {
		t.Errorf("error %v", err)
	}
	check(t, third.store.ClaimWallet(t.Context(), "monero"))
	third.sell(2*branchPool, sold)
	for range 2 {
		if err := one.watcher.Tick(t.Context()); !errors.Is(err, card.ErrWalletShared) {
			t.Errorf("the other database continues: %v", err)
		}
		check(t, third.watcher.Tick(t.Context()))
	}
	if n := third.resets(); n != 2 { // since the copy, and since the claim
		t.Errorf("%d resets", n)
	}
}

// A wallet with its own database's epoch gets no conflict flag, which the next
// database that opens it would see.
func TestWatcher_WalletWithOwnEpoch_GetsNoConflict(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.pass()
	check(t, b.store.NoteConflict(t.Context(), "monero", "as told by a pass before"))
	before := b.wallet.beacon
	if err := b.watcher.Tick(t.Context()); !errors.Is(err, card.ErrWalletShared) {
		t.Errorf("error %v", err)
	}
	if b.wallet.beacon != before || before.Epoch == 0 {
		t.Errorf("beacon was %+v, now %+v", before, b.wallet.beacon)
	}
}

// An undecided conflict is reported in every pass, even while node or wallet
// fail.
func TestWatcher_ChainUnreadable_StillReportsConflict(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.pass()
	b.wallet.ill = card.ErrChainNotReady
	if err := b.watcher.Tick(t.Context()); !errors.Is(err, card.ErrChainNotReady) || errors.Is(err, card.ErrWalletShared) {
		t.Errorf("without a conflict: %v", err)
	}
	check(t, b.store.NoteConflict(t.Context(), "monero", "as told by a pass before"))
	err := b.watcher.Tick(t.Context())
	if !errors.Is(err, card.ErrWalletShared) || !errors.Is(err, card.ErrChainNotReady) {
		t.Errorf("with one: %v", err)
	}
	if health := b.watcher.Health(); health == nil || !strings.Contains(health.Error(), "cardmint wallet claim") {
		t.Errorf("health is %v", health)
	}
	b.wallet.lost = card.ErrWalletLost
	check(t, b.store.AskForRescan(t.Context(), "monero", false))
	if err := b.watcher.Tick(t.Context()); !errors.Is(err, card.ErrWalletShared) || !errors.Is(err, card.ErrWalletLost) {
		t.Errorf("with one, while a rescan fails: %v", err)
	}
	check(t, b.store.ClaimWallet(t.Context(), "monero"))
	if err := b.watcher.Tick(t.Context()); errors.Is(err, card.ErrWalletShared) {
		t.Errorf("after an operator's decision: %v", err)
	}
}

// A standby that takes over continues the epoch, so that no address is skipped.
func TestWatcher_StandbyTakesOver_ContinuesEpoch(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	sold := map[string]bool{}
	b.sell(5, sold)
	standby := openDeployment(t, b.path, b.wallet, b.account)
	for range 2 {
		check(t, standby.watcher.Tick(t.Context()))
		b.beats()
	}
	check(t, standby.watcher.Tick(t.Context()))
	before, err := b.store.AddressPool(t.Context(), "monero")
	check(t, err)
	check(t, b.watcher.Close(t.Context()))
	check(t, standby.watcher.Mark(t.Context()))
	standby.beats()
	after, err := b.store.AddressPool(t.Context(), "monero")
	check(t, err)
	if after.LastEpoch != before.LastEpoch || after.Next != before.Next {
		t.Errorf("%+v became %+v", before, after)
	}
	standby.sell(branchPool, sold)
}
