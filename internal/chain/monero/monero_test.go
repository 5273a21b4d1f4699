package monero_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

const xmr = 1_000_000_000_000 // piconero

func TestMain(m *testing.M) { rig.Main(m) }

// merchant returns the network and the chain of its merchant's wallet.
func merchant(t *testing.T) (*rig.MoneroNet, *monero.Chain) {
	t.Helper()
	net := rig.Monero(t)
	return net, newMonero(t, monero.Config{WalletURL: net.WalletURL, DaemonURL: net.DaemonURL})
}

func newMonero(t testing.TB, config monero.Config) *monero.Chain {
	t.Helper()
	m, err := monero.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func scan(t *testing.T, m *monero.Chain, since int64) settle.View {
	t.Helper()
	view, err := m.Scan(t.Context(), settle.Query{Since: since, Newest: settle.NoPosition})
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func newAddress(t *testing.T, m *monero.Chain) settle.Address {
	t.Helper()
	as, err := m.NewAddresses(t.Context(), settle.NoPosition, 1)
	if err != nil {
		t.Fatal(err)
	}
	return as[0]
}

// to returns the transfers of a view to an address.
func to(view settle.View, address string) []card.Transfer {
	var ts []card.Transfer
	for _, t := range view.Transfers {
		if t.Address == address {
			ts = append(ts, t)
		}
	}
	return ts
}

// one returns the transfer of a view to an address, which must be the only one.
func one(t *testing.T, view settle.View, address string) card.Transfer {
	t.Helper()
	ts := to(view, address)
	if len(ts) != 1 {
		t.Fatalf("transfers to %s: got %+v, want one", address, ts)
	}
	return ts[0]
}

func TestChain_MempoolThenConfirmations(t *testing.T) {
	net, m := merchant(t)
	address := newAddress(t, m)
	before := net.Height(t)
	txID := net.Pay(t, address.Address, 3*xmr)

	view := scan(t, m, before)
	got := one(t, view, address.Address)
	want := card.Transfer{Currency: "monero", TxID: txID, Output: address.Position, Address: address.Address,
		Amount:      3 * xmr,
		FirstSeenAt: got.FirstSeenAt}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if age := time.Since(got.FirstSeenAt); age < 0 || age > time.Minute {
		t.Errorf("first seen %s ago", age)
	}
	if view.Tip.Height != before || view.Since != before {
		t.Errorf("tip %d, since %d; want both %d", view.Tip.Height, view.Since, before)
	}

	net.Mine(t, 3)
	view = scan(t, m, before)
	if got := one(t, view, address.Address); got.Height != before+1 || got.Locked {
		t.Errorf("height %d, locked %t; want %d, false", got.Height, got.Locked, before+1)
	}
	if confirmations := view.Tip.Height - got.Height + 1; view.Tip.Height != net.Height(t) || confirmations <= 0 {
		t.Errorf("tip is %d, node is at %d", view.Tip.Height, net.Height(t))
	}
	if view := scan(t, m, before+1); len(to(view, address.Address)) != 0 {
		t.Error("since is not exclusive")
	}
}

func TestChain_ReorgUnseesTransfer(t *testing.T) {
	net, m := merchant(t)
	address := newAddress(t, m)
	start := net.Height(t)
	net.Pay(t, address.Address, xmr)
	net.Mine(t, 18)
	first := scan(t, m, start)
	one(t, first, address.Address)
	net.Reorg(t, 18, 19, true)
	second := scan(t, m, start)
	if ts := to(second, address.Address); len(ts) != 0 {
		t.Errorf("still there: %+v", ts)
	}
	if first.Fingerprint != second.Fingerprint || first.Tip.Hash == second.Tip.Hash {
		t.Error("a reorganization must change only the tip")
	}
}

func TestChain_ReorgMinesTransferAtAnotherHeight(t *testing.T) {
	net, m := merchant(t)
	address := newAddress(t, m)
	start := net.Height(t)
	// made now, so that its decoys are old enough for the lower height
	tx := net.Conflict(t, address.Address, net.Address)[0]
	net.Mine(t, 8)
	if err := net.Send(t, tx); err != nil {
		t.Fatal(err)
	}
	net.Confirm(t, tx.TxID, 1)
	high := net.Height(t)
	if got := one(t, scan(t, m, start), address.Address); got.Height != high {
		t.Fatalf("height %d, want %d", got.Height, high)
	}
	net.Reorg(t, int(high-start), 1, false)
	net.Confirm(t, tx.TxID, 1) // a busy node may leave it out of the first blocks
	if got := one(t, scan(t, m, start), address.Address); got.TxID != tx.TxID || got.Height <= start ||
		got.Height >= high {
		t.Errorf("got %+v, want %s between %d and %d", got, tx.TxID, start, high)
	}
}

func TestChain_StaleConfirmationsAfterPopBlocks(t *testing.T) {
	net, m := merchant(t)
	address := newAddress(t, m)
	start := net.Height(t)
	net.Pay(t, address.Address, xmr)
	net.Mine(t, 3)
	one(t, scan(t, m, start), address.Address)
	net.Pop(t, 3)
	view, err := m.Scan(t.Context(), settle.Query{Since: start, Newest: settle.NoPosition})
	if !errors.Is(err, card.ErrChainNotReady) {
		t.Fatalf("got %+v, %v; want ErrChainNotReady", view, err)
	}
	net.Mine(t, 1)
	if got := one(t, scan(t, m, start), address.Address); got.Height != start+1 {
		t.Errorf("height %d, want %d", got.Height, start+1)
	}
}

func TestChain_DoubleSpend_VanishesFromMempool(t *testing.T) {
	net, m := merchant(t)
	address := newAddress(t, m)
	start := net.Height(t)
	txs := net.Conflict(t, address.Address, net.Address)
	if err := net.Send(t, txs[0]); err != nil {
		t.Fatal(err)
	}
	if got := one(t, scan(t, m, start), address.Address); got.TxID != txs[0].TxID || int64(got.Amount) != txs[0].Amount {
		t.Fatalf("got %+v", got)
	}
	if err := net.Send(t, txs[1]); err == nil {
		t.Fatal("the node accepted a double spend")
	}
	net.DropMempool(t)
	if err := net.Send(t, txs[1]); err != nil {
		t.Fatal(err)
	}
	net.Mine(t, 1)
	view := scan(t, m, start)
	if ts := to(view, address.Address); len(ts) != 0 {
		t.Errorf("still there: %+v", ts)
	}
	if got := one(t, view, net.Address); got.TxID != txs[1].TxID {
		t.Errorf("got %+v, want %s", got, txs[1].TxID)
	}
}

func TestChain_OneTransactionSeveralOutputs(t *testing.T) {
	net, m := merchant(t)
	a, b := newAddress(t, m), newAddress(t, m)
	start := net.Height(t)
	txID := net.PayMany(t, rig.MoneroOutput{Address: a.Address, Amount: 1},
		rig.MoneroOutput{Address: b.Address, Amount: 20},
		rig.MoneroOutput{Address: a.Address, Amount: 300})
	for _, where := range []string{"mempool", "block"} {
		view := scan(t, m, start)
		for address, amount := range map[settle.Address]card.Amount{a: 301, b: 20} {
			if got := one(t, view, address.Address); got.TxID != txID || got.Amount != amount || got.Output != address.Position {
				t.Errorf("%s: got %+v, want %d", where, got, amount)
			}
		}
		net.Mine(t, 1)
	}
}

func TestChain_ReadInParts_SameTransfers(t *testing.T) {
	net, m := merchant(t)
	a := newAddress(t, m)
	for range 4 { // in adjacent blocks, so that parts begin at some of them
		net.PayMany(t, rig.MoneroOutput{Address: a.Address, Amount: 7})
		net.Mine(t, 1)
	}
	net.Pay(t, a.Address, 8)
	whole := scan(t, m, 0)
	if len(to(whole, a.Address)) != 5 {
		t.Fatalf("%d transfers", len(to(whole, a.Address)))
	}
	for stretch := range int64(3) {
		m.SetMaxBlocks(stretch + 1)
		if diff := cmp.Diff(whole.Transfers, scan(t, m, 0).Transfers, byTxID,
			cmpopts.IgnoreFields(card.Transfer{}, "FirstSeenAt")); diff != "" {
			t.Errorf("in parts of %d: %s", stretch+1, diff)
		}
	}
}

// byTxID ignores the order of transfers in a comparison.
var byTxID = cmpopts.SortSlices(func(a, b card.Transfer) bool {
	return a.TxID < b.TxID || a.TxID == b.TxID && a.Output < b.Output
})

func TestChain_MoneyForNoCard(t *testing.T) {
	net, m := merchant(t)
	start := net.Height(t)
	var integrated struct {
		Address string `json:"integrated_address"`
	}
	var account struct {
		Index   int64 `json:"account_index"`
		Address string
	}
	net.Wallet.Call(t, "make_integrated_address", nil, &integrated)
	net.Wallet.Call(t, "create_account", nil, &account)
	want := map[string]card.Amount{
		net.Pay(t, net.Address, 1): 1, net.Pay(t, integrated.Address, 2): 2, net.Pay(t, account.Address, 3): 3,
	}
	net.MineTo(t, net.Address, 1)

	view := scan(t, m, start)
	coinbases := 0
	outputs := map[int64]bool{}
	for _, got := range view.Transfers {
		amount, known := want[got.TxID]
		switch {
		case !known: // the block reward
			coinbases++
			if !got.Locked || got.Address != net.Address || got.Output != 0 {
				t.Errorf("coinbase: got %+v", got)
			}
			continue
		case got.Amount != amount || got.Locked || got.Height != start+1:
			t.Errorf("got %+v, want amount %d at %d", got, amount, start+1)
		case amount == 3 && (got.Address != account.Address || got.Output != account.Index<<32):
			t.Errorf("account %d: got %+v", account.Index, got)
		case amount != 3 && (got.Address != net.Address || got.Output != 0):
			t.Errorf("primary address: got %+v", got)
		}
		outputs[got.Output] = true
		delete(want, got.TxID)
	}
	if len(want) != 0 || coinbases != 1 || len(outputs) != 2 {
		t.Errorf("missing %v, %d coinbases, outputs %v", want, coinbases, outputs)
	}
}

func TestChain_LockedTransferWithConfirmations(t *testing.T) {
	net, m := merchant(t)
	start := net.Height(t)
	block, soon, clock, past, free := newAddress(t, m), newAddress(t, m), newAddress(t, m), newAddress(t, m),
		newAddress(t, m)
	output := func(a settle.Address) rig.MoneroOutput { return rig.MoneroOutput{Address: a.Address, Amount: 1} }
	net.PayLocked(t,
		rig.MoneroLocked{UnlockTime: uint64(start + 500), MoneroOutput: output(block)},
		rig.MoneroLocked{UnlockTime: uint64(start + 13), MoneroOutput: output(soon)},
		rig.MoneroLocked{UnlockTime: uint64(time.Now().Add(24 * time.Hour).Unix()), MoneroOutput: output(clock)},
		rig.MoneroLocked{UnlockTime: 1, MoneroOutput: output(past)},
		rig.MoneroLocked{UnlockTime: 0, MoneroOutput: output(free)})
	locked := func() map[string]bool {
		view := scan(t, m, start)
		return map[string]bool{"block": one(t, view, block.Address).Locked, "soon": one(t, view, soon.Address).Locked,
			"clock": one(t, view, clock.Address).Locked, "past": one(t, view, past.Address).Locked,
			"free": one(t, view, free.Address).Locked}
	}
	// the wallet reports the 10 blocks before any output can be spent like an
	// unlock time
	early := map[string]bool{"block": true, "soon": true, "clock": true, "past": true, "free": false}
	if diff := cmp.Diff(early, locked()); diff != "" {
		t.Errorf("mempool: %s", diff)
	}
	net.Mine(t, 10)
	if diff := cmp.Diff(map[string]bool{"block": true, "soon": true, "clock": true, "past": false, "free": false},
		locked()); diff != "" {
		t.Errorf("10 confirmations: %s", diff)
	}
	net.Mine(t, 4)
	if diff := cmp.Diff(map[string]bool{"block": true, "soon": false, "clock": true, "past": false, "free": false},
		locked()); diff != "" {
		t.Errorf("14 confirmations: %s", diff)
	}
}

func TestChain_AddressesSurviveKilledWallet(t *testing.T) {
	net := rig.Monero(t)
	wallet := net.NewWallet(t, "", "")
	m := newMonero(t, monero.Config{WalletURL: wallet.URL, DaemonURL: net.DaemonURL})
	first, err := m.NewAddresses(t.Context(), settle.NoPosition, 70) // more than the limit of one call
	if err != nil {
		t.Fatal(err)
	}
	wallet.Kill()
	wallet.Start(t)
	second, err := m.NewAddresses(t.Context(), settle.NoPosition, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := append(first, second...)
	if len(all) != 71 {
		t.Fatalf("got %d addresses", len(all))
	}
	seen := map[string]bool{}
	for i, a := range all {
		if a.Currency != "monero" || a.Position != all[0].Position+int64(i) || a.Position == 0 || seen[a.Address] {
			t.Errorf("address %d: %+v", i, a)
		}
		seen[a.Address] = true
	}
	if none, err := m.NewAddresses(t.Context(), settle.NoPosition, 0); err != nil || len(none) != 0 {
		t.Errorf("no addresses: got %v, %v", none, err)
	}
}

func TestChain_WalletRestarts_LoginWorks(t *testing.T) {
	net := rig.Monero(t)
	wallet := net.NewWallet(t, "merchant", "correct-horse")
	config := monero.Config{WalletURL: wallet.URL, WalletUser: "merchant", WalletPassword: "correct-horse",
		DaemonURL: net.DaemonURL}
	m := newMonero(t, config)
	scan(t, m, 0)
	wallet.Kill()
	wallet.Start(t) // with a new nonce
	scan(t, m, 0)

	var group sync.WaitGroup
	for range 8 { // a nonce belongs to a connection, so calls must not disturb each other
		group.Go(func() {
			if _, err := m.Inspect(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()

	for _, wrong := range []card.Secret{"battery-staple", ""} {
		config.WalletPassword = wrong
		if wrong == "" {
			config.WalletUser = ""
		}
		_, err := newMonero(t, config).Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
		if err == nil || !strings.Contains(err.Error(), "login refused") || strings.Contains(err.Error(), "battery") {
			t.Errorf("password %q: got %v", wrong.Reveal(), err)
		}
	}
}

func TestChain_Inspect_Reports(t *testing.T) {
	net, m := merchant(t)
	newAddress(t, m)
	scan(t, m, 0)
	got, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	height := net.Height(t)
	want := monero.Report{Network: "fakechain", Fork: 16, DaemonVersion: got.DaemonVersion, DaemonHeight: height,
		DaemonTime:         got.DaemonTime,
		DaemonSynchronized: true, WalletVersion: got.WalletVersion, WalletHeight: height, PrimaryAddress: net.Address,
		ViewOnly:     true,
		Subaddresses: got.Subaddresses, Warnings: got.Warnings}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.DaemonVersion == "" || got.WalletVersion == "" || got.Subaddresses < 2 ||
		time.Since(got.DaemonTime) > time.Hour {
		t.Errorf("got %+v", got)
	}
	if old := strings.HasPrefix(got.DaemonVersion, "0.18.0."); old != (len(got.Warnings) == 2) || !old &&
		len(got.Warnings) != 0 {
		t.Errorf("node %s, wallet %s: warnings %q", got.DaemonVersion, got.WalletVersion, got.Warnings)
	}
	t.Logf("node %s, wallet %s", got.DaemonVersion, got.WalletVersion)
}

func TestChain_WalletWithSpendKey_IsRejected(t *testing.T) {
	net := rig.Monero(t)
	m := newMonero(t, monero.Config{WalletURL: net.Payer.URL, DaemonURL: net.DaemonURL})
	report, err := m.Inspect(t.Context())
	if !errors.Is(err, monero.ErrSpendKey) || report.ViewOnly || report.PrimaryAddress == "" {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestChain_ClosedWallet(t *testing.T) {
	net, m := merchant(t)
	net.Wallet.Close(t)
	for name, do := range map[string]func(context.Context) error{
		"scan": func(ctx context.Context) error {
			_, err := m.Scan(ctx, settle.Query{Newest: settle.NoPosition})
			return err
		},
		"new addresses": func(ctx context.Context) error { _, err := m.NewAddresses(ctx, settle.NoPosition, 1); return err },
		"check":         func(ctx context.Context) error { _, err := m.Inspect(ctx); return err },
	} {
		if err := do(t.Context()); !errors.Is(err, card.ErrChainNotReady) || !strings.Contains(err.Error(), "--wallet-file") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	net.Wallet.Open(t)
	scan(t, m, 0)
}

func TestChain_FrozenNode(t *testing.T) {
	net := rig.Monero(t)
	const limit = 300 * time.Millisecond
	m := newMonero(t,
		monero.Config{WalletURL: net.WalletURL, DaemonURL: net.DaemonURL, Timeout: limit, RefreshTimeout: limit})
	recovers := func() error { _, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition}); return err }
	net.Daemon.Ready(t, 10*time.Second, recovers)
	net.Daemon.Freeze(t)
	t.Cleanup(net.Daemon.Thaw)
	started := time.Now()
	_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 5*limit {
		t.Errorf("got %v after %s", err, time.Since(started))
	}
	started = time.Now()
	if _, err := m.NewAddresses(t.Context(), settle.NoPosition, 1); time.Since(started) > 5*limit {
		t.Errorf("new addresses: %v after %s", err, time.Since(started))
	}
	net.Daemon.Thaw()
	net.Daemon.Ready(t, 30*time.Second, recovers)
}

func TestChain_KilledNode(t *testing.T) {
	net, m := merchant(t)
	height := scan(t, m, 0).Tip.Height
	net.Daemon.Kill()
	if _, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition}); err == nil {
		t.Error("no error without a node")
	}
	net.Daemon.Start(t)
	var view settle.View
	net.Daemon.Ready(t, 30*time.Second, func() (err error) {
		view, err = m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
		return err
	})
	if view.Tip.Height != height {
		t.Errorf("height %d, want %d", view.Tip.Height, height)
	}
}

func TestChain_Holds_ComparesWalletWithPool(t *testing.T) {
	_, m := merchant(t)
	made, err := m.NewAddresses(t.Context(), settle.NoPosition, 2)
	if err != nil {
		t.Fatal(err)
	}
	unknown := settle.Address{Currency: "monero", Address: made[1].Address, Position: made[1].Position + 1000}
	other := settle.Address{Currency: "monero", Address: made[0].Address, Position: made[1].Position}
	for name, tt := range map[string]struct {
		newest settle.Address
		err    error
	}{
		"agrees":                   {made[1], nil},
		"has made more":            {made[0], nil},
		"has lost its addresses":   {unknown, card.ErrWalletLost},
		"has another in its place": {other, card.ErrWrongChain},
	} {
		if err := m.Holds(t.Context(), tt.newest); !errors.Is(err, tt.err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
