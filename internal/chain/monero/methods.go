package monero

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
	"github.com/cardmint/cardmint/internal/settle"
)

// This file has the methods of monerod
// (https://docs.getmonero.org/rpc-library/monerod-rpc/) and monero-wallet-rpc
// (https://docs.getmonero.org/rpc-library/wallet-rpc/) that the package calls,
// with the fields it reads. To both, a height is the number of blocks;
// functions in this file return the height of the top block, which is one less.
//
// Fields that a decision needs are required: see rpc.Decode. Here, and for
// transfers in transfers.go, their values are checked. An impossible value is a
// card.ErrWrongAnswer.

// Codes of wallet_rpc_server_error_codes.h and core_rpc_server_error_codes.h.
const (
	codeUnknown       = -1
	codeTooBigHeight  = -2
	codeDaemonBusy    = -3
	codeDenied        = -7
	codeCoreBusy      = -9
	codeNotOpen       = -13
	codeAccountIndex  = -14
	codeAddressIndex  = -15
	codeNoWalletDir   = -23
	codeWatchOnly     = -29
	codeNoDaemon      = -38
	codeBadUnsignedTx = -39
	codeNoAttribute   = -45
)

const (
	smallReply = 1 << 20
	largeReply = 64 << 20

	maxBlocksPerCall    = 20_000
	fewBlocks           = 200    // never split into smaller parts; more than a pass rereads
	fewEntries          = 10_000 // about a tenth of the largest response
	maxAddressesPerCall = 64     // more are refused: "Count must be between 1 and 64."
)

// daemonInfo is the result of get_info.
type daemonInfo struct {
	Height       int64  `json:"height"` // number of blocks
	Synchronized bool   `json:"synchronized"`
	BusySyncing  bool   `json:"busy_syncing"`
	Offline      bool   `json:"offline"`
	Untrusted    bool   `json:"untrusted"` // answered by a bootstrap daemon
	Network      string `json:"nettype"`   // mainnet, testnet, stagenet or fakechain
	Status       string `json:"status"`
	Version      string `json:"version"`
}

// checkReady returns card.ErrChainNotReady, with the reason, if the node cannot
// be trusted now.
func (i daemonInfo) checkReady() error {
	reason, cause := "", card.Unready(daemonName+": not ready")
	switch {
	case i.Status != "OK":
		reason = fmt.Sprintf("node answers with status %q", rpc.Excerpt(i.Status))
	case i.Untrusted:
		reason = "node answers for a bootstrap daemon; run monerod without --bootstrap-daemon-address"
	case i.Offline && i.Network != "fakechain":
		reason = "node runs with --offline"
	case i.BusySyncing || !i.Synchronized:
		reason, cause = "node is still synchronizing", daemonName+": node not synchronized"
	default:
		return nil
	}
	return cause.Wrap(fmt.Errorf("get info: %w: %s", card.ErrChainNotReady, reason))
}

func (m *Chain) daemonInfo(ctx context.Context) (daemonInfo, error) {
	var info daemonInfo
	if err := m.callDaemon(ctx, "get_info", struct{}{}, &info); err != nil {
		return daemonInfo{}, err
	}
	if info.Status != "OK" { // the other fields are undefined
		return daemonInfo{Status: info.Status}, nil
	}
	switch {
	case info.Height < 1 || info.Height > maxHeight:
		return daemonInfo{}, wrongAnswer("get info", "height is %d", info.Height)
	case !slices.Contains([]string{"mainnet", "testnet", "stagenet", "fakechain"}, info.Network):
		return daemonInfo{}, wrongAnswer("get info", "nettype is %q", rpc.Excerpt(info.Network))
	}
	return info, nil
}

// wrongAnswer returns a card.ErrWrongAnswer with the fault in a method's
// response.
func wrongAnswer(method, format string, args ...any) error {
	return fmt.Errorf("%s: %w", method, rpc.WrongAnswer(fmt.Errorf(format, args...)))
}

// header is the result of get_last_block_header and get_block_header_by_height.
type header struct {
	BlockHeader struct {
		Hash      string `json:"hash"`
		Height    int64  `json:"height"`
		Timestamp int64  `json:"timestamp"` // Unix seconds; 0 of the genesis block
	} `json:"block_header"`
	Status    string `json:"status"`
	Untrusted bool   `json:"untrusted"`
}

// blockHeader reads a block header. The error is card.ErrChainNotReady if the
// node cannot be trusted now.
func (m *Chain) blockHeader(ctx context.Context, method string, params any) (card.Tip, error) {
	var h header
	if err := m.callDaemon(ctx, method, params, &h); err != nil {
		return card.Tip{}, err
	}
	b, name := h.BlockHeader, rpc.MethodName(method)
	switch {
	case h.Status != "OK":
		return card.Tip{}, fmt.Errorf("%s: %w: node answers with status %q", name, card.ErrChainNotReady,
			rpc.Excerpt(h.Status))
	case h.Untrusted:
		return card.Tip{}, fmt.Errorf("%s: %w: node answers for a bootstrap daemon", name, card.ErrChainNotReady)
	case !isHash(b.Hash):
		return card.Tip{}, wrongAnswer(name, "block_header.hash is %q", rpc.Excerpt(b.Hash))
	case b.Height < 0 || b.Height > maxHeight:
		return card.Tip{}, wrongAnswer(name, "block_header.height is %d", b.Height)
	case b.Timestamp < firstBlockTime && b.Height > 0, b.Timestamp < 0,
		b.Timestamp > m.config.Now().Add(clockLeeway).Unix():
		return card.Tip{}, wrongAnswer(name, "block_header.timestamp is %d, and this machine's clock shows %d", b.Timestamp,
			m.config.Now().Unix())
	}
	return card.Tip{Height: b.Height, Hash: b.Hash, Time: time.Unix(b.Timestamp, 0).UTC()}, nil
}

// Limits of plausible values.
const (
	firstBlockTime = 1397800000     // Unix time before Monero's first block
	maxHeight      = 500_000_000    // CRYPTONOTE_MAX_BLOCK_NUMBER; an unlock time is a height if it is below
	clockLeeway    = 24 * time.Hour // how far a block's or a wallet's time may be ahead of the local clock
)

func (m *Chain) topBlock(ctx context.Context) (card.Tip, error) {
	return m.blockHeader(ctx, "get_last_block_header", struct{}{})
}

// block returns the current block at a height. The error has codeTooBigHeight
// if there is none.
func (m *Chain) block(ctx context.Context, height int64) (card.Tip, error) {
	b, err := m.blockHeader(ctx, "get_block_header_by_height", map[string]any{"height": height})
	if err == nil && b.Height != height {
		return card.Tip{}, wrongAnswer("get block header by height", "block_header.height is %d, though %d was asked for",
			b.Height, height)
	}
	return b, err
}

func (m *Chain) genesis(ctx context.Context) (hash string, err error) {
	first, err := m.block(ctx, 0)
	return first.Hash, err
}

// refresh makes the wallet read new blocks. After a reorganization of more than
// 100 blocks, which the wallet cannot follow, the error is card.ErrWalletLost;
// but monero-wallet-rpc 0.18.0 reports success, and only the heights show that
// it stayed on the old chain.
func (m *Chain) refresh(ctx context.Context) error {
	var ignored struct{}
	return m.callWallet(ctx, rpc.Limit{Time: m.config.RefreshTimeout, Bytes: smallReply}, "refresh", struct{}{}, &ignored)
}

func (m *Chain) walletHeight(ctx context.Context) (int64, error) {
	var answer struct {
		Height int64 `json:"height"` // number of blocks
	}
	if err := m.callWallet(ctx, m.small(), "get_height", struct{}{}, &answer); err != nil {
		return 0, err
	}
	if answer.Height < 1 || answer.Height > maxHeight {
		return 0, wrongAnswer("get height", "height is %d", answer.Height)
	}
	return answer.Height - 1, nil
}

// primaryAddress returns subaddress 0 of account 0, which identifies the
// wallet.
func (m *Chain) primaryAddress(ctx context.Context) (string, error) {
	all, err := m.addressesAt(ctx, 0, []int64{0})
	if err != nil {
		return "", err
	}
	return all[0], nil
}

// subaddress returns a subaddress of account 0, or "" if the wallet has none at
// the index.
func (m *Chain) subaddress(ctx context.Context, index int64) (string, error) {
	all, err := m.addressesAt(ctx, 0, []int64{index})
	switch {
	case hasCode(err, codeAddressIndex):
		return "", nil
	case err != nil:
		return "", err
	}
	return all[0], nil
}

// addressesAt returns the addresses of an account at the indices. The error has
// codeAddressIndex if the wallet lacks one.
func (m *Chain) addressesAt(ctx context.Context, account int64, indices []int64) ([]string, error) {
	var answer struct {
		Address   string `json:"address"` // the account's
		Addresses []struct {
			Address string `json:"address"`
			Index   int64  `json:"address_index"`
		} `json:"addresses"`
	}
	params := map[string]any{"account_index": account, "address_index": indices}
	if err := m.callWallet(ctx, m.large(), "get_address", params, &answer); err != nil {
		return nil, err
	}
	if len(answer.Addresses) != len(indices) {
		return nil, wrongAnswer("get address", "addresses has %d entries, though %d were asked for", len(answer.Addresses),
			len(indices))
	}
	if err := checkAddressAt(answer.Address, answer.Address, account, 0); err != nil {
		return nil, wrongAnswer("get address", "address %w", err)
	}
	all, seen := make([]string, len(indices)), make(map[string]int64, len(indices))
	for i, a := range answer.Addresses {
		if a.Index != indices[i] {
			return nil, wrongAnswer("get address", "addresses[%d].address_index is %d, though %d was asked for", i, a.Index,
				indices[i])
		}
		if err := checkAddressAt(a.Address, answer.Address, account, a.Index); err != nil {
			return nil, wrongAnswer("get address", "addresses[%d].address %w", i, err)
		}
		if first, twice := seen[a.Address]; twice && first != a.Index {
			return nil, wrongAnswer("get address", "addresses[%d].address is that of index %d, too", i, first)
		}
		all[i], seen[a.Address] = a.Address, a.Index
	}
	return all, nil
}

// incoming returns the transfers to all accounts in the blocks of v up to tip,
// and in the mempool.
func (m *Chain) incoming(ctx context.Context, v settle.View, tip int64) ([]transferEntry, error) {
	var all []transferEntry
	for _, b := range v.Again {
		some, err := m.receivedInParts(ctx, b.First-1, b.Last, false)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	newest, err := m.receivedInParts(ctx, max(0, v.Since), tip, true)
	return append(all, newest...), err
}

// receivedInParts returns the transfers to all accounts above the height from
// up to last, and in the mempool if pool is set. A long range, as after a
// rescan, is read in parts, so that no response grows with the wallet's
// history. A part that is too large for one response is halved unless it has
// few blocks. With few blocks, the wallet hangs or its response is endless, so
// another call would not help.
func (m *Chain) receivedInParts(ctx context.Context, from, last int64, pool bool) ([]transferEntry, error) {
	var all []transferEntry
	for stretch := m.maxBlocks; ; {
		stretch = min(stretch, max(1, last-from)) // at most the rest, so that halving helps
		some, err := m.received(ctx, from, from+stretch, pool && from+stretch >= last)
		if stretch > fewBlocks && tooMuch(ctx, err) {
			stretch /= 2
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		from += stretch
		if from >= last {
			return all, nil
		}
		if len(some) < fewEntries {
			stretch = min(2*stretch, m.maxBlocks) // a busy period has passed
		}
	}
}

// received returns the transfers to all accounts above the height from up to
// to. If newest is set, it includes all later blocks and the mempool.
func (m *Chain) received(ctx context.Context, from, to int64, newest bool) ([]transferEntry, error) {
	var answer struct {
		In   []transferEntry `json:"in,omitempty"`
		Pool []transferEntry `json:"pool,omitempty"`
	}
	params := map[string]any{"in": true, "all_accounts": true, "filter_by_height": true, "min_height": from} // exclusive
	if newest {
		params["pool"], to = true, math.MaxInt64 // the mempool is not filtered by height
	} else {
		params["max_height"] = to // inclusive
	}
	if err := m.callWallet(ctx, m.large(), "get_transfers", params, &answer); err != nil {
		return nil, err
	}
	for i, e := range answer.In {
		switch {
		case e.Type != "in" && e.Type != "block":
			return nil, wrongAnswer("get transfers", "in[%d].type is %q", i, rpc.Excerpt(e.Type))
		case e.Height <= from || e.Height > to:
			return nil, wrongAnswer("get transfers", "in[%d].height is %d, though blocks from %d were asked for", i, e.Height, from+1)
		}
	}
	for i, e := range answer.Pool {
		if e.Type != "pool" {
			return nil, wrongAnswer("get transfers", "pool[%d].type is %q", i, rpc.Excerpt(e.Type))
		}
	}
	return append(answer.In, answer.Pool...), nil
}

// tooMuch reports whether a call may have failed because the blocks have too
// many transfers for one response.
func tooMuch(ctx context.Context, err error) bool {
	return errors.Is(err, rpc.ErrTooLong) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// createAddresses makes 1 to maxAddressesPerCall consecutive subaddresses of
// account 0.
func (m *Chain) createAddresses(ctx context.Context, n int) ([]settle.Address, error) {
	var answer struct {
		Addresses []string `json:"addresses"`
		Indices   []int64  `json:"address_indices"`
	}
	params := map[string]any{"account_index": 0, "count": n}
	if err := m.callWallet(ctx, m.small(), "create_address", params, &answer); err != nil {
		return nil, err
	}
	if len(answer.Addresses) != n || len(answer.Indices) != n {
		return nil, wrongAnswer("create address", "addresses has %d entries and address_indices %d, though %d were asked for",
			len(answer.Addresses), len(answer.Indices), n)
	}
	base := "" // the wallet's, if known
	if scanned := m.scanned.Load(); scanned != nil {
		base = *scanned
	}
	made := make([]settle.Address, n)
	for i, address := range answer.Addresses {
		index := answer.Indices[i]
		if index < 1 || index > maxSubaddress || index != answer.Indices[0]+int64(i) {
			return nil, wrongAnswer("create address", "address_indices[%d] is %d", i, index)
		}
		if err := checkAddressAt(address, base, 0, index); err != nil {
			return nil, wrongAnswer("create address", "addresses[%d] %w", i, err)
		}
		if slices.Contains(answer.Addresses[:i], address) {
			return nil, wrongAnswer("create address", "addresses[%d] is there twice", i)
		}
		made[i] = settle.Address{Currency: m.config.Coin.Code, Address: address, Position: index}
	}
	return made, nil
}

// store makes the wallet write its file. A wallet that is killed before forgets
// the subaddresses it made.
func (m *Chain) store(ctx context.Context) error {
	if b := m.volatileBeacon.Load(); b != nil { // in the file it must have Stored set
		return m.writeBeacon(ctx, *b, true)
	}
	var ignored struct{}
	return m.callWallet(ctx, m.small(), "store", struct{}{}, &ignored)
}

func (m *Chain) small() rpc.Limit { return rpc.Limit{Time: m.config.Timeout, Bytes: smallReply} }
func (m *Chain) large() rpc.Limit { return rpc.Limit{Time: m.config.Timeout, Bytes: m.maxReply} }

func (m *Chain) callDaemon(ctx context.Context, method string, params, result any) error {
	err := withCause(daemonName, m.daemon.Call(ctx, m.small(), method, params, result))
	if hasCode(err, codeCoreBusy) {
		return fmt.Errorf("%w: node is still synchronizing: %w", card.ErrChainNotReady, err)
	}
	if err != nil {
		return fmt.Errorf("monerod: %w", err)
	}
	return nil
}

func (m *Chain) callWallet(ctx context.Context, limit rpc.Limit, method string, params, result any) error {
	err := withCause(walletName, m.wallet.Call(ctx, limit, method, params, result))
	if hasCode(err, codeNotOpen) && m.config.WalletFile != "" {
		if err := m.open(ctx); err != nil {
			return err
		}
		return errOpened
	}
	return walletFailure(ctx, err)
}

// walletFailure adds the operator's remedy to an error of monero-wallet-rpc;
// nil stays nil.
func walletFailure(ctx context.Context, err error) error {
	switch {
	case hasCode(err, codeNotOpen):
		return fmt.Errorf("%w: monero-wallet-rpc has no wallet open; start it with --wallet-file: %w", card.ErrChainNotReady,
			err)
	case hasCode(err, codeUnknown) && strings.Contains(err.Error(), "reorg exceeds maximum allowed depth"):
		return fmt.Errorf("%w: the chain reorganized deeper than the wallet follows: %w", card.ErrWalletLost, err)
	case hasCode(err, codeNoDaemon):
		return fmt.Errorf("%w: monero-wallet-rpc can't reach its node; check its --daemon-address: %w",
			card.ErrChainNotReady, err)
	case hasCode(err, codeDaemonBusy):
		return fmt.Errorf("%w: the node of monero-wallet-rpc is still synchronizing: %w", card.ErrChainNotReady, err)
	case hasCode(err, codeDenied):
		return fmt.Errorf("start monero-wallet-rpc without --restricted-rpc: %w", err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%w: monero-wallet-rpc is still reading the chain, or its node does not answer: %w",
			card.ErrChainNotReady, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("monero-wallet-rpc is not running; if it exits at once because its cache is damaged, %s: %w",
			repairCache, err)
	case err != nil:
		return fmt.Errorf("monero-wallet-rpc: %w", err)
	}
	return nil
}

func hasCode(err error, code int) bool {
	failure, ok := errors.AsType[*rpc.Error](err)
	return ok && failure.Code == code
}

// isHash reports whether s has the form of block and transaction hashes: 64
// lower-case hexadecimal digits.
func isHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return false
		}
	}
	return true
}
