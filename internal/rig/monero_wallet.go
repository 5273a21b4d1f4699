package rig

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// MoneroWallet is a monero-wallet-rpc with a wallet named "wallet", whose password is empty.
type MoneroWallet struct {
	server
	daemonURL string
	other     bool // OpenOther was called after Open
}

func (n *MoneroNet) newWallet(tb testing.TB, user, password string) *MoneroWallet {
	tb.Helper()
	return &MoneroWallet{server: newServer(tb, "monero-wallet-rpc", n.newDir(tb), user, password), daemonURL: n.relay.URL}
}

// NewWallet starts another monero-wallet-rpc with the merchant's view-only wallet as it was when this was called, for this
// test alone. A user makes it ask for a login. It takes about 3 s.
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

// Launch starts the program again after it was killed. It has no wallet open then.
func (w *MoneroWallet) Launch(tb testing.TB) {
	tb.Helper()
	login := "--disable-rpc-login"
	if w.user != "" {
		login = "--rpc-login=" + w.user + ":" + w.password
	}
	w.run(tb, "--daemon-address="+w.daemonURL, "--trusted-daemon", "--wallet-dir="+w.dir, login, "--no-dns",
		"--rpc-ssl=disabled", "--daemon-ssl=disabled", // each would make a new RSA key first, which takes seconds
		"--shared-ringdb-dir="+filepath.Join(w.dir, "ring"), "--log-level=0", "--log-file="+filepath.Join(w.dir, "log"))
	w.Ready(tb, time.Minute, func() error { return w.Ask("get_version", nil, nil) })
}

// Start starts the program again after it was killed, and opens the wallet as it was when it was last stored.
func (w *MoneroWallet) Start(tb testing.TB) {
	tb.Helper()
	w.Launch(tb)
	w.Open(tb)
}

// Open opens the wallet after it was closed, or swapped for another.
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

// Reconnect has the wallet forget what its node had told it, some of which it keeps for 30 s.
func (w *MoneroWallet) Reconnect(tb testing.TB) {
	tb.Helper()
	for _, url := range []string{"http://127.0.0.1:1", w.daemonURL} { // only another address makes it forget
		w.Call(tb, "set_daemon", map[string]any{"address": url, "trusted": true, "ssl_support": "disabled"}, nil)
	}
}

// Close stores and closes the wallet.
func (w *MoneroWallet) Close(tb testing.TB) {
	tb.Helper()
	w.Call(tb, "close_wallet", nil, nil)
}

// OpenOther swaps the wallet for a view-only one of other keys, which never received anything, until Open.
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

// LoseCache kills the program, deletes the wallet's cache, and starts it again: it has its keys, but forgot which addresses it
// made. What they received it sees only up to 200 addresses after the last it knows.
func (w *MoneroWallet) LoseCache(tb testing.TB) {
	tb.Helper()
	w.Kill()
	w.DeleteCache(tb)
	w.Start(tb)
}

// CorruptCache kills the program, cuts the wallet's cache short, and starts it again. It can't open the wallet then, until
// DeleteCache.
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

// mend makes the program run with its wallet open; a wallet that can't be opened loses its cache.
func (w *MoneroWallet) mend(tb testing.TB) {
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
