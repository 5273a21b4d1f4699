package monero

import (
	"context"
	"errors"
	"fmt"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
	"github.com/cardmint/cardmint/internal/settle"
)

// repairCache is the operator's remedy for a damaged cache. Recover does the
// rest once the wallet can be opened.
const repairCache = "delete the wallet's cache file, which has no extension, but keep the .keys file: its addresses and payments will then " +
	"be restored automatically"

// errOpened means that the wallet was closed and has been opened. It is now in
// the state of its last store, so all earlier responses are void.
var errOpened = fmt.Errorf("%w: monero-wallet-rpc had no wallet open; it is opened now", card.ErrChainNotReady)

// retryOpened calls f, and a second time if the first call had to open the
// wallet.
func retryOpened[T any](f func() (T, error)) (T, error) {
	v, err := f()
	if errors.Is(err, errOpened) {
		return f()
	}
	return v, err
}

// open stores the wallet that is open, if any, and opens the configured one
// (open_wallet). The error includes the remedy.
func (m *Chain) open(ctx context.Context) error {
	name := m.config.WalletFile
	var ignored struct{}
	params := map[string]any{"filename": name, "password": m.config.WalletFilePassword.Reveal()}
	err := m.wallet.Call(ctx, rpc.Limit{Time: m.config.RefreshTimeout, Bytes: smallReply}, "open_wallet", params, &ignored)
	if _, reported := errors.AsType[*rpc.Error](err); reported {
		err = card.Unready(walletName + ": wallet can't be opened").Wrap(err)
	} else {
		err = withCause(walletName, err)
	}
	failure, ok := errors.AsType[*rpc.Error](err)
	switch {
	case !ok:
		return walletFailure(ctx, err)
	case failure.Code == codeNoWalletDir:
		return fmt.Errorf(
			"%w: monero-wallet-rpc can't open the wallet %q: start it with --wallet-dir in place of --wallet-file: %w",
			card.ErrChainNotReady, name, err)
	}
	return fmt.Errorf(
		"%w: monero-wallet-rpc can't open the wallet %q: its log says why; if %[2]s.keys is not in its --wallet-dir, put it "+
			"there; if the password is wrong, correct the configuration; if another program has the wallet open, end that; if its cache is "+
			"damaged, %[3]s: %[4]w", card.ErrChainNotReady, name, repairCache, err)
}

// Recover implements settle.Chain (create_address, rescan_blockchain). The
// error is card.ErrWrongChain also if the wallet has another address in
// newest's position; it then does not rescan.
//
// The wallet stores its addresses before the rescan, and the found payments
// after it. If it is killed in between, nothing shows that the rescan is
// incomplete, so a caller that has not seen Recover succeed must call it again.
// During the rescan the wallet does not respond to other calls, even if the
// caller's context is canceled.
func (m *Chain) Recover(ctx context.Context, fingerprint string, newest *settle.Address, progress func(string)) error {
	_, err := retryOpened(func() (struct{}, error) { return struct{}{}, m.recover(ctx, fingerprint, newest, progress) })
	return err
}

func (m *Chain) recover(ctx context.Context, fingerprint string, newest *settle.Address, progress func(string)) error {
	network, wallet, err := m.identify(ctx)
	if err != nil {
		return err
	}
	if is := network + " " + wallet; fingerprint != "" && is != fingerprint {
		return fmt.Errorf("%w: %q, not %q", card.ErrWrongChain, is, fingerprint)
	}
	if newest != nil {
		if err := m.restoreAddresses(ctx, *newest, progress); err != nil {
			return fmt.Errorf("make addresses again: %w", err)
		}
	}
	progress("the wallet is rescanning its chain")
	if err := m.rescan(ctx); err != nil {
		return err
	}
	return m.store(ctx)
}

// restoreAddresses makes the missing addresses up to newest, and stores the
// wallet.
func (m *Chain) restoreAddresses(ctx context.Context, newest settle.Address, progress func(string)) error {
	have, err := m.subaddress(ctx, newest.Position)
	if err != nil {
		return err
	}
	missing := int64(1) // at least; the position of the first one made shows how many
	for have == "" && missing > 0 {
		made, err := m.createAddresses(ctx, int(min(missing, maxAddressesPerCall)))
		if err != nil {
			return err
		}
		last := made[len(made)-1].Position
		missing = newest.Position - last
		progress(fmt.Sprintf("made %d of %d addresses again", last, newest.Position))
	}
	if have, err = m.subaddress(ctx, newest.Position); err != nil {
		return err
	}
	if have != newest.Address {
		return fmt.Errorf("%w: subaddress %d of the wallet is not the stored one", card.ErrWrongChain, newest.Position)
	}
	return m.store(ctx)
}

// rescan makes the wallet forget its payments and scan the whole chain for
// them. It keeps its addresses.
func (m *Chain) rescan(ctx context.Context) error {
	var ignored struct{}
	return m.callWallet(ctx, rpc.Limit{Time: m.config.RescanTimeout, Bytes: smallReply}, "rescan_blockchain",
		map[string]any{"hard": false}, &ignored)
}
