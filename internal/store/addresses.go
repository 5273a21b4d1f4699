package store

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// poolCheckLasts is how long a comparison of wallet and address pool is valid, in milliseconds.
const poolCheckLasts = "60000"

// TakeAddresses implements order.Store. It moves the pool's next position forward, so that no address before it is ever taken again.
func (s *Store) TakeAddresses(ctx context.Context, currency string, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, longestClaim)
	defer cancel()
	var addresses []string
	err := s.inTx(ctx, func(t *tx) error {
		addresses = nil
		var next int64
		err := s.get(ctx, t.t, &next, "lock address pool", "SELECT next_position FROM address_pools WHERE currency = ? AND checked_at > "+
			s.dialect.now+" - "+poolCheckLasts+s.dialect.forUpdate, currency)
		if errors.Is(err, card.ErrNoRow) {
			return nil
		}
		if err != nil {
			return err
		}
		var found []struct {
			Position int64  `db:"position"`
			Address  string `db:"address"`
			Paid     bool   `db:"paid"` // it has already received money, and must not be handed out
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
		return t.movePool(ctx, currency, found[len(found)-1].Position+1)
	})
	return addresses, err
}

func (t *tx) movePool(ctx context.Context, currency string, next int64) error {
	_, err := t.s.exec(ctx, t.t, "move address pool", "UPDATE address_pools SET next_position = ? WHERE currency = ? AND next_position < ?", next, currency, next)
	return err
}

// AddressPool implements settle.Store.
func (s *Store) AddressPool(ctx context.Context, currency string) (free int, newest *settle.Address, err error) {
	var row struct {
		Position int64  `db:"position"`
		Address  string `db:"address"`
		Next     int64  `db:"next_position"`
	}
	err = s.get(ctx, s.r, &row, "count addresses", `SELECT a.position, a.address, p.next_position FROM addresses a
		JOIN address_pools p ON p.currency = a.currency WHERE a.currency = ? ORDER BY a.position DESC LIMIT 1`, currency)
	if errors.Is(err, card.ErrNoRow) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	return int(max(0, row.Position+1-row.Next)), &settle.Address{Currency: currency, Address: row.Address, Position: row.Position}, nil
}

// CheckedPool implements settle.Tx.
func (t *tx) CheckedPool(ctx context.Context, currency string, walletIsAhead bool) error {
	if walletIsAhead {
		var newest int64
		err := t.s.get(ctx, t.t, &newest, "select old address pool", `SELECT COALESCE(MAX(a.position), -1) FROM addresses a JOIN address_pools p
			ON p.currency = a.currency WHERE a.currency = ? AND p.checked_at <= `+t.s.dialect.now+" - "+poolCheckLasts, currency)
		if err != nil {
			return err
		}
		if err := t.movePool(ctx, currency, newest+1); err != nil {
			return err
		}
	}
	_, err := t.s.exec(ctx, t.t, "check address pool", "UPDATE address_pools SET checked_at = "+t.s.dialect.now+" WHERE currency = ?", currency)
	return err
}

// InsertAddresses implements settle.Tx.
func (t *tx) InsertAddresses(ctx context.Context, as []settle.Address) error {
	if len(as) == 0 {
		return nil
	}
	_, err := t.s.exec(ctx, t.t, "start address pool", "INSERT INTO address_pools (currency, next_position, checked_at) VALUES (?, ?, "+t.s.dialect.now+
		") ON CONFLICT (currency) DO NOTHING", as[0].Currency, as[0].Position)
	if err != nil {
		return err
	}
	return insertAll(ctx, t, "insert addresses", "addresses (currency, address, position)", "(?, ?, ?)", "", as,
		func(a settle.Address) []any { return []any{a.Currency, a.Address, a.Position} })
}

// PoolAge implements order.Store.
func (s *Store) PoolAge(ctx context.Context, currency string) (time.Duration, error) {
	var ms int64
	err := s.get(ctx, s.r, &ms, "select age of address pool", "SELECT "+s.dialect.now+" - checked_at FROM address_pools WHERE currency = ?", currency)
	return time.Duration(ms) * time.Millisecond, err
}

// DistrustPool implements settle.Store.
func (s *Store) DistrustPool(ctx context.Context, currency string) error {
	_, err := s.exec(ctx, s.w, "distrust address pool", "UPDATE address_pools SET checked_at = 0 WHERE currency = ?", currency)
	return err
}

// RequestRescan implements settle.Store.
func (s *Store) RequestRescan(ctx context.Context, currency, reason string, believe bool) error {
	set, args := "rescan = COALESCE(rescan, ?)", []any{reason, currency}
	if believe {
		set += ", rescan_believed = TRUE"
	}
	n, err := s.exec(ctx, s.w, "request rescan", "UPDATE address_pools SET "+set+" WHERE currency = ?", args...)
	if err == nil && n == 0 {
		return card.ErrNoRow
	}
	return err
}

// NoteRescan implements settle.Store.
func (s *Store) NoteRescan(ctx context.Context, currency, progress string) error {
	_, err := s.exec(ctx, s.w, "note rescan", "UPDATE address_pools SET rescan = ? WHERE currency = ? AND rescan IS NOT NULL", progress, currency)
	return err
}

// EndRescan implements settle.Tx.
func (t *tx) EndRescan(ctx context.Context, currency string) error {
	_, err := t.s.exec(ctx, t.t, "end rescan", "UPDATE address_pools SET rescan = NULL, rescan_believed = FALSE WHERE currency = ?", currency)
	return err
}
