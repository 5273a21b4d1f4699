package rig

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// freshFor is how long a chain can be copied. Its blocks have the time of its
// creation.
const freshFor = time.Hour

// directories returns the directories of a network's programs, by their names
// in the stored copy.
func (n *MoneroNet) directories() map[string]string {
	return map[string]string{"node": n.Daemon.dir, "merchant": n.Wallet.dir, "payer": n.Payer.dir}
}

// copyFirst copies firstBlocks blocks, and wallets that have read them, into a
// new network. The first call creates them, which takes seconds; processes with
// the same temporary directory share them.
func copyFirst(tb testing.TB, n *MoneroNet) {
	tb.Helper()
	version := sha256.Sum256([]byte(MoneroProgram(tb, "monerod")))
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("rig-first-%d-%x", os.Getuid(), version[:4]))
	lock, err := os.OpenFile(kept+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		tb.Fatal(err)
	}
	if info, err := os.Stat(kept); err != nil || time.Since(info.ModTime()) > freshFor {
		makeFirst(tb, kept)
	}
	for name, dir := range n.directories() {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(kept, name))); err != nil {
			tb.Fatal(err)
		}
	}
}

// makeFirst creates a chain of firstBlocks blocks and the two wallets. The
// directory appears only once it is complete.
func makeFirst(tb testing.TB, kept string) {
	tb.Helper()
	if err := os.RemoveAll(kept); err != nil {
		tb.Fatal(err)
	}
	n := newNet(tb)
	defer n.end()
	n.Daemon.Start(tb)
	n.Wallet.Launch(tb)
	n.Payer.Launch(tb)
	made := make(chan error, 2)
	go func() {
		made <- n.Wallet.Ask("generate_from_keys", map[string]any{"filename": "wallet", "address": merchantAddress,
			"viewkey": merchantViewKey, "password": "", "restore_height": 0}, nil)
	}()
	go func() {
		made <- n.Payer.Ask("restore_deterministic_wallet", map[string]any{"filename": "wallet", "seed": payerSeed,
			"password": "", "restore_height": 0}, nil)
	}()
	n.MineTo(tb, merchantAddress, 1)
	n.Mine(tb, firstBlocks-1)
	if err := errors.Join(<-made, <-made); err != nil {
		tb.Fatal(err)
	}
	for _, w := range []*MoneroWallet{n.Wallet, n.Payer} {
		w.Refresh(tb)
		w.Close(tb)
		w.kill()
	}
	n.Daemon.kill()
	for name, dir := range n.directories() {
		if err := os.Rename(dir, filepath.Join(n.dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Rename(n.dir, kept); err != nil {
		tb.Fatal(err)
	}
}
