// Package simulated is a chain without coins, for the sandbox and for tests.
//
// It may import packages card and settle, and implements order.Sandbox. The
// chain is a table of the store, so that a crash loses nothing.
package simulated

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// Chain is a chain whose clients pay for their own orders with Pay. It
// implements settle.Chain and order.Sandbox.
type Chain struct {
	coin     card.Currency
	currency string // the coin's code
	ledger   Ledger
	now      func() time.Time
}

// Ledger stores the simulated chain. All replicas must see the same chain, and
// a crash must lose nothing.
type Ledger interface {
	// SimulatedScan returns the height, the number of reorganizations so far,
	// and the transfers above since, in the blocks again and in the mempool.
	SimulatedScan(ctx context.Context, currency string, since int64, again []settle.Blocks) (height, reorgs int64,
		ts []card.Transfer, err error)
	// SimulatedPay adds a transfer, unless amount is 0 or its id exists, and
	// extends the chain until all transfers to the address have the
	// confirmations. It returns the chain's new height. The error is a
	// *card.TooMuchError if the address would then hold more than most.
	SimulatedPay(ctx context.Context, currency, txid, address string, amount, most card.Amount, confirmations int,
		at time.Time) (int64, error)
	// SimulatedTransfer returns a transfer's address and amount. The error is
	// card.ErrNoRow if there is no such transfer.
	SimulatedTransfer(ctx context.Context, currency, txid string) (address string, amount card.Amount, err error)
	// SimulatedAddresses reserves n addresses and returns the index of the
	// first. If n is 0, it returns the next index.
	SimulatedAddresses(ctx context.Context, currency string, n int) (int64, error)
}

// New returns the simulated chain of a currency.
func New(coin card.Currency, ledger Ledger, now func() time.Time) *Chain {
	return &Chain{coin: coin, currency: coin.Code, ledger: ledger, now: now}
}

// Currency implements settle.Chain.
func (s *Chain) Currency() card.Currency { return s.coin }

// Scan implements settle.Chain. The newest block always has the current time. A
// reorganization replaces every block.
func (s *Chain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	for i := 0; ; i++ {
		kept := int64(0)
		if i < len(q.Known) {
			kept = q.Known[i].Height // unless it was replaced
		}
		v := q.View(kept)
		height, reorgs, ts, err := s.ledger.SimulatedScan(ctx, s.currency, v.Since, v.Again)
		if err != nil {
			return settle.View{}, fmt.Errorf("scan simulated chain: %w", err)
		}
		if i >= len(q.Known) || q.Known[i].Hash == blockHash(reorgs, kept) {
			v.Fingerprint, v.Transfers = "simulated "+s.currency, ts
			v.Tip = card.Tip{Height: height, Hash: blockHash(reorgs, height), Time: s.now()}
			return v, nil
		}
	}
}

func blockHash(reorgs, height int64) string { return fmt.Sprintf("simulated-%d-%d", reorgs, height) }

// NewAddresses implements settle.Chain. The addresses have the length and
// alphabet of stagenet subaddresses but wrong checksums, so that no wallet pays
// to one by mistake.
func (s *Chain) NewAddresses(ctx context.Context, _ int64, n int) ([]settle.Address, error) {
	first, err := s.ledger.SimulatedAddresses(ctx, s.currency, n)
	if err != nil {
		return nil, fmt.Errorf("new simulated addresses: %w", err)
	}
	addresses := make([]settle.Address, n)
	for i := range addresses {
		addresses[i] = settle.Address{Currency: s.currency, Address: newAddress(), Position: first + int64(i)}
	}
	return addresses, nil
}

// Reserve implements settle.Chain. The ledger makes each address on demand, and
// only once.
func (s *Chain) Reserve(context.Context, int64, int) (bool, error) { return true, nil }

// Holds implements settle.Chain.
func (s *Chain) Holds(ctx context.Context, newest settle.Address) error {
	next, err := s.ledger.SimulatedAddresses(ctx, s.currency, 0)
	if err != nil {
		return fmt.Errorf("next simulated address: %w", err)
	}
	if next <= newest.Position {
		return fmt.Errorf("%w: it has %d addresses, but number %d was stored", card.ErrWalletLost, next, newest.Position)
	}
	return nil
}

// Beacon implements settle.Chain. The ledger is kept in the database itself.
func (s *Chain) Beacon(context.Context) (settle.Beacon, error) { return settle.Beacon{}, nil }

// SetBeacon implements settle.Chain.
func (s *Chain) SetBeacon(context.Context, settle.Beacon, bool) error { return nil }

// Recover implements settle.Chain. The wallet is the ledger, which loses
// nothing.
func (s *Chain) Recover(context.Context, string, *settle.Address, func(string)) error { return nil }

const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

func newAddress() string {
	random := make([]byte, 94)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	for i, b := range random {
		random[i] = base58[int(b)%len(base58)]
	}
	return "7" + string(random)
}

// CheckAddress returns a driver.Coin.CheckAddress for a simulated chain of the
// coin: it also accepts the addresses of such a chain, and of any network.
func CheckAddress(check func(address, ours string) error) func(address, ours string) error {
	return func(address, _ string) error {
		if isSimulated(address) {
			return nil
		}
		return check(address, "")
	}
}

// isSimulated reports whether an address has the form of newAddress.
func isSimulated(address string) bool {
	return len(address) == 95 && address[0] == '7' && strings.Trim(address, base58) == ""
}

// Pay is PayAs with a new transaction.
func (s *Chain) Pay(ctx context.Context, address string, amount card.Amount, confirmations int) (card.Tip, error) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	return s.PayAs(ctx, hex.EncodeToString(random), address, amount, confirmations)
}

// Sent implements order.Sandbox.
func (s *Chain) Sent(ctx context.Context, txid string) (address string, amount card.Amount, err error) {
	return s.ledger.SimulatedTransfer(ctx, s.currency, txid)
}

// PayAs implements order.Sandbox.
func (s *Chain) PayAs(ctx context.Context, txid, address string, amount card.Amount, confirmations int) (card.Tip,
	error) {
	height, err := s.ledger.SimulatedPay(ctx, s.currency, txid, address, amount, s.coin.MaxAmount(), confirmations,
		s.now())
	if err != nil {
		return card.Tip{}, fmt.Errorf("pay on simulated chain: %w", err)
	}
	return card.Tip{Height: height, Time: s.now()}, nil
}
