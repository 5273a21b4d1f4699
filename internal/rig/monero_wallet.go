package rig

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// MoneroWallet is a monero-wallet-rpc with a wallet named "wallet", whose
// password is empty.
type MoneroWallet struct {
	server
	daemonURL string
	other     bool // OpenOther was called after Open
}

func (n *MoneroNet) newWallet(tb testing.TB, user, password string) *MoneroWallet {
	tb.Helper()
	return &MoneroWallet{server: newServer(tb, "monero-wallet-rpc", n.newDir(tb), user, password), daemonURL: n.relay.URL}
}

// NewWallet starts another monero-wallet-rpc, for this test alone, with a copy
// of the merchant's view-only wallet. If user is not "", it requires a login.
// It takes about 3 s.
func (n *MoneroNet) NewWallet(tb testing.TB, user, password string) *MoneroWallet {
	tb.Helper()
	w := n.newWallet(tb, user, password)
	n.Wallet.Call(tb, "store", nil, nil)
	for _, name := range []string{"wallet", "wallet.keys"} {
		content, err := os.ReadFile(filepath.Join(n.Wallet.dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, name), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(w.kill)
	w.Start(tb)
	return w
}

// Launch starts the program, for instance after it was killed. No wallet is
// open then.
func (w *MoneroWallet) Launch(tb testing.TB) {
	tb.Helper()
	login := "--disable-rpc-login"
	if w.user != "" {
		login = "--rpc-login=" + w.user + ":" + w.password
	}
	args := []string{"--daemon-address=" + w.daemonURL, "--trusted-daemon", "--wallet-dir=" + w.dir, login, "--no-dns",
		"--rpc-ssl=disabled", "--daemon-ssl=disabled", // otherwise each would first create an RSA key, which takes seconds
		"--shared-ringdb-dir=" + filepath.Join(w.dir, "ring"), "--log-level=0", "--log-file=" + filepath.Join(w.dir, "log")}
	// a new wallet considers a regtest node, with every fork at block 1,
	// outdated
	const anyFork = "--allow-mismatched-daemon-version"
	if KnowsFlag(tb, w.path(tb), anyFork) {
		args = append(args, anyFork)
	}
	w.run(tb, args...)
	w.Ready(tb, time.Minute, func() error { return w.Ask("get_version", nil, nil) })
}

// Start starts the program, for instance after it was killed, and opens the
// wallet as last stored.
func (w *MoneroWallet) Start(tb testing.TB) {
	tb.Helper()
	w.Launch(tb)
	w.Open(tb)
}

// Open opens the wallet after Close or OpenOther.
func (w *MoneroWallet) Open(tb testing.TB) {
	tb.Helper()
	if err := w.open(); err != nil {
		tb.Fatal(err)
	}
}

func (w *MoneroWallet) open() error {
	err := w.Ask("open_wallet", map[string]any{"filename": "wallet", "password": ""}, nil)
	if err == nil {
		w.other = false
	}
	return err
}

// Reconnect drops the data that the wallet caches from its node for up to 30 s.
func (w *MoneroWallet) Reconnect(tb testing.TB) {
	tb.Helper()
	for _, url := range []string{"http://127.0.0.1:1", w.daemonURL} { // only a different address clears the cache
		w.Call(tb, "set_daemon", map[string]any{"address": url, "trusted": true, "ssl_support": "disabled"}, nil)
	}
}

// Refresh reads the blocks that the wallet has not read yet.
func (w *MoneroWallet) Refresh(tb testing.TB) {
	tb.Helper()
	w.read(tb, "refresh")
}

// Rescan reads the chain again, as a wallet must after a reorganization that is
// too deep for it.
func (w *MoneroWallet) Rescan(tb testing.TB) {
	tb.Helper()
	w.read(tb, "rescan_blockchain")
}

// read calls a method that reads from the node. The first request to a
// restarted node may fail with "no connection to daemon", so it is repeated.
func (w *MoneroWallet) read(tb testing.TB, method string) {
	tb.Helper()
	w.Ready(tb, 10*time.Second, func() error { return w.Ask(method, nil, nil) })
}

// Close stores and closes the wallet.
func (w *MoneroWallet) Close(tb testing.TB) {
	tb.Helper()
	w.Call(tb, "close_wallet", nil, nil)
}

// OpenOther opens a different view-only wallet, which never received anything,
// until Open opens the right one again.
func (w *MoneroWallet) OpenOther(tb testing.TB) {
	tb.Helper()
	w.other = true
	if _, err := os.Stat(filepath.Join(w.dir, "other.keys")); err == nil {
		w.Call(tb, "open_wallet", map[string]any{"filename": "other", "password": ""}, nil)
		return
	}
	w.Call(tb, "generate_from_keys", map[string]any{"filename": "other", "address": otherAddress, "viewkey": otherViewKey,
		"password": "", "restore_height": 0}, nil)
}

// LoseCache kills the program, deletes the wallet's cache, and starts the
// program again. The wallet keeps its keys, but not the number of its
// addresses. It sees payments only to the 200 addresses after the last one it
// knows.
func (w *MoneroWallet) LoseCache(tb testing.TB) {
	tb.Helper()
	w.Kill()
	w.DeleteCache(tb)
	w.Start(tb)
}

// CorruptCache kills the program, truncates the wallet's cache, and starts the
// program again. It can't open the wallet until DeleteCache is called.
func (w *MoneroWallet) CorruptCache(tb testing.TB) {
	tb.Helper()
	w.Kill()
	path := filepath.Join(w.dir, "wallet")
	info, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()/2); err != nil {
		tb.Fatal(err)
	}
	w.Launch(tb)
}

// DeleteCache deletes the cache of a wallet that is not open.
func (w *MoneroWallet) DeleteCache(tb testing.TB) {
	tb.Helper()
	if err := os.Remove(filepath.Join(w.dir, "wallet")); err != nil {
		tb.Fatal(err)
	}
}

// repair starts the program, if necessary, and opens its wallet. If the wallet
// can't be opened, it deletes the cache.
func (w *MoneroWallet) repair(tb testing.TB) {
	tb.Helper()
	w.Thaw()
	if w.ended() {
		w.Launch(tb)
	}
	if !w.other && w.Ask("get_height", nil, nil) == nil {
		return
	}
	if w.open() != nil {
		w.DeleteCache(tb)
		w.Open(tb)
	}
}

// Save returns the wallet's current files, as a snapshot of the machine would
// contain them.
func (w *MoneroWallet) Save(tb testing.TB) map[string][]byte {
	tb.Helper()
	files := map[string][]byte{}
	for _, name := range []string{"wallet", "wallet.keys"} {
		content, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		files[name] = content
	}
	return files
}

// Restore kills the program, puts back files that Save returned, and starts the
// program again.
func (w *MoneroWallet) Restore(tb testing.TB, files map[string][]byte) {
	tb.Helper()
	w.Kill()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	w.Start(tb)
}
