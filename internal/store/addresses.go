package store

import (
	"context"
	"errors"

	"github.com/cardmint/cardmint/internal/card"
)

// TakeAddresses implements card.Store. Taking is moving the pool's next position, whatever became of those before it.
func (s *Store) TakeAddresses(ctx context.Context, currency string, n int) ([]string, error) {
	var addresses []string
	err := s.inTx(ctx, func(t *tx) error {
		addresses = nil
		var next int64
		err := s.get(ctx, t.t, &next, "lock address pool", "SELECT next_position FROM address_pools WHERE currency = ?"+s.dialect.forUpdate, currency)
		if errors.Is(err, card.ErrNotFound) {
			return nil // no address was ever made
		}
		if err != nil {
			return err
		}
		var found []struct {
			Position int64  `db:"position"`
			Address  string `db:"address"`
			Paid     bool   `db:"paid"` // money came to it before it had a card: it must not be handed out
		}
		err = s.list(ctx, t.t, &found, "select addresses", `SELECT a.position, a.address, EXISTS (SELECT 1 FROM transfers t
			WHERE t.currency = a.currency AND t.address = a.address) AS paid
			FROM addresses a WHERE a.currency = ? AND a.position >= ? ORDER BY a.position LIMIT ?`, currency, next, n)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, f := range found {
			if !f.Paid {
				addresses = append(addresses, f.Address)
			}
		}
		_, err = s.exec(ctx, t.t, "take addresses", "UPDATE address_pools SET next_position = ? WHERE currency = ?", found[len(found)-1].Position+1, currency)
		return err
	})
	return addresses, err
}

// AddressPool implements card.Store.
func (s *Store) AddressPool(ctx context.Context, currency string) (free int, highest int64, err error) {
	var row struct {
		Highest int64 `db:"highest"`
		Next    int64 `db:"next"`
	}
	err = s.get(ctx, s.r, &row, "count addresses", `SELECT (SELECT COALESCE(MAX(position), -1) FROM addresses WHERE currency = ?) AS highest,
		(SELECT COALESCE(MAX(next_position), 0) FROM address_pools WHERE currency = ?) AS next`, currency, currency)
	return int(max(0, row.Highest+1-row.Next)), row.Highest, err
}

// InsertAddresses implements card.Tx.
func (t *tx) InsertAddresses(ctx context.Context, as []card.Address) error {
	if len(as) == 0 {
		return nil
	}
	_, err := t.s.exec(ctx, t.t, "start address pool", "INSERT INTO address_pools (currency, next_position) VALUES (?, ?) ON CONFLICT (currency) DO NOTHING",
		as[0].Currency, as[0].Position)
	if err != nil {
		return err
	}
	return inBatches(as, func(some []card.Address) error {
		args := make([]any, 0, 3*len(some))
		for _, a := range some {
			args = append(args, a.Currency, a.Address, a.Position)
		}
		_, err := t.s.exec(ctx, t.t, "insert addresses", "INSERT INTO addresses (currency, address, position) VALUES "+rows("(?, ?, ?)", len(some)), args...)
		return err
	})
}

// SkipAddresses implements card.Tx.
func (t *tx) SkipAddresses(ctx context.Context, currency string, position int64) error {
	_, err := t.s.exec(ctx, t.t, "skip addresses", "UPDATE address_pools SET next_position = ? WHERE currency = ? AND next_position < ?", position, currency, position)
	return err
}
