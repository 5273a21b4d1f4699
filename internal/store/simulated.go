package store

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// The simulated chain is kept in the same database, so that it survives a
// restart and all replicas see the same one.

const genesisHeight = 1

// simulatedChain inserts the chain's row if there is none, and locks it until
// the transaction ends. It returns the chain's height.
func (t *tx) simulatedChain(ctx context.Context, currency string) (height int64, err error) {
	_, err = t.s.exec(ctx, t.t, "start simulated chain",
		"INSERT INTO simulated_chains (currency, height, reorgs, next_index) VALUES (?, ?, 0, 1) ON CONFLICT (currency) DO NOTHING", currency, genesisHeight)
	if err != nil {
		return 0, err
	}
	err = t.s.get(ctx, t.t, &height, "lock simulated chain",
		"SELECT height FROM simulated_chains WHERE currency = ?"+t.s.dialect.forUpdate, currency)
	return height, err
}

// SimulatedScan implements simulated.Ledger. It reads one snapshot.
func (s *Store) SimulatedScan(ctx context.Context, currency string, since int64, again []settle.Blocks) (height,
	reorgs int64, ts []card.Transfer, err error) {
	var found []struct {
		transferRow
		Tip    int64 `db:"tip"`
		Reorgs int64 `db:"reorgs"`
	}
	older, args := "", []any{since}
	for _, b := range again {
		older, args = older+" OR t.height BETWEEN ? AND ?", append(args, b.First, b.Last)
	}
	err = s.list(ctx, s.r, &found, "scan simulated chain", `SELECT c.height AS tip, c.reorgs, c.currency, COALESCE(t.txid, '') AS txid,
		COALESCE(t.address, '') AS address, COALESCE(t.amount, 0) AS amount, COALESCE(t.height, 0) AS height, COALESCE(t.seen_at, 0) AS first_seen_at
		FROM simulated_chains c LEFT JOIN simulated_transfers t ON t.currency = c.currency AND (t.height = 0 OR t.height > ?`+older+`)
		WHERE c.currency = ?`, append(args, currency)...)
	if err != nil || len(found) == 0 {
		return genesisHeight, 0, nil, err
	}
	for i := range found {
		if found[i].TxID != "" {
			ts = append(ts, found[i].transfer())
		}
	}
	return found[0].Tip, found[0].Reorgs, ts, nil
}

// SimulatedPay implements simulated.Ledger. With 0 confirmations the transfer stays
// in the mempool.
func (s *Store) SimulatedPay(ctx context.Context, currency, txid, address string, amount, most card.Amount,
	confirmations int, at time.Time) (int64, error) {
	var height int64
	err := s.inTx(ctx, func(t *tx) (err error) {
		if height, err = t.simulatedChain(ctx, currency); err != nil {
			return err
		}
		if amount > 0 {
			if err := t.simulatedRoom(ctx, currency, address, amount, most); err != nil {
				return err
			}
			_, err = s.exec(ctx, t.t, "insert simulated transfer",
				"INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) VALUES (?, ?, ?, ?, 0, ?) ON CONFLICT DO NOTHING",
				currency, txid, address, int64(amount), at.UnixMilli())
			if err != nil {
				return err
			}
		}
		if confirmations == 0 {
			return nil
		}
		mined, err := s.exec(ctx, t.t, "mine simulated transfers",
			"UPDATE simulated_transfers SET height = ? WHERE currency = ? AND address = ? AND height = 0", height+1, currency,
			address)
		if err != nil {
			return err
		}
		if mined > 0 {
			height++
		}
		var newest int64
		err = s.get(ctx, t.t, &newest, "select simulated transfers",
			"SELECT COALESCE(MAX(height), 0) FROM simulated_transfers WHERE currency = ? AND address = ?", currency, address)
		if err != nil {
			return err
		}
		if newest > 0 {
			height = max(height, newest+int64(confirmations)-1)
		}
		return t.setSimulatedHeight(ctx, currency, height)
	})
	return height, err
}

// SimulatedTransfer implements simulated.Ledger.
func (s *Store) SimulatedTransfer(ctx context.Context, currency, txid string) (address string, amount card.Amount,
	err error) {
	var row struct {
		Address string `db:"address"`
		Amount  int64  `db:"amount"`
	}
	err = s.get(ctx, s.r, &row, "select simulated transfer",
		"SELECT address, amount FROM simulated_transfers WHERE currency = ? AND txid = ?", currency, txid)
	return row.Address, card.Amount(row.Amount), err
}

// simulatedRoom returns a *card.TooMuchError if an address would hold more than
// most with amount.
func (t *tx) simulatedRoom(ctx context.Context, currency, address string, amount, most card.Amount) error {
	var held []int64
	err := t.s.list(ctx, t.t, &held, "select simulated transfers",
		"SELECT amount FROM simulated_transfers WHERE currency = ? AND address = ?", currency, address)
	if err != nil {
		return err
	}
	left := most
	for _, one := range held {
		left -= min(left, card.Amount(one))
	}
	if amount > left {
		return &card.TooMuchError{Most: left}
	}
	return nil
}

// SimulatedMine adds n empty blocks.
func (s *Store) SimulatedMine(ctx context.Context, currency string, n int) error {
	return s.inTx(ctx, func(t *tx) error {
		height, err := t.simulatedChain(ctx, currency)
		if err != nil {
			return err
		}
		return t.setSimulatedHeight(ctx, currency, height+int64(n))
	})
}

// SimulatedReorg replaces the newest depth blocks with depth+1 empty ones.
// Their transfers return to the mempool, or are deleted if drop is set.
func (s *Store) SimulatedReorg(ctx context.Context, currency string, depth int, drop bool) error {
	return s.inTx(ctx, func(t *tx) error {
		height, err := t.simulatedChain(ctx, currency)
		if err != nil {
			return err
		}
		if int64(depth) >= height {
			return errors.New("reorganize: the chain is not that long")
		}
		change := "UPDATE simulated_transfers SET height = 0"
		if drop {
			change = "DELETE FROM simulated_transfers"
		}
		if _, err := s.exec(ctx, t.t, "reorganize", change+" WHERE currency = ? AND height > ?", currency,
			height-int64(depth)); err != nil {
			return err
		}
		_, err = s.exec(ctx, t.t, "reorganize",
			"UPDATE simulated_chains SET height = height + 1, reorgs = reorgs + 1 WHERE currency = ?", currency)
		return err
	})
}

// SimulatedAddresses implements simulated.Ledger.
func (s *Store) SimulatedAddresses(ctx context.Context, currency string, n int) (first int64, err error) {
	err = s.inTx(ctx, func(t *tx) error {
		if _, err := t.simulatedChain(ctx, currency); err != nil {
			return err
		}
		return s.get(ctx, t.t, &first, "reserve simulated addresses",
			"UPDATE simulated_chains SET next_index = next_index + ? WHERE currency = ? RETURNING next_index - ?", n, currency,
			n)
	})
	return first, err
}

func (t *tx) setSimulatedHeight(ctx context.Context, currency string, height int64) error {
	_, err := t.s.exec(ctx, t.t, "grow simulated chain", "UPDATE simulated_chains SET height = ? WHERE currency = ?",
		height, currency)
	return err
}
