package monero_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

// ownWallet returns a wallet for this test alone, the chain that opens it, and
// n addresses it has made. All wallets of the network have the same keys, so it
// first sees payments to addresses of other tests, and makes its own addresses
// after these.
func ownWallet(t *testing.T, net *rig.MoneroNet, n int) (*rig.MoneroWallet, *monero.Chain, []settle.Address) {
	t.Helper()
	wallet := net.NewWallet(t, "", "")
	wallet.Refresh(t)
	m := newMonero(t, monero.Config{WalletURL: wallet.URL, DaemonURL: net.DaemonURL, WalletFile: "wallet"})
	made, err := m.NewAddresses(t.Context(), settle.NoPosition, n)
	if err != nil {
		t.Fatal(err)
	}
	return wallet, m, made
}

func TestChain_ReorgTooDeepForWallet_IsWalletLost(t *testing.T) {
	net := rig.Monero(t)
	t.Cleanup(func() { // these wallets cannot follow either
		net.Wallet.Rescan(t)
		net.Payer.Rescan(t)
	})
	_, m, _ := ownWallet(t, net, 1)
	older := scan(t, m, 0).Deep
	net.Mine(t, 2)
	before := scan(t, m, 0)
	known := []card.Tip{before.Tip, before.Deep, older}
	if before.Tip.Height-before.Deep.Height != 100 || before.Deep.Height-older.Height != 2 {
		t.Fatalf("%+v", known)
	}
	net.Reorg(t, 101, 102, true)
	for range 2 { // the error is permanent
		if _, err := m.Scan(t.Context(), settle.Query{Known: known, Newest: settle.NoPosition}); !errors.Is(err,
			card.ErrWalletLost) {
			t.Fatalf("got %v, want ErrWalletLost", err)
		}
	}
	if err := m.Recover(t.Context(), before.Fingerprint, nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	after, err := m.Scan(t.Context(), settle.Query{Known: known, Newest: settle.NoPosition})
	if err != nil || after.Kept != older.Height || after.Tip.Height != before.Tip.Height+1 {
		t.Errorf("%v: kept %d, tip %d, was at %d", err, after.Kept, after.Tip.Height, before.Tip.Height)
	}
}

// farAhead is more addresses than a wallet's lookahead.
const farAhead = 300

func TestChain_RecoverFindsPaymentsFarAhead(t *testing.T) {
	net := rig.Monero(t)
	wallet, m, made := ownWallet(t, net, farAhead)
	newest, start := made[farAhead-1], net.Height(t)
	paid := map[string]settle.Address{}
	for _, address := range []settle.Address{made[0], made[farAhead-40], newest} {
		txID := net.Pay(t, address.Address, xmr)
		net.Confirm(t, txID, 1)
		paid[txID] = address
	}
	before := scan(t, m, start)
	wallet.LoseCache(t)

	if err := m.Holds(t.Context(), newest); !errors.Is(err, card.ErrWalletLost) {
		t.Fatalf("got %v; want ErrWalletLost", err)
	}
	if n := len(to(scan(t, m, start), newest.Address)); n != 0 {
		t.Fatalf("the wallet shows %d payments that it should have lost", n)
	}
	var progress []string
	recovers := func() {
		t.Helper()
		progress = nil
		if err := m.Recover(t.Context(), "", &newest, func(s string) { progress = append(progress, s) }); err != nil {
			t.Fatal(err)
		}
		view, err := m.Scan(t.Context(), settle.Query{Known: []card.Tip{before.Tip}, Since: start, Newest: settle.NoPosition})
		if err != nil || view.Kept != before.Tip.Height || view.Fingerprint != before.Fingerprint {
			t.Fatalf("got %+v, %v", view, err)
		}
		for txID, address := range paid {
			if got := one(t, view, address.Address); got.TxID != txID || got.Output != address.Position || got.Height == 0 {
				t.Errorf("got %+v, want %s", got, txID)
			}
		}
	}
	recovers()
	all := fmt.Sprintf("made %[1]d of %[1]d addresses again", newest.Position)
	if n := len(progress); n < 5 || progress[n-2] != all || progress[n-1] != "the wallet is rescanning its chain" {
		t.Errorf("progress: %q", progress)
	}
	if err := m.Holds(t.Context(), newest); err != nil {
		t.Errorf("got %v", err)
	}
	if next := newAddress(t, m); next.Position != newest.Position+1 {
		t.Errorf("next address is number %d, want %d", next.Position, newest.Position+1)
	}
	wallet.Kill()
	wallet.Launch(t)
	recovers() // of its store calls, one more than needed
	if len(progress) != 1 || strings.Contains(progress[0], "addresses") {
		t.Errorf("progress %q, although nothing was lost", progress)
	}
}

func TestChain_RecoverKilledHalfWay(t *testing.T) {
	net := rig.Monero(t)
	wallet, _, made := ownWallet(t, net, farAhead)
	newest, start := made[farAhead-1], net.Height(t)
	txID := net.Pay(t, newest.Address, xmr)
	net.Confirm(t, txID, 1)
	m, proxy, _ := proxied(t, net, wallet.URL, monero.Config{WalletFile: "wallet"})
	wallet.Kill()
	wallet.DeleteCache(t)
	wallet.Launch(t)
	proxy.Before("rescan_blockchain", wallet.Kill)
	if err := m.Recover(t.Context(), "", &newest, func(string) {}); err == nil {
		t.Error("no error from a killed wallet")
	}
	wallet.Launch(t)
	if err := m.Holds(t.Context(), newest); err != nil { // its addresses do not show that it has not scanned for payments
		t.Error(err)
	}
	if err := m.Recover(t.Context(), "", &newest, func(string) {}); err != nil {
		t.Error(err)
	}
	if got := one(t, scan(t, m, start), newest.Address); got.TxID != txID {
		t.Errorf("got %+v, want %s", got, txID)
	}
}

// A wallet that sees a payment to an address it has yet to make continues after
// that address, even between two calls for one batch.
func TestChain_AddressesMayHaveGaps(t *testing.T) {
	net := rig.Monero(t)
	wallet, _, made := ownWallet(t, net, 1)
	m, proxy, _ := proxied(t, net, wallet.URL, monero.Config{WalletFile: "wallet"})
	proxy.Before("create_address", func() {
		proxy.Before("create_address", func() {
			wallet.Call(t, "create_address", map[string]any{"account_index": 0, "count": 5}, nil)
		})
	})
	got, err := m.NewAddresses(t.Context(), settle.NoPosition, 100)
	if err != nil || len(got) != 100 {
		t.Fatalf("%d addresses, %v", len(got), err)
	}
	if first, last := got[0].Position, got[99].Position; first != made[0].Position+1 || last != first+104 {
		t.Errorf("positions %d to %d, after %d", first, last, made[0].Position)
	}
}

func TestChain_RecoverWithoutAddresses_Rescans(t *testing.T) {
	_, m := merchant(t)
	before := scan(t, m, 0)
	var progress []string
	if err := m.Recover(t.Context(), "", nil, func(s string) { progress = append(progress, s) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(progress, []string{"the wallet is rescanning its chain"}) {
		t.Errorf("progress: %q", progress)
	}
	if after := scan(t, m, 0); len(after.Transfers) != len(before.Transfers) || len(after.Transfers) == 0 {
		t.Errorf("%d transfers, before %d", len(after.Transfers), len(before.Transfers))
	}
}

func TestChain_RecoverOtherKeys_IsRejected(t *testing.T) {
	net, own := merchant(t)
	m, proxy, daemon := proxied(t, net, net.WalletURL, monero.Config{})
	older, newest := newAddress(t, own), newAddress(t, own)
	scan(t, own, 0)
	refuses := func(name string, m *monero.Chain, newest settle.Address, want error) {
		t.Helper()
		if err := m.Recover(t.Context(), "", &newest, func(string) {}); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	refuses("another in its place", m,
		settle.Address{Currency: "monero", Address: older.Address, Position: newest.Position}, card.ErrWrongChain)
	net.Wallet.OpenOther(t)
	refuses("other keys", m, newest, card.ErrWrongChain)
	refuses("other keys than scanned", own, newest, card.ErrWrongChain)
	net.Wallet.Open(t)
	proxy.Target(net.Payer.URL)
	refuses("spend key", m, newest, monero.ErrSpendKey)
	proxy.Target(net.WalletURL)
	daemon.Target(rig.Stagenet(t).URL)
	refuses("other network", m, newest, card.ErrWrongChain)
	if n := proxy.Calls("rescan_blockchain"); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestChain_RecoverCanceled(t *testing.T) {
	net := rig.Monero(t)
	m, wallet, _ := proxied(t, net, net.WalletURL, monero.Config{RescanTimeout: 200 * time.Millisecond})
	wallet.Break(rig.Hang, "rescan_blockchain")
	notReady(t, m.Recover(t.Context(), "", nil, func(string) {}), "rescan blockchain", "no answer within 200ms")

	ctx, cancel := context.WithCancel(t.Context())
	wallet.Before("rescan_blockchain", cancel)
	if err := m.Recover(ctx, "", nil, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wallet.Restore()
	scan(t, m, 0)
}

func TestChain_CorruptCache_ErrorHasRemedy(t *testing.T) {
	net := rig.Monero(t)
	wallet, m, made := ownWallet(t, net, 3)
	newest := made[2]
	wallet.CorruptCache(t)
	_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
	notReady(t, err, "delete the wallet's cache file", "keep the .keys file")
	wallet.Kill() // with --wallet-file, monero-wallet-rpc exits
	_, err = m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
	if err == nil || !strings.Contains(err.Error(), "delete the wallet's cache file") {
		t.Errorf("got %v", err)
	}
	wallet.Launch(t)
	wallet.DeleteCache(t)
	if err := m.Holds(t.Context(), newest); !errors.Is(err, card.ErrWalletLost) {
		t.Errorf("got %v, want ErrWalletLost", err)
	}
	if err := m.Recover(t.Context(), "", &newest, func(string) {}); err != nil {
		t.Error(err)
	}
	if err := m.Holds(t.Context(), newest); err != nil {
		t.Errorf("got %v", err)
	}
}
