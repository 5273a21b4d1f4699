package store

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
)

// In milliseconds, as SQL.
var (
	checkLasts = strconv.FormatInt(order.CheckTTL.Milliseconds(), 10)
	markLasts  = strconv.FormatInt(order.MarkTTL.Milliseconds(), 10)
)

// TakeAddresses implements order.Store. It advances the pool's next position,
// so that earlier addresses are never taken again. It takes none unless this
// process has observed an attestation of the epoch on this database, in this
// history.
func (s *Store) TakeAddresses(ctx context.Context, currency string, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	lease := settle.LeaseName(currency)
	seen := s.rollbacks.last(lease)
	if !seen.moving {
		var err error
		if _, seen, err = s.observeMark(ctx, lease); errors.Is(err, card.ErrNoRow) || err == nil && !seen.moving {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	database, err := s.history(ctx)
	if err != nil {
		return nil, err
	}
	var addresses []string
	err = s.inTx(ctx, func(t *tx) error {
		addresses = nil
		var next int64
		now := s.dialect.now
		t.t = prepared{t.t}
		err := s.get(ctx, t.t, &next, "lock address pool",
			"SELECT next_position FROM address_pools WHERE currency = ? AND checked_at > "+
				now+" - "+checkLasts+
				" AND conflict IS NULL AND EXISTS (SELECT 1 FROM leases l WHERE l.name = ? AND l.epoch = ? AND l.mark >= ? AND l.marked_at > "+
				now+" - "+markLasts+" AND ? = "+database+")"+s.dialect.forUpdate, currency, lease, seen.Epoch, seen.Mark,
			seen.Database)
		if errors.Is(err, card.ErrNoRow) {
			return nil
		}
		if err != nil {
			return err
		}
		var found []struct {
			Position int64  `db:"position"`
			Address  string `db:"address"`
			Paid     bool   `db:"paid"` // it has received money, so no card may get it
		}
		// With EXISTS, PostgreSQL would read all transfers once instead of
		// searching for each free address, regardless of the limit.
		err = s.list(ctx, t.t, &found, "select addresses", `SELECT a.position, a.address, (SELECT t.txid FROM transfers t
			WHERE t.currency = a.currency AND t.address = a.address LIMIT 1) IS NOT NULL AS paid
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
	_, err := t.s.exec(ctx, t.t, "move address pool",
		"UPDATE address_pools SET next_position = ? WHERE currency = ? AND next_position < ?", next, currency, next)
	return err
}

// AddressPool implements settle.Store.
func (s *Store) AddressPool(ctx context.Context, currency string) (settle.Pool, error) {
	var row struct {
		Position   sql.NullInt64  `db:"position"`
		Address    sql.NullString `db:"address"`
		Next       int64          `db:"next_position"`
		PacedUntil int64          `db:"paced_until"`
		LastEpoch  int64          `db:"last_epoch"`
	}
	err := s.get(ctx, prepared{s.r}, &row, "count addresses", `SELECT a.position, a.address, p.next_position, p.paced_until,
		(SELECT COALESCE(MAX(e.epoch), 0) FROM epochs e WHERE e.currency = p.currency) AS last_epoch
		FROM address_pools p LEFT JOIN addresses a ON a.currency = p.currency
			AND a.position = (SELECT MAX(b.position) FROM addresses b WHERE b.currency = p.currency)
		WHERE p.currency = ?`, currency)
	if errors.Is(err, card.ErrNoRow) {
		return settle.Pool{}, nil
	}
	pool := settle.Pool{Next: row.Next, PacedUntil: fromMillis(row.PacedUntil), LastEpoch: row.LastEpoch}
	if row.Position.Valid {
		pool.Free = int(max(0, row.Position.Int64+1-row.Next))
		pool.Newest = &settle.Address{Currency: currency, Address: row.Address.String, Position: row.Position.Int64}
	}
	return pool, err
}

// CheckedPool implements settle.Tx.
func (t *tx) CheckedPool(ctx context.Context, currency string) error {
	_, err := t.s.exec(ctx, t.t, "check address pool",
		"UPDATE address_pools SET checked_at = "+t.s.dialect.now+" WHERE currency = ?", currency)
	return err
}

// InsertAddresses implements settle.Tx.
func (t *tx) InsertAddresses(ctx context.Context, as []settle.Address, pacedUntil time.Time) error {
	if len(as) == 0 {
		return nil
	}
	_, err := t.s.exec(ctx, t.t, "start address pool",
		"INSERT INTO address_pools (currency, next_position, checked_at, paced_until) VALUES (?, ?, "+t.s.dialect.now+
			", ?) ON CONFLICT (currency) DO UPDATE SET paced_until = excluded.paced_until", as[0].Currency, as[0].Position,
		pacedUntil.UnixMilli())
	if err != nil {
		return err
	}
	return insertAll(ctx, t, "insert addresses", "addresses (currency, address, position)",
		[]string{"TEXT", "TEXT", "BIGINT"}, "", "", as,
		func(a settle.Address) []any { return []any{a.Currency, a.Address, a.Position} })
}

// PoolState implements order.Store.
func (s *Store) PoolState(ctx context.Context, currency string) (order.PoolState, error) {
	var row struct {
		CheckedAt int64          `db:"checked_at"`
		Conflict  sql.NullString `db:"conflict"`
	}
	if err := s.get(ctx, prepared{s.r}, &row, "select address pool",
		"SELECT checked_at, conflict FROM address_pools WHERE currency = ?", currency); err != nil {
		return order.PoolState{}, err
	}
	mark, known, err := s.observeMark(ctx, settle.LeaseName(currency))
	if err != nil {
		return order.PoolState{}, err
	}
	return order.PoolState{Epoch: known.Epoch, Moving: known.moving, WentBack: known.back, Conflict: row.Conflict.Valid,
		CheckedAgo: time.Duration(mark.Now-row.CheckedAt) * time.Millisecond,
		MarkedAgo:  time.Duration(mark.Now-mark.MarkedAt) * time.Millisecond}, nil
}

// NoteConflict implements settle.Store.
func (s *Store) NoteConflict(ctx context.Context, currency, why string) error {
	_, err := s.exec(ctx, s.w, "note conflict",
		"UPDATE address_pools SET conflict = COALESCE(conflict, ?) WHERE currency = ?", why, currency)
	return err
}

// ClaimWallet assigns the wallet of a currency to this database, if several use
// it. The error is card.ErrNoRow if the currency has no wallet yet.
func (s *Store) ClaimWallet(ctx context.Context, currency string) error {
	n, err := s.exec(ctx, s.w, "claim wallet", "UPDATE address_pools SET conflict = ? WHERE currency = ?", settle.Claimed,
		currency)
	if err == nil && n == 0 {
		return card.ErrNoRow
	}
	return err
}

// DistrustPool implements settle.Store.
func (s *Store) DistrustPool(ctx context.Context, currency string) error {
	_, err := s.exec(ctx, s.w, "distrust address pool", "UPDATE address_pools SET checked_at = 0 WHERE currency = ?",
		currency)
	return err
}

// RequestRescan implements settle.Store.
func (s *Store) RequestRescan(ctx context.Context, currency, reason string) error {
	return s.requestRescan(ctx, "rescan = COALESCE(rescan, ?)", reason, currency)
}

// AskForRescan requests a rescan for an operator, even if one is pending. With
// believe, transfers that the wallet still lacks after the rescan are no longer
// counted, and transfers that it reports differently are changed. The error is
// card.ErrNoRow if the currency has no wallet yet.
func (s *Store) AskForRescan(ctx context.Context, currency string, believe bool) error {
	return s.requestRescan(ctx, "rescan = ?, rescan_believed = rescan_believed OR ?", settle.Asked, believe, currency)
}

func (s *Store) requestRescan(ctx context.Context, set string, args ...any) error {
	n, err := s.exec(ctx, s.w, "request rescan", "UPDATE address_pools SET "+set+" WHERE currency = ?", args...)
	if err == nil && n == 0 {
		return card.ErrNoRow
	}
	return err
}

// NoteRescan implements settle.Store.
func (s *Store) NoteRescan(ctx context.Context, currency, progress string) error {
	_, err := s.exec(ctx, s.w, "note rescan",
		"UPDATE address_pools SET rescan = ? WHERE currency = ? AND rescan IS NOT NULL", progress, currency)
	return err
}

// EndRescan implements settle.Tx.
func (t *tx) EndRescan(ctx context.Context, currency string) error {
	_, err := t.s.exec(ctx, t.t, "end rescan",
		"UPDATE address_pools SET rescan = NULL, rescan_believed = FALSE WHERE currency = ?", currency)
	return err
}
