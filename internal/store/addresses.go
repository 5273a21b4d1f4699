package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
)

// LeaseAddresses implements card.Store. Leases that ran out are settled first: an address that a card uses is marked so,
// any other is free again. Should its old holder still hand it out, the card's UNIQUE address refuses the second.
func (s *Store) LeaseAddresses(ctx context.Context, currency, holder string, n int, ttl time.Duration) ([]string, error) {
	var addresses []string
	now := s.dialect.now
	err := s.inTx(ctx, func(t *tx) error {
		addresses = nil
		_, err := s.exec(ctx, t.t, "settle address leases", settleLeases+" WHERE currency = ? AND state = 'leased' AND lease_until <= "+now, currency)
		if err != nil {
			return err
		}
		return s.list(ctx, t.t, &addresses, "lease addresses", `UPDATE addresses SET state = 'leased', leased_by = ?, lease_until = `+now+` + ?
			WHERE currency = ? AND address IN (SELECT q.address FROM addresses q WHERE q.currency = ? AND q.state = 'free'
				ORDER BY q.position LIMIT ?`+s.dialect.skipLocked+`) RETURNING address`,
			holder, ttl.Milliseconds(), currency, currency, n)
	})
	return addresses, err
}

const settleLeases = `UPDATE addresses SET leased_by = NULL, lease_until = NULL, state = CASE WHEN EXISTS
	(SELECT 1 FROM cards c WHERE c.currency = addresses.currency AND c.address = addresses.address) THEN 'used' ELSE 'free' END`

// ReturnAddresses implements card.Store.
func (s *Store) ReturnAddresses(ctx context.Context, holder string) error {
	_, err := s.exec(ctx, s.w, "return addresses", settleLeases+" WHERE state = 'leased' AND leased_by = ?", holder)
	return err
}

// AddressPool implements card.Store.
func (s *Store) AddressPool(ctx context.Context, currency string) (free int, highest int64, err error) {
	var row struct {
		Free    int   `db:"free"`
		Highest int64 `db:"highest"`
	}
	err = s.get(ctx, s.r, &row, "count addresses", `SELECT (SELECT COUNT(*) FROM addresses WHERE currency = ? AND state = 'free') AS free,
		(SELECT COALESCE(MAX(position), -1) FROM addresses WHERE currency = ?) AS highest`, currency, currency)
	return row.Free, row.Highest, err
}

// InsertAddresses implements card.Tx.
func (t *tx) InsertAddresses(ctx context.Context, as []card.Address) error {
	return inBatches(as, func(some []card.Address) error {
		args := make([]any, 0, 3*len(some))
		for _, a := range some {
			args = append(args, a.Currency, a.Address, a.Position)
		}
		_, err := t.s.exec(ctx, t.t, "insert addresses", "INSERT INTO addresses (currency, address, position) VALUES "+rows("(?, ?, ?)", len(some)), args...)
		return err
	})
}

// RetireAddresses implements card.Tx.
func (t *tx) RetireAddresses(ctx context.Context, currency string, addresses []string) error {
	const retire = "UPDATE addresses SET state = 'retired' WHERE currency = ? AND state IN ('free', 'leased')"
	if addresses == nil {
		_, err := t.s.exec(ctx, t.t, "retire addresses", retire, currency)
		return err
	}
	return inBatches(addresses, func(some []string) error {
		query, args, err := sqlx.In(retire+" AND address IN (?)", currency, some)
		if err != nil {
			return err
		}
		_, err = t.s.exec(ctx, t.t, "retire addresses", query, args...)
		return err
	})
}
