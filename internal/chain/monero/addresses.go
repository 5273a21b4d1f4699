package monero

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
	"github.com/cardmint/cardmint/internal/settle"
)

// NewAddresses implements settle.Chain. The addresses are subaddresses of
// account 0. Missing ones are made, and written to the wallet's file
// (create_address, store). After an error some may have been made, which is
// harmless. The error is card.ErrWalletLost if the wallet lacks the address at
// after, and card.ErrWrongChain if another wallet was opened since the last
// Scan.
func (m *Chain) NewAddresses(ctx context.Context, after int64, n int) ([]settle.Address, error) {
	return retryOpened(func() ([]settle.Address, error) { return m.newAddresses(ctx, after, n) })
}

func (m *Chain) newAddresses(ctx context.Context, after int64, n int) ([]settle.Address, error) {
	if n <= 0 {
		return nil, nil
	}
	if after == settle.NoPosition {
		made, err := m.makeAddresses(ctx, n)
		if err != nil {
			return nil, err
		}
		positions := make([]int64, n) // with gaps if the wallet saw payments to addresses that it had yet to make
		for i, a := range made {
			positions[i] = a.Position
		}
		all, err := m.subaddresses(ctx, positions)
		if err != nil {
			return nil, err
		}
		if i := firstDifference(made, all); i >= 0 {
			return nil, wrongAnswer("create address", "the address at index %d is %s, but get_address says %s", made[i].Position,
				made[i].Address, all[i].Address)
		}
		return all, m.checkScannedWallet(ctx)
	}
	if _, err := m.reserve(ctx, after, after+int64(n), n); err != nil {
		return nil, err
	}
	positions := make([]int64, n)
	for i := range positions {
		positions[i] = after + 1 + int64(i)
	}
	all, err := m.subaddresses(ctx, positions)
	if err != nil {
		return nil, err
	}
	return all, m.checkScannedWallet(ctx)
}

// firstDifference returns the index of the first address that differs; -1 if
// none does.
func firstDifference(made, all []settle.Address) int {
	for i := range made {
		if made[i] != all[i] {
			return i
		}
	}
	return -1
}

// makeAddresses makes n addresses and stores the wallet.
func (m *Chain) makeAddresses(ctx context.Context, n int) ([]settle.Address, error) {
	made := make([]settle.Address, 0, n)
	for len(made) < n {
		batch, err := m.createAddresses(ctx, min(n-len(made), maxAddressesPerCall))
		if err != nil {
			return nil, err
		}
		made = append(made, batch...)
	}
	return made, m.store(ctx)
}

// Reserve implements settle.Chain.
func (m *Chain) Reserve(ctx context.Context, upTo int64, n int) (bool, error) {
	return retryOpened(func() (bool, error) { return m.reserve(ctx, settle.NoPosition, upTo, n) })
}

// reserve makes up to n addresses, or a few more, towards upTo. The error is
// card.ErrWalletLost if the wallet lacks the one at after.
func (m *Chain) reserve(ctx context.Context, after, upTo int64, n int) (bool, error) {
	have, err := m.subaddress(ctx, upTo)
	if err != nil || have != "" {
		return err == nil, err
	}
	if after != settle.NoPosition {
		if have, err = m.subaddress(ctx, after); err != nil {
			return false, err
		}
		if have == "" {
			return false, fmt.Errorf("%w: it lacks subaddress %d", card.ErrWalletLost, after)
		}
	}
	last := settle.NoPosition
	for made := 0; made < n && last < upTo; {
		batch, err := m.createAddresses(ctx, min(n-made, maxAddressesPerCall))
		if err != nil {
			return false, err
		}
		made += len(batch)
		last = batch[len(batch)-1].Position
	}
	return last >= upTo, m.store(ctx)
}

// subaddresses returns the subaddresses of account 0 at indices (get_address).
// The wallet must have made them.
func (m *Chain) subaddresses(ctx context.Context, indices []int64) ([]settle.Address, error) {
	addresses, err := m.addressesAt(ctx, 0, indices)
	if err != nil {
		return nil, err
	}
	all := make([]settle.Address, len(indices))
	for i, address := range addresses {
		all[i] = settle.Address{Currency: m.config.Coin.Code, Address: address, Position: indices[i]}
	}
	return all, nil
}

// beaconKey is the wallet attribute of the beacon.
const beaconKey = "cardmint"

// beacon is the stored form of a settle.Beacon. Times are Unix milliseconds.
type beacon struct {
	Epoch      int64  `json:"epoch"`
	Position   int64  `json:"position"`
	PacedUntil int64  `json:"paced_until"`
	MarkedAt   int64  `json:"marked_at"`
	Stored     bool   `json:"stored,omitempty"`
	Server     string `json:"server,omitempty"`
	Conflict   bool   `json:"conflict,omitempty"`
	Claimed    bool   `json:"claimed,omitempty"`
}

// Beacon implements settle.Chain (get_attribute).
func (m *Chain) Beacon(ctx context.Context) (settle.Beacon, error) {
	return retryOpened(func() (settle.Beacon, error) { return m.readBeacon(ctx) })
}

func (m *Chain) readBeacon(ctx context.Context) (settle.Beacon, error) {
	var answer struct {
		Value string `json:"value"`
	}
	err := m.callWallet(ctx, m.small(), "get_attribute", map[string]any{"key": beaconKey}, &answer)
	if hasCode(err, codeNoAttribute) {
		return settle.Beacon{}, nil
	}
	if err != nil {
		return settle.Beacon{}, err
	}
	var b beacon
	if err := rpc.Decode([]byte(answer.Value), &b); err != nil {
		return settle.Beacon{}, fmt.Errorf("get attribute: value of %q is not what this program wrote: %w", beaconKey, err)
	}
	if b.Epoch <= 0 || b.Position < settle.NoPosition {
		return settle.Beacon{}, wrongAnswer("get attribute",
			"value of %q is not what this program wrote: epoch is %d and position %d",
			beaconKey, b.Epoch, b.Position)
	}
	return settle.Beacon{Epoch: b.Epoch, Position: b.Position, PacedUntil: time.UnixMilli(b.PacedUntil).UTC(),
		MarkedAt: time.UnixMilli(b.MarkedAt).UTC(),
		Stored:   b.Stored, Server: b.Server, Conflict: b.Conflict, Claimed: b.Claimed}, nil
}

// SetBeacon implements settle.Chain (set_attribute, store).
func (m *Chain) SetBeacon(ctx context.Context, b settle.Beacon, durable bool) error {
	_, err := retryOpened(func() (struct{}, error) { return struct{}{}, m.writeBeacon(ctx, b, durable) })
	return err
}

// writeBeacon sets the attribute. The wallet's file gets it with Stored set,
// then the wallet's memory gets it without, which a restart of the wallet
// undoes.
func (m *Chain) writeBeacon(ctx context.Context, b settle.Beacon, durable bool) error {
	if durable {
		if err := m.setAttribute(ctx, b, true); err != nil {
			return err
		}
		m.volatileBeacon.Store(nil)
		if err := m.store(ctx); err != nil {
			return err
		}
	}
	if err := m.setAttribute(ctx, b, false); err != nil {
		return err
	}
	m.volatileBeacon.Store(&b)
	return nil
}

func (m *Chain) setAttribute(ctx context.Context, b settle.Beacon, stored bool) error {
	text, err := json.Marshal(
		beacon{Epoch: b.Epoch, Position: b.Position, PacedUntil: b.PacedUntil.UnixMilli(), MarkedAt: b.MarkedAt.UnixMilli(),
			Stored: stored, Server: b.Server, Conflict: b.Conflict, Claimed: b.Claimed})
	if err != nil {
		return err
	}
	var ignored struct{}
	return m.callWallet(ctx, m.small(), "set_attribute", map[string]any{"key": beaconKey, "value": string(text)}, &ignored)
}
