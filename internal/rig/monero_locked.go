package rig

import (
	"strings"
	"testing"
)

// MoneroLocked is an output that can't be spent before UnlockTime, a height or
// a Unix time; 0 for none.
type MoneroLocked struct {
	UnlockTime uint64
	MoneroOutput
}

// PayLocked sends one transaction per payment. The transactions are then in the
// mempool, which must be empty before.
//
// The current wallet can't lock money, and the current node accepts locked
// money only in a block. Dropping the block moves it to the mempool. Therefore
// the system's older versions create the transactions and mine a block on the
// same chain.
func (n *MoneroNet) PayLocked(tb testing.TB, payments ...MoneroLocked) (txIDs []string) {
	tb.Helper()
	send := func(from *MoneroWallet) {
		from.Refresh(tb)
		for _, p := range payments {
			txID, err := n.transfer(tb, from, p.UnlockTime, p.MoneroOutput)
			if err != nil && strings.Contains(err.Error(), "unlock time") {
				missing(tb, "the installed Monero sends no locked money; 0.18.3.3 and older ones do")
			}
			if err != nil {
				tb.Fatal(err)
			}
			txIDs = append(txIDs, txID)
		}
	}
	if n.Daemon.path(tb) == Need(tb, "monerod", "monero") {
		send(n.Payer)
		return txIDs
	}
	// a wallet that sees the block is ahead of the node once it is dropped
	for _, w := range []*MoneroWallet{n.Wallet, n.Payer} {
		w.Freeze(tb)
	}
	n.withOldDaemon(tb, func() {
		w := n.newWallet(tb, "", "")
		w.old = true
		defer w.kill()
		w.Launch(tb)
		w.Call(tb, "restore_deterministic_wallet", map[string]any{"filename": "wallet", "seed": payerSeed, "password": "",
			"restore_height": 0}, nil)
		send(w)
		n.Mine(tb, 1)
	})
	n.Pop(tb, 1)
	n.Wallet.Thaw()
	n.Payer.Thaw()
	n.Wallet.Refresh(tb)
	return txIDs
}

// withOldDaemon replaces the current monerod by the system's while f runs.
func (n *MoneroNet) withOldDaemon(tb testing.TB, f func()) {
	tb.Helper()
	replace := func(old bool) {
		n.Daemon.kill()
		n.Daemon.old = old
		n.Daemon.Start(tb)
	}
	replace(true)
	defer replace(false)
	f()
}
