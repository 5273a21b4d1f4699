package monero_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

// proxied returns the chain of a wallet and the node, each behind a proxy.
func proxied(t *testing.T, net *rig.MoneroNet, walletURL string, config monero.Config) (m *monero.Chain, wallet,
	daemon *rig.Proxy) {
	t.Helper()
	wallet, daemon = rig.NewProxy(t, walletURL), rig.NewProxy(t, net.DaemonURL)
	config.WalletURL, config.DaemonURL = wallet.URL, daemon.URL
	return newMonero(t, config), wallet, daemon
}

// notReady fails the test unless err is card.ErrChainNotReady and contains all
// parts.
func notReady(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, card.ErrChainNotReady) {
		t.Errorf("got %v, want ErrChainNotReady", err)
		return
	}
	for _, s := range parts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("got %v, want %q in it", err, s)
		}
	}
}

func TestChain_Kept_EndsBelowReplacedBlock(t *testing.T) {
	net := rig.Monero(t)
	m, _, daemon := proxied(t, net, net.WalletURL, monero.Config{})
	kept := func(known ...card.Tip) int64 {
		t.Helper()
		view, err := m.Scan(t.Context(), settle.Query{Known: known, Newest: settle.NoPosition})
		if err != nil {
			t.Fatal(err)
		}
		return view.Kept
	}
	same := func(last card.Tip) bool {
		t.Helper()
		return kept(last) == last.Height
	}
	last := scan(t, m, 0).Tip
	asked := daemon.Calls("get_block_header_by_height")
	if !same(last) {
		t.Error("unchanged chain: not kept")
	}
	if more := daemon.Calls("get_block_header_by_height") - asked; more != 1 { // the genesis block
		t.Errorf("requested %d blocks although the tip is the same", more)
	}
	net.Mine(t, 2)
	if !same(last) {
		t.Error("two more blocks: not kept")
	}
	net.Reorg(t, 2, 3, true)
	if !same(last) {
		t.Error("blocks above replaced: not kept")
	}
	net.Reorg(t, 4, 5, true)
	if same(last) {
		t.Error("block replaced: still kept")
	}
	older := scan(t, m, 0).Tip
	net.Mine(t, 3)
	newer := scan(t, m, 0).Tip
	net.Reorg(t, 2, 3, true)
	if got := kept(newer, last, older); got != older.Height {
		t.Errorf("kept up to %d, want %d", got, older.Height)
	}
	if got := kept(newer, last); got != 0 {
		t.Errorf("no known tips: kept %d", got)
	}
	last = scan(t, m, 0).Tip
	net.Reorg(t, 3, 1, true)
	if same(last) {
		t.Error("shorter chain: still kept")
	}
}

func TestChain_ReorgDuringPass(t *testing.T) {
	net := rig.Monero(t)
	m, wallet, _ := proxied(t, net, net.WalletURL, monero.Config{})
	net.Mine(t, 3)
	last := scan(t, m, 0).Tip
	for name, reorganize := range map[string]func(){
		"at the same height": func() { net.Reorg(t, 2, 2, true) },
		"longer":             func() { net.Reorg(t, 2, 3, true) },
		"shorter":            func() { net.Reorg(t, 2, 1, true) },
	} {
		wallet.Before("get_transfers", reorganize)
		view, err := m.Scan(t.Context(), settle.Query{Known: []card.Tip{last}, Newest: settle.NoPosition})
		if now := scan(t, m, 0).Tip; err != nil || view.Tip != now {
			t.Errorf("%s: got %+v, %v; want tip %+v", name, view, err, now)
		}
	}
	wallet.Before("get_transfers", func() {
		net.Reorg(t, 2, 2, true)
		wallet.Before("get_transfers", func() { net.Reorg(t, 2, 2, true) })
	})
	if view, err := m.Scan(t.Context(), settle.Query{Known: []card.Tip{last}, Newest: settle.NoPosition}); err == nil {
		t.Errorf("twice: got %+v", view)
	} else {
		notReady(t, err, "during the pass")
	}
	if view, err := m.Scan(t.Context(), settle.Query{Known: []card.Tip{last}, Newest: settle.NoPosition}); err != nil ||
		view.Kept != 0 {
		t.Errorf("got %+v, %v", view, err)
	}
}

func TestChain_NodeCutOff_TipIsStale(t *testing.T) {
	net := rig.Monero(t)
	later := func(age, limit time.Duration) error {
		now := func() time.Time { return time.Now().Add(age) }
		m := newMonero(t, monero.Config{WalletURL: net.WalletURL, DaemonURL: net.DaemonURL, MaxTipAge: limit, Now: now})
		_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
		return err
	}
	if err := later(29*time.Minute, 0); err != nil {
		t.Errorf("29 minutes: %v", err)
	}
	if err := later(300*time.Hour, -1); err != nil {
		t.Errorf("any age: %v", err)
	}
	if err := later(-2*time.Hour, 0); err != nil {
		t.Errorf("block from the future: %v", err)
	}
	notReady(t, later(47*time.Minute, 0), "newest block", "47 minutes old", "clock")
	notReady(t, later(3*time.Minute, 2*time.Minute), "3 minutes old")
}

func TestChain_ClosedWallet_IsOpened(t *testing.T) {
	net := rig.Monero(t)
	m := newMonero(t, monero.Config{WalletURL: net.WalletURL, DaemonURL: net.DaemonURL, WalletFile: "wallet"})
	want := scan(t, m, 0)
	net.Wallet.Close(t)
	got := scan(t, m, 0)
	if got.Fingerprint != want.Fingerprint || got.Tip != want.Tip || len(got.Transfers) != len(want.Transfers) {
		t.Errorf("got %d transfers at %+v, want %d at %+v", len(got.Transfers), got.Tip, len(want.Transfers), want.Tip)
	}
	for name, do := range map[string]func(context.Context, *monero.Chain) error{
		"scan": func(ctx context.Context, m *monero.Chain) error {
			_, err := m.Scan(ctx, settle.Query{Newest: settle.NoPosition})
			return err
		},
		"new addresses": func(ctx context.Context, m *monero.Chain) error {
			_, err := m.NewAddresses(ctx, settle.NoPosition, 1)
			return err
		},
		"ahead": func(ctx context.Context, m *monero.Chain) error {
			err := m.Holds(ctx, settle.Address{Address: primary})
			return err
		},
		"check":   func(ctx context.Context, m *monero.Chain) error { _, err := m.Inspect(ctx); return err },
		"recover": func(ctx context.Context, m *monero.Chain) error { return m.Recover(ctx, "", nil, func(string) {}) },
	} {
		const closed = `"error":{"code":-13,"message":"No wallet file"}`
		s, m := newScriptWith(t, monero.Config{WalletFile: "wallet"})
		s.set("open_wallet", `{}`)
		s.set("rescan_blockchain", `{}`)
		s.set("get_address", closed, "")
		if err := do(t.Context(), m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.set("get_address", closed)
		notReady(t, do(t.Context(), m), "it is opened now") // closed again whenever it is opened
	}
}

func TestChain_WalletCannotBeOpened(t *testing.T) {
	net := rig.Monero(t)
	net.Wallet.Close(t)
	for name, config := range map[string]monero.Config{
		"no such wallet": {WalletFile: "wallte"},
		"wrong password": {WalletFile: "wallet", WalletFilePassword: "hunter2"},
	} {
		config.WalletURL, config.DaemonURL = net.WalletURL, net.DaemonURL
		_, err := newMonero(t, config).Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
		notReady(t, err, `can't open the wallet "`+config.WalletFile+`"`, "--wallet-dir", "password")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the password", name)
		}
	}
	t.Run("started with --wallet-file", func(t *testing.T) {
		s, m := newScriptWith(t, monero.Config{WalletFile: "wallet"})
		s.set("get_address", `"error":{"code":-13,"message":"No wallet file"}`)
		s.set("open_wallet", `"error":{"code":-23,"message":"No wallet dir configured"}`)
		_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
		notReady(t, err, "start it with --wallet-dir in place of --wallet-file")
	})
}

func TestChain_WalletKilledDuringPass(t *testing.T) {
	net := rig.Monero(t)
	wallet := net.NewWallet(t, "", "")
	m, proxy, _ := proxied(t, net, wallet.URL, monero.Config{WalletFile: "wallet"})
	address, start := newAddress(t, m), net.Height(t)
	txID := net.Pay(t, address.Address, xmr)
	net.Confirm(t, txID, 1)
	// restarted with its file from before the payment, but not opened
	proxy.Before("get_transfers", func() {
		wallet.Kill()
		wallet.Launch(t)
	})
	if got := one(t, scan(t, m, start), address.Address); got.TxID != txID || got.Height == 0 {
		t.Errorf("got %+v, want %s in a block", got, txID)
	}
	if n := proxy.Calls("refresh"); n != 2 {
		t.Errorf("read the chain %d times, want 2: before and after it was killed", n)
	}
}

func TestChain_WalletKilledWhileReading(t *testing.T) {
	net := rig.Monero(t)
	wallet := net.NewWallet(t, "", "")
	m := newMonero(t, monero.Config{WalletURL: wallet.URL, DaemonURL: net.DaemonURL, WalletFile: "wallet"})
	address, start := newAddress(t, m), net.Height(t)
	txID := net.Pay(t, address.Address, xmr)
	net.Confirm(t, txID, 20)
	net.Daemon.Freeze(t) // so that the wallet is waiting for blocks when it is killed
	t.Cleanup(net.Daemon.Thaw)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := m.Recover(ctx, "", nil, func(string) {}); err == nil {
		t.Error("no error without a node")
	}
	wallet.Kill()
	net.Daemon.Thaw()
	wallet.Launch(t)
	if got := one(t, scan(t, m, start), address.Address); got.TxID != txID || got.Height == 0 {
		t.Errorf("got %+v, want %s in a block", got, txID)
	}
	if err := m.Holds(t.Context(), address); err != nil {
		t.Error(err)
	}
}

func TestChain_WalletOfOtherKeys(t *testing.T) {
	net, m := merchant(t)
	view, newest := scan(t, m, 0), newAddress(t, m)
	fingerprint := view.Fingerprint
	net.Wallet.OpenOther(t)
	if err := m.Holds(t.Context(), newest); !errors.Is(err, card.ErrWrongChain) {
		t.Errorf("ahead: got %v, want ErrWrongChain", err)
	}
	if as, err := m.NewAddresses(t.Context(), settle.NoPosition, 1); !errors.Is(err, card.ErrWrongChain) {
		t.Errorf("new addresses: got %v, %v; want ErrWrongChain", as, err)
	}
	if view := scan(t, m, 0); view.Fingerprint == fingerprint || len(view.Transfers) != 0 {
		t.Errorf("got %d transfers of %s", len(view.Transfers), view.Fingerprint)
	}
	net.Wallet.Open(t)
	if f := scan(t, m, 0).Fingerprint; f != fingerprint {
		t.Errorf("opened again: fingerprint %s, want %s", f, fingerprint)
	}
}

func TestChain_WalletSwappedDuringPass(t *testing.T) {
	net := rig.Monero(t)
	m, wallet, _ := proxied(t, net, net.WalletURL, monero.Config{})
	wallet.Before("get_transfers", func() { net.Wallet.OpenOther(t) })
	_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
	notReady(t, err, "another wallet was opened")
	net.Wallet.Open(t)
	scan(t, m, 0)
}

func TestChain_NodeOfAnotherNetwork(t *testing.T) {
	net := rig.Monero(t)
	m, _, daemon := proxied(t, net, net.WalletURL, monero.Config{})
	other := rig.Stagenet(t)
	fresh := func() *monero.Chain {
		return newMonero(t, monero.Config{WalletURL: net.WalletURL, DaemonURL: daemon.URL})
	}
	want := scan(t, m, 0).Fingerprint
	daemon.Target(other.URL)
	for name, m := range map[string]*monero.Chain{"in the middle": m, "at the start": fresh()} {
		if view, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition}); !errors.Is(err, card.ErrWrongChain) {
			t.Errorf("%s: got %+v, %v; want ErrWrongChain", name, view, err)
		}
	}
	daemon.Target(net.DaemonURL)
	if got := scan(t, m, 0).Fingerprint; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestChain_BrokenResponses_AreBoundedAndTemporary(t *testing.T) {
	net := rig.Monero(t)
	const limit = 500 * time.Millisecond
	m, wallet, daemon := proxied(t, net, net.WalletURL, monero.Config{Timeout: limit, RefreshTimeout: limit})
	scan(t, m, 0)
	for name, fault := range map[string]rig.Fault{"hang": rig.Hang, "reset": rig.Reset, "lost answer": rig.LoseAnswer,
		"error": rig.RPCError, "truncated": rig.TruncatedJSON, "HTML": rig.HTML, "endless": rig.EndlessBody,
		"500": rig.Status500} {
		for method, proxy := range map[string]*rig.Proxy{"get_transfers": wallet, "refresh": wallet, "create_address": wallet,
			"get_last_block_header": daemon} {
			proxy.Break(fault, method)
			started := time.Now()
			_, scanned := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
			_, created := m.NewAddresses(t.Context(), settle.NoPosition, 1)
			if (scanned == nil) == (method != "create_address") || (created == nil) == (method == "create_address") {
				t.Errorf("%s of %s: scan %v, new addresses %v", name, method, scanned, created)
			}
			if took := time.Since(started); took > 4*time.Second {
				t.Errorf("%s of %s: took %s", name, method, took)
			}
			proxy.Restore()
		}
	}
	scan(t, m, 0)
	newAddress(t, m)
}
