package rig

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// freshFor is how long a chain can be copied. Its blocks are of the time when it was made.
const freshFor = time.Hour

// copyChain copies a chain of firstBlocks blocks, as a MoneroNet begins with, into the empty directory of a node. The first who needs it
// makes it, which takes seconds; processes that have the same temporary directory share it.
func copyChain(tb testing.TB, dir string) {
	tb.Helper()
	version := sha256.Sum256([]byte(MoneroProgram(tb, "monerod")))
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("rig-chain-%d-%x", os.Getuid(), version[:4]))
	lock, err := os.OpenFile(kept+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		tb.Fatal(err)
	}
	if info, err := os.Stat(kept); err != nil || time.Since(info.ModTime()) > freshFor {
		makeChain(tb, kept)
	}
	if err := os.CopyFS(dir, os.DirFS(kept)); err != nil {
		tb.Fatal(err)
	}
}

// makeChain makes a chain of firstBlocks blocks, in the directory that it then is.
func makeChain(tb testing.TB, kept string) {
	tb.Helper()
	if err := os.RemoveAll(kept); err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rig-chain")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	n := &MoneroNet{Daemon: newRegtest(tb, dir)}
	defer n.Daemon.kill()
	n.Daemon.Start(tb)
	n.MineTo(tb, merchantAddress, 1)
	n.Mine(tb, firstBlocks-1)
	n.Daemon.kill()
	if err := os.Rename(dir, kept); err != nil {
		tb.Fatal(err)
	}
}
