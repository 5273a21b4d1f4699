package store

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// AcquireLease implements settle.Store. It is one statement, and goes by the database's clock.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (settle.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, longestClaim)
	defer cancel()
	l := settle.Lease{Name: name, Holder: holder}
	now := s.dialect.now
	err := s.get(ctx, s.w, &l.Fence, "acquire lease", `INSERT INTO leases (name, holder, fence, expires_at)
		VALUES (?, ?, 1, `+now+` + ?)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,
			fence = leases.fence + CASE WHEN leases.holder = excluded.holder THEN 0 ELSE 1 END
		WHERE leases.holder = excluded.holder OR leases.expires_at <= `+now+`
		RETURNING fence`, name, holder, ttl.Milliseconds())
	if errors.Is(err, card.ErrNoRow) {
		return settle.Lease{}, card.ErrFenced
	}
	return l, err
}

// ReleaseLease implements settle.Store. It keeps the row, so that the fence never starts again.
func (s *Store) ReleaseLease(ctx context.Context, l settle.Lease) error {
	_, err := s.exec(ctx, s.w, "release lease", "UPDATE leases SET expires_at = 0 WHERE name = ? AND holder = ? AND fence = ?", l.Name, l.Holder, l.Fence)
	return err
}

// CheckLease implements settle.Tx.
func (t *tx) CheckLease(ctx context.Context, l settle.Lease) error {
	var fence int64
	err := t.s.get(ctx, t.t, &fence, "check lease", "SELECT fence FROM leases WHERE name = ? AND holder = ? AND fence = ? AND expires_at > "+
		t.s.dialect.now+t.s.dialect.forUpdate, l.Name, l.Holder, l.Fence)
	if errors.Is(err, card.ErrNoRow) {
		return card.ErrFenced
	}
	return err
}
