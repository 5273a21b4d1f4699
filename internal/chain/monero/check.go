package monero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
)

// ErrSpendKey means that a wallet can spend its money. The service requires a
// view-only wallet, so that an intruder on the server cannot take the money.
var ErrSpendKey = errors.New("the wallet holds a spend key; the service needs a view-only wallet")

// Report is the result of Inspect.
type Report struct {
	Network            string // mainnet, testnet, stagenet or fakechain (regtest)
	Fork               int64  // the network's latest hard fork
	DaemonVersion      string
	DaemonHeight       int64 // of the top block
	DaemonTime         time.Time
	DaemonSynchronized bool
	WalletVersion      string
	WalletHeight       int64 // last block that the wallet has read
	PrimaryAddress     string
	ViewOnly           bool
	Subaddresses       int      // of account 0, including the primary address
	Warnings           []string // what works, but should be changed soon
}

// Inspect describes node and wallet. The error is ErrSpendKey if the wallet is
// not view-only, card.ErrWrongChain if the wallet is for another network than
// the node, and card.ErrChainNotReady if no wallet is open; the report then has
// the fields read before the error. A synchronizing node or wallet is not an
// error.
func (m *Chain) Inspect(ctx context.Context) (Report, error) {
	return retryOpened(func() (Report, error) { return m.inspect(ctx) })
}

func (m *Chain) inspect(ctx context.Context) (Report, error) {
	var r Report
	info, err := m.daemonInfo(ctx)
	if err != nil {
		return r, err
	}
	r.Network, r.DaemonVersion, r.DaemonHeight = info.Network, info.Version, info.Height-1
	r.DaemonSynchronized = info.checkReady() == nil
	tip, err := m.topBlock(ctx)
	if err != nil {
		return r, err
	}
	r.DaemonTime = tip.Time
	if r.Fork, err = m.fork(ctx); err != nil {
		return r, err
	}
	wallet, err := m.walletVersion(ctx)
	if err != nil {
		return r, err
	}
	r.WalletVersion = wallet.String()
	r.Warnings = outdated(info.Version, wallet, r.Fork)
	if r.PrimaryAddress, r.Subaddresses, err = m.addresses(ctx); err != nil {
		return r, err
	}
	if r.WalletHeight, err = m.walletHeight(ctx); err != nil {
		return r, err
	}
	if r.ViewOnly, err = m.viewOnly(ctx); err != nil {
		return r, err
	}
	return r, checkFit(r.ViewOnly, r.PrimaryAddress, r.Network)
}

// checkWallet is the part of Inspect that a pass needs; its cost does not
// depend on the number of addresses. It returns the primary address.
func (m *Chain) checkWallet(ctx context.Context, info daemonInfo) (primary string, err error) {
	if primary, err = m.primaryAddress(ctx); err != nil {
		return "", err
	}
	viewOnly, err := m.viewOnly(ctx)
	if err != nil {
		return "", err
	}
	err = checkFit(viewOnly, primary, info.Network)
	if errors.Is(err, ErrSpendKey) { // a wrong chain hands out no more addresses
		err = fmt.Errorf("%w: %w", card.ErrWrongChain, err)
	}
	return primary, err
}

// checkFit returns why a wallet must not be used.
func checkFit(viewOnly bool, primary, network string) error {
	if !viewOnly {
		return card.Unready("the wallet can spend: only a view-only wallet may be used").Wrap(
			fmt.Errorf("check wallet: %w", ErrSpendKey))
	}
	return sameNetwork(primary, network)
}

// sameNetwork returns card.ErrWrongChain if the wallet is for another network
// than the node, and nil if the network is unknown: a busy node does not report
// it.
func sameNetwork(primary, network string) error {
	if of := networkOf(primary); network != "" && of != network && !(of == "mainnet" && network == "fakechain") {
		return fmt.Errorf("check wallet: %w: wallet is for %s, node for %s", card.ErrWrongChain, of, network)
	}
	return nil
}

// viewOnly reports whether the wallet lacks the spend key. It calls
// sign_transfer with an empty transaction, which a watch-only wallet refuses as
// such. A query of the key itself (query_key) would transfer it to this
// process.
func (m *Chain) viewOnly(ctx context.Context) (bool, error) {
	var ignored struct{}
	err := m.callWallet(ctx, m.small(), "sign_transfer", map[string]any{"unsigned_txset": ""}, &ignored)
	switch {
	case hasCode(err, codeWatchOnly):
		return true, nil
	case err == nil, hasCode(err, codeBadUnsignedTx):
		return false, nil
	}
	return false, fmt.Errorf("find out whether the wallet is view-only: %w", err)
}

// walletRPC is the version of monero-wallet-rpc's methods: the major version in
// the upper 16 bits, the minor one in the lower. The program does not report
// its own version.
type walletRPC uint32

func (v walletRPC) String() string { return fmt.Sprintf("RPC %d.%d", v>>16, v&0xffff) }

// Older versions still work: the oldest tested one is 0.18.0. But only the
// newest are maintained, and 0.18.0 has faults, such as wallets that hang, that
// were fixed since.
const (
	recommended    = "0.18.4"
	recommendedRPC = walletRPC(1<<16 | 28) // of monero-wallet-rpc 0.18.4.0; 0.18.0.0 has 1.25, 0.18.5.3 has 1.32
	testedFork     = 16
)

// outdated returns warnings about an old node, an old wallet, or, after a hard
// fork, an old version of this program. A node may hide its version.
func outdated(daemon string, wallet walletRPC, fork int64) (warnings []string) {
	if older(daemon, recommended) {
		warnings = append(warnings, fmt.Sprintf("monerod %s is outdated: upgrade to %s or newer", daemon, recommended))
	}
	if wallet < recommendedRPC {
		warnings = append(warnings,
			fmt.Sprintf("monero-wallet-rpc is outdated, its version is %s: upgrade to %s (%s) or newer",
				wallet, recommended, recommendedRPC))
	}
	if fork > testedFork {
		warnings = append(warnings,
			fmt.Sprintf("the network has had hard fork %d, and this program was tested with %d: upgrade it, and "+
				"monero-wallet-rpc, or payments may not be seen", fork, testedFork))
	}
	return warnings
}

// older reports whether a version such as 0.18.0.0-release is older than
// another with three numbers; false if the first is unknown.
func older(version, than string) bool {
	var is, want [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &is[0], &is[1], &is[2]); n != len(is) {
		return false
	}
	_, _ = fmt.Sscanf(than, "%d.%d.%d", &want[0], &want[1], &want[2])
	return slices.Compare(is[:], want[:]) < 0
}

func (m *Chain) walletVersion(ctx context.Context) (walletRPC, error) {
	var answer struct {
		Version walletRPC `json:"version"`
	}
	err := m.callWallet(ctx, m.small(), "get_version", struct{}{}, &answer)
	return answer.Version, err
}

// fork returns the number of the hard fork whose rules the node's chain
// follows.
func (m *Chain) fork(ctx context.Context) (int64, error) {
	var answer struct {
		Version int64 `json:"version"`
	}
	err := m.callDaemon(ctx, "hard_fork_info", struct{}{}, &answer)
	return answer.Version, err
}

// addresses returns the primary address and the number of subaddresses of
// account 0.
func (m *Chain) addresses(ctx context.Context) (primary string, n int, err error) {
	var answer struct {
		Address   string `json:"address"`
		Addresses []struct {
			Index int64 `json:"address_index"`
		} `json:"addresses"`
	}
	if err := m.callWallet(ctx, m.large(), "get_address", map[string]any{"account_index": 0}, &answer); err != nil {
		return "", 0, err
	}
	if err := checkAddressAt(answer.Address, answer.Address, 0, 0); err != nil {
		return "", 0, wrongAnswer("get address", "address %w", err)
	}
	for i, a := range answer.Addresses {
		if a.Index != int64(i) {
			return "", 0, wrongAnswer("get address", "addresses[%d].address_index is %d", i, a.Index)
		}
	}
	return answer.Address, len(answer.Addresses), nil
}

// Balance implements driver.Node (get_balance).
func (m *Chain) Balance(ctx context.Context) (card.Total, error) {
	return retryOpened(func() (card.Total, error) {
		var answer struct {
			Balance json.Number `json:"balance"`
		}
		if err := m.callWallet(ctx, m.large(), "get_balance", map[string]any{"account_index": 0, "all_accounts": true},
			&answer); err != nil {
			return card.Total{}, err
		}
		balance, err := card.ParseTotal(answer.Balance.String())
		if err != nil || strings.HasPrefix(balance.String(), "-") {
			return card.Total{}, wrongAnswer("get balance", "balance is %q", rpc.Excerpt(answer.Balance.String()))
		}
		return balance, nil
	})
}
