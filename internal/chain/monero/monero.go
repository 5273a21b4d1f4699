// Package monero watches Monero through monerod and a view-only
// monero-wallet-rpc.
//
// It may import packages card, settle, chain/driver and chain/rpc. It converts
// a node's responses into a settle.View, and keeps no state that a crash could
// lose.
package monero

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
	"github.com/cardmint/cardmint/internal/settle"
)

// Config locates node and wallet. The wallet must be view-only, and open.
type Config struct {
	// Coin is the currency. Defaults to the registry's.
	Coin card.Currency
	// WalletURL is the address of monero-wallet-rpc. Defaults to
	// http://127.0.0.1:18083.
	WalletURL string
	// WalletUser and WalletPassword are monero-wallet-rpc's --rpc-login.
	// Defaults to no login.
	WalletUser     string
	WalletPassword card.Secret
	// WalletFile is the name of a wallet in monero-wallet-rpc's --wallet-dir,
	// opened whenever no wallet is open. Defaults to none: the wallet must then
	// be opened by other means, such as --wallet-file.
	WalletFile string
	// WalletFilePassword is the password of WalletFile. Defaults to the empty
	// password.
	WalletFilePassword card.Secret
	// DaemonURL is the address of monerod's unrestricted RPC. Defaults to
	// http://127.0.0.1:18081.
	DaemonURL string
	// DaemonUser and DaemonPassword are monerod's --rpc-login. Defaults to no
	// login.
	DaemonUser     string
	DaemonPassword card.Secret
	// MaxTipAge is the highest trusted age of the newest block: a node that is
	// cut off from the network still reports that it is synchronized. Defaults
	// to 30 min; a negative value allows any age.
	MaxTipAge time.Duration
	// Timeout limits every call without a limit below. Defaults to 15 s.
	Timeout time.Duration
	// RefreshTimeout limits the opening of the wallet, and its reading of new
	// blocks in one pass. Defaults to 1 min.
	RefreshTimeout time.Duration
	// RescanTimeout limits a rescan. Defaults to 24 h.
	RescanTimeout time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Validate fills in the defaults, and returns an error that lists every invalid
// field. The error never contains a password.
func (c *Config) Validate() error {
	if c.Coin.Code == "" {
		c.Coin = Coin().Currency
	}
	if c.WalletURL == "" {
		c.WalletURL = "http://127.0.0.1:18083"
	}
	if c.DaemonURL == "" {
		c.DaemonURL = "http://127.0.0.1:18081"
	}
	if c.MaxTipAge == 0 {
		c.MaxTipAge = 30 * time.Minute
	}
	if c.Timeout == 0 {
		c.Timeout = 15 * time.Second
	}
	if c.RefreshTimeout == 0 {
		c.RefreshTimeout = time.Minute
	}
	if c.RescanTimeout == 0 {
		c.RescanTimeout = 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	wrong := []error{
		rpc.CheckEndpoint("wallet URL", c.WalletURL, c.WalletUser, c.WalletPassword),
		rpc.CheckEndpoint("daemon URL", c.DaemonURL, c.DaemonUser, c.DaemonPassword),
	}
	if c.WalletFile == "" && c.WalletFilePassword != "" {
		wrong = append(wrong, errors.New("wallet file: has a password but no name"))
	}
	if strings.ContainsAny(c.WalletFile, `/\`) { // monero-wallet-rpc refuses it
		wrong = append(wrong, errors.New("wallet file: must be a name in monero-wallet-rpc's --wallet-dir, not a path"))
	}
	if c.Timeout < 0 || c.RefreshTimeout < 0 || c.RescanTimeout < 0 {
		wrong = append(wrong, errors.New("timeouts: must be positive"))
	}
	return errors.Join(wrong...)
}

// Chain reads incoming transfers from monerod and a view-only
// monero-wallet-rpc. It implements settle.Chain and driver.Node. Every pass
// reads everything it needs, so that a restart loses nothing.
type Chain struct {
	config Config
	wallet *rpc.Client
	daemon *rpc.Client
	// scanned is the primary address of the wallet of the last Scan.
	scanned        atomic.Pointer[string]
	volatileBeacon atomic.Pointer[settle.Beacon] // in the wallet's memory, not in its file
	cache          addressCache
	maxBlocks      int64 // per call for transfers
	maxReply       int64 // bytes of such a call's response
}

// New returns the chain without any call. It returns an error if config is not
// valid.
func New(config Config) (*Chain, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("monero: %w", err)
	}
	return &Chain{
		config: config,
		wallet: rpc.New(endpoint(config.WalletURL), config.WalletUser, config.WalletPassword),
		daemon: rpc.New(endpoint(config.DaemonURL), config.DaemonUser, config.DaemonPassword), maxBlocks: maxBlocksPerCall,
		maxReply: largeReply,
	}, nil
}

// endpoint returns the address of a program's JSON-RPC methods.
func endpoint(base string) string { return strings.TrimSuffix(base, "/") + "/json_rpc" }

// Close closes idle connections to node and wallet. monerod accepts only 25
// from one machine.
func (m *Chain) Close() {
	m.wallet.Close()
	m.daemon.Close()
}

// Currency implements settle.Chain.
func (m *Chain) Currency() card.Currency { return m.config.Coin }

// Scan implements settle.Chain. It never uses a wallet with a spend key: every
// pass fails with ErrSpendKey and card.ErrWrongChain. If the wallet is for
// another network than the node, every pass fails with card.ErrWrongChain.
//
// The error is card.ErrChainNotReady if node and wallet do not show the same,
// stable state of the chain: the node is synchronizing or cut off, the wallet
// is closed or at another height, or the top block changed twice during the
// pass. The next pass may succeed. It is card.ErrWrongAnswer, a case of that,
// if a response is incomplete or cannot be right: unknown is never zero.
//
// Scan returns every incoming transfer, even if it cannot belong to a card: to
// the primary address (directly or through an integrated address), to other
// accounts, and coinbases. Locked means that the sender's unlock time is still
// ahead; the 10 blocks before any output can be spent are not a lock. Mempool
// entries that the node has seen spent twice are omitted.
func (m *Chain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	return retryOpened(func() (settle.View, error) { return m.scan(ctx, q) })
}

// scan scans the chain, and a second time if a block arrived during the first
// scan.
func (m *Chain) scan(ctx context.Context, q settle.Query) (settle.View, error) {
	var tip card.Tip
	view, err := m.scanAt(ctx, q, &tip)
	if tip.Hash == "" || !errors.Is(err, card.ErrChainNotReady) || errors.Is(err, errOpened) {
		return view, err
	}
	// Node and wallet may differ because only one of them had the new block.
	if !errors.Is(err, errTipChanged) && !errors.Is(m.checkSameTip(ctx, tip), errTipChanged) {
		return view, err
	}
	return m.scanAt(ctx, q, &tip)
}

// scanAt scans the chain up to the node's top block, and stores that in top.
func (m *Chain) scanAt(ctx context.Context, q settle.Query, top *card.Tip) (settle.View, error) {
	network, wallet, err := m.identify(ctx)
	if err != nil {
		return settle.View{}, err
	}
	tip, err := m.topBlock(ctx)
	if err != nil {
		return settle.View{}, err
	}
	if err := m.checkFresh(tip); err != nil {
		return settle.View{}, err
	}
	*top = tip
	if err := m.refresh(ctx); err != nil {
		return settle.View{}, err
	}
	if err := m.checkWalletHeight(ctx, q.Known, tip); err != nil {
		return settle.View{}, err
	}
	kept, err := m.keptHeight(ctx, q.Known, tip)
	if err != nil {
		return settle.View{}, err
	}
	view := q.View(kept)
	entries, err := m.incoming(ctx, view, tip.Height)
	if err != nil {
		return settle.View{}, err
	}
	if err := m.confirmAddresses(ctx, wallet, entries); err != nil {
		return settle.View{}, err
	}
	view.Deep, err = m.deepBlock(ctx, q.Known, tip)
	if err != nil {
		return settle.View{}, err
	}
	// The entries belong to this wallet and this chain only if neither has
	// changed since the first call.
	if err := m.checkSameWallet(ctx, wallet); err != nil {
		m.cache.clear() // it may have been filled from the other wallet
		return settle.View{}, err
	}
	if err := m.checkSameTip(ctx, tip); err != nil {
		return settle.View{}, err
	}
	view.Transfers, err = m.transfers(entries, tip)
	if err != nil {
		return settle.View{}, err
	}
	m.scanned.Store(&wallet)
	view.Fingerprint, view.Tip = network+" "+wallet, tip
	return view, nil
}

// Identify implements driver.Node.
func (m *Chain) Identify(ctx context.Context) (string, error) {
	return retryOpened(func() (string, error) {
		network, wallet, err := m.identify(ctx)
		if err != nil {
			return "", err
		}
		return network + " " + wallet, nil
	})
}

// identify returns the node's network (its name and genesis block) and the
// wallet's primary address, if the node is ready and the wallet is fit. The
// name is needed because a regtest chain (fakechain) has the genesis block and
// the addresses of mainnet.
func (m *Chain) identify(ctx context.Context) (network, wallet string, err error) {
	info, err := m.daemonInfo(ctx)
	if err != nil {
		return "", "", err
	}
	if wallet, err = m.checkWallet(ctx, info); err != nil {
		return "", "", err
	}
	if err := info.checkReady(); err != nil {
		return "", "", err
	}
	genesis, err := m.genesis(ctx)
	return info.Network + " " + genesis, wallet, err
}

// checkFresh returns card.ErrChainNotReady if tip, the node's newest block, is
// older than MaxTipAge.
func (m *Chain) checkFresh(tip card.Tip) error {
	age := m.config.Now().Sub(tip.Time)
	if m.config.MaxTipAge < 0 || age <= m.config.MaxTipAge {
		return nil
	}
	return card.Unready(daemonName +
		": newest block too old").Wrap(fmt.Errorf("%w: the node's newest block, %d, is %d minutes old: the node "+
		"is cut off from the network, or this machine's clock is wrong", card.ErrChainNotReady, tip.Height,
		int64(age.Round(time.Minute)/time.Minute)))
}

// deepestReorg is the deepest reorganization, in blocks, that the wallet
// follows (ORPHANED_BLOCKS_MAX_COUNT of wallet2). After a deeper one it stays
// on the old chain. The wallet of 0.18.0 then reports success, and at most its
// height reveals the failure.
const deepestReorg = 100

// deepBlock returns the block whose replacement the wallet cannot follow, if
// tip is new; otherwise the zero Tip.
func (m *Chain) deepBlock(ctx context.Context, known []card.Tip, tip card.Tip) (card.Tip, error) {
	if tip.Height <= deepestReorg || len(known) > 0 && known[0].Hash == tip.Hash {
		return card.Tip{}, nil
	}
	return m.block(ctx, tip.Height-deepestReorg)
}

// keptHeight returns the height of the first tip in known that is part of the
// chain up to tip; 0 if none is.
func (m *Chain) keptHeight(ctx context.Context, known []card.Tip, tip card.Tip) (int64, error) {
	for _, k := range known {
		if k.Hash == tip.Hash {
			return k.Height, nil
		}
		if k.Height >= tip.Height {
			continue // the chain is shorter now, or has another block there
		}
		there, err := m.block(ctx, k.Height)
		if hasCode(err, codeTooBigHeight) {
			return 0, fmt.Errorf("%w: the chain became shorter during the pass: %w", card.ErrChainNotReady, err)
		}
		if err != nil {
			return 0, err
		}
		if there.Hash == k.Hash {
			return k.Height, nil
		}
	}
	return 0, nil
}

// checkSameWallet returns card.ErrChainNotReady if the primary address is no
// longer wallet.
func (m *Chain) checkSameWallet(ctx context.Context, wallet string) error {
	now, err := m.primaryAddress(ctx)
	if err != nil {
		return err
	}
	if now != wallet {
		return fmt.Errorf("%w: another wallet was opened during the pass", card.ErrChainNotReady)
	}
	return nil
}

// checkWalletHeight returns card.ErrChainNotReady unless the wallet has read
// exactly the blocks up to tip. A wallet that is ahead shows transfers and
// confirmations of blocks that the node has dropped. The error is
// card.ErrWalletLost if the wallet is behind because it cannot follow.
func (m *Chain) checkWalletHeight(ctx context.Context, known []card.Tip, tip card.Tip) error {
	const apart = card.Unready("node and wallet are at different blocks")
	height, err := m.walletHeight(ctx)
	switch {
	case err != nil:
		return err
	case height > tip.Height:
		return apart.Wrap(
			fmt.Errorf("%w: wallet is at block %d, node only at %d: the node dropped blocks, or wallet and node use different nodes",
				card.ErrChainNotReady, height, tip.Height))
	case height < tip.Height:
		if err := m.checkFollowed(ctx, known, tip); err != nil {
			return err
		}
		return apart.Wrap(
			fmt.Errorf("%w: wallet is at block %d, node at %d: if this persists, wallet and node use different nodes, or the chain "+
				"reorganized deeper than the wallet can follow (100 blocks; run 'cardmint wallet rescan')", card.ErrChainNotReady,
				height, tip.Height))
	}
	return nil
}

// checkFollowed returns card.ErrWalletLost if the chain lacks a known tip that
// is as old as the deepest reorganization the wallet follows.
func (m *Chain) checkFollowed(ctx context.Context, known []card.Tip, tip card.Tip) error {
	kept, err := m.keptHeight(ctx, known, tip)
	if err != nil {
		return err
	}
	for _, k := range known {
		if k.Height > kept && k.Height <= known[0].Height-deepestReorg {
			return fmt.Errorf("%w: the chain reorganized below block %d, deeper than the wallet follows", card.ErrWalletLost,
				k.Height)
		}
	}
	return nil
}

// errTipChanged means that the node's top block changed.
var errTipChanged = fmt.Errorf("%w: top block changed", card.ErrChainNotReady)

// checkSameTip returns errTipChanged if the node's top block is no longer tip.
func (m *Chain) checkSameTip(ctx context.Context, tip card.Tip) error {
	now, err := m.topBlock(ctx)
	if err != nil {
		return err
	}
	if now.Hash != tip.Hash {
		return fmt.Errorf("%w from %d to %d during the pass", errTipChanged, tip.Height, now.Height)
	}
	return nil
}

// Holds implements settle.Chain (get_address). The error is card.ErrWrongChain
// if the wallet has another address in newest's position, or is not the wallet
// of the last Scan.
func (m *Chain) Holds(ctx context.Context, newest settle.Address) error {
	_, err := retryOpened(func() (struct{}, error) { return struct{}{}, m.holds(ctx, newest) })
	return err
}

func (m *Chain) holds(ctx context.Context, newest settle.Address) error {
	if err := m.checkScannedWallet(ctx); err != nil { // first, because a different wallet has not lost its addresses
		return err
	}
	have, err := m.subaddress(ctx, newest.Position)
	switch {
	case err != nil:
		return err
	case have == "":
		return fmt.Errorf("%w: it no longer has subaddress %d: its cache file was lost, or replaced by an older one",
			card.ErrWalletLost, newest.Position)
	case have != newest.Address:
		return fmt.Errorf("%w: subaddress %d of the wallet is not the stored one", card.ErrWrongChain, newest.Position)
	}
	return nil
}

// checkScannedWallet returns card.ErrWrongChain if another wallet is open than
// in the last Scan.
func (m *Chain) checkScannedWallet(ctx context.Context) error {
	wallet, err := m.primaryAddress(ctx)
	if err != nil {
		return err
	}
	if scanned := m.scanned.Load(); scanned != nil && *scanned != wallet {
		return fmt.Errorf("%w: another wallet was opened", card.ErrWrongChain)
	}
	return nil
}
