package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// AcquireLease implements settle.Store. It is one statement, and uses the
// database's clock. Each call writes a mark. The epoch continues only if the
// row is at least as new as the newest mark that this process has seen, in the
// same history of the database.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (settle.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	database, err := s.history(ctx)
	if err != nil {
		return settle.Lease{}, err
	}
	known, now := s.rollbacks.last(name), s.dialect.now
	epoch := known.Epoch
	if !known.moving { // a single observation proves nothing
		epoch = 0
	}
	goesOn := "leases.epoch = ? AND leases.mark >= ? AND ? = " + database
	var row struct {
		observation
		Fence  int64  `db:"fence"`
		Server string `db:"server"`
	}
	err = s.get(ctx, prepared{s.w}, &row, "acquire lease", `INSERT INTO leases (name, holder, fence, expires_at, mark)
		VALUES (?, ?, 1, `+now+` + ?, 1)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,
			fence = leases.fence + CASE WHEN leases.holder = excluded.holder THEN 0 ELSE 1 END, mark = leases.mark + 1,
			epoch = CASE WHEN `+goesOn+` THEN leases.epoch END,
			marked_at = CASE WHEN `+goesOn+` THEN `+now+` ELSE leases.marked_at END,
			history = CASE WHEN `+goesOn+` THEN `+database+` ELSE leases.history END
		WHERE leases.holder = excluded.holder OR leases.expires_at <= `+now+`
		RETURNING fence, COALESCE(epoch, 0) AS epoch, mark, marked_at, history, `+now+` AS now, `+database+` AS database, `+s.dialect.server+` AS server`,
		name, holder, ttl.Milliseconds(), epoch, known.Mark, known.Database, epoch, known.Mark, known.Database, epoch,
		known.Mark, known.Database)
	if errors.Is(err, card.ErrNoRow) {
		_, _, err = s.observeMark(ctx, name) // a standby can continue the epoch only if it has seen the newest marks
		if err == nil || errors.Is(err, card.ErrNoRow) {
			err = card.ErrFenced
		}
		return settle.Lease{}, err
	}
	if err != nil {
		return settle.Lease{}, err
	}
	s.rollbacks.observe(name, row.observation, known, true)
	l := lease(name, holder, row.Fence, row.observation, known)
	l.Server, l.Serving = row.Server, row.Server != ""
	if !l.Serving {
		l.Server = s.file
	}
	return l, nil
}

// lease returns the lease of a row that was just written. known is the previous
// observation.
func lease(name, holder string, fence int64, row observation, known lastObservation) settle.Lease {
	l := settle.Lease{Name: name, Holder: holder, Fence: fence, Epoch: row.Epoch, Now: fromMillis(row.Now)}
	if row.MarkedAt > 0 {
		l.MarkedAt = fromMillis(row.MarkedAt)
	}
	if row.Epoch == 0 {
		l.WentBack = row.History != "" && row.History != row.Database ||
			known.Epoch > 0 && (known.back || row.Mark <= known.Mark || known.Database != row.Database)
	}
	return l
}

// BeginEpoch implements settle.Store.
func (s *Store) BeginEpoch(ctx context.Context, l settle.Lease, e settle.Epoch) (settle.Lease, error) {
	database, err := s.history(ctx)
	if err != nil {
		return l, err
	}
	before := s.rollbacks.last(l.Name)
	var row observation
	err = s.inTx(ctx, func(t *tx) error {
		if err := t.CheckLease(ctx, l); err != nil {
			return err
		}
		now := s.dialect.now
		err := s.get(ctx, t.t, &row, "begin epoch",
			"UPDATE leases SET epoch = ?, mark = mark + 1, marked_at = "+now+", history = "+database+
				" WHERE name = ? RETURNING epoch, mark, marked_at, history, "+now+" AS now, "+database+" AS database", e.Number,
			l.Name)
		if err != nil {
			return err
		}
		if e.Continued {
			return t.continuePool(ctx, e)
		}
		if e.First > 0 { // otherwise the pool starts with its first address
			_, err = s.exec(ctx, t.t, "begin address pool", `INSERT INTO address_pools (currency, next_position, checked_at, paced_until, issue_after)
				VALUES (?, ?, `+now+`, ?, `+now+` + ?) ON CONFLICT (currency) DO UPDATE SET next_position = excluded.next_position,
				paced_until = excluded.paced_until, issue_after = excluded.issue_after, conflict = NULL`,
				e.Currency, e.First, e.PacedUntil.UnixMilli(), e.Quiet.Milliseconds())
		}
		if err == nil && e.Stale {
			_, err = s.exec(ctx, t.t, "hold stock", holdStock)
		}
		if err != nil {
			return err
		}
		_, err = s.exec(ctx, t.t, "insert epoch",
			"INSERT INTO epochs (currency, epoch, started_at, first_position, reason) VALUES (?, ?, "+now+", ?, ?)",
			e.Currency, e.Number, e.First, e.Reason)
		return err
	})
	if err != nil {
		return l, err
	}
	s.rollbacks.observe(l.Name, row, before, true)
	begun := lease(l.Name, l.Holder, l.Fence, row, lastObservation{})
	begun.Server, begun.Serving = l.Server, l.Serving
	return begun, nil
}

// continuePool skips the addresses before the first of a continued epoch.
func (t *tx) continuePool(ctx context.Context, e settle.Epoch) error {
	_, err := t.s.exec(ctx, t.t, "continue address pool", `UPDATE address_pools SET next_position = ?, paced_until = ?
		WHERE currency = ? AND next_position <= ?`, e.First, e.PacedUntil.UnixMilli(), e.Currency, e.First)
	return err
}

// ResetFeeds implements settle.Store.
func (s *Store) ResetFeeds(ctx context.Context, l settle.Lease, since time.Time) error {
	return s.inTx(ctx, func(t *tx) error {
		if err := t.CheckLease(ctx, l); err != nil {
			return err
		}
		return t.resetFeeds(ctx, since, l.Now)
	})
}

// resetFeeds advances the event numbers of every account. The database may have
// lost events that used the next ones. The milliseconds since 1970 are greater
// than any of them, unless an account has a thousand events per second.
func (t *tx) resetFeeds(ctx context.Context, since, now time.Time) error {
	var accounts []uuid.UUID
	err := t.s.list(ctx, t.t, &accounts, "jump ahead",
		`UPDATE accounts SET last_seq = CASE WHEN last_seq < ? THEN ? ELSE last_seq END RETURNING id`,
		now.UnixMilli(), now.UnixMilli())
	if err != nil {
		return err
	}
	events := make([]card.Event, len(accounts))
	for i, account := range accounts {
		id := uuid.Must(uuid.NewV7())
		events[i] = card.Event{ID: id, AccountID: account, Type: card.EventFeedReset, Since: since,
			CreatedAt: card.TimeOf(id)}
	}
	return t.InsertEvents(ctx, events)
}

// ReleaseLease implements settle.Store. It keeps the row, so that the fence
// never restarts.
func (s *Store) ReleaseLease(ctx context.Context, l settle.Lease) error {
	_, err := s.exec(ctx, s.w, "release lease",
		"UPDATE leases SET expires_at = 0 WHERE name = ? AND holder = ? AND fence = ?", l.Name, l.Holder, l.Fence)
	return err
}

// awaited returns the name of the row that shows which process waits for a
// lease.
func awaited(lease string) string { return "await " + lease }

// AwaitLease implements settle.Store.
func (s *Store) AwaitLease(ctx context.Context, name, holder string, ttl time.Duration) error {
	now := s.dialect.now
	_, err := s.exec(ctx, s.w, "await lease", `INSERT INTO leases (name, holder, fence, expires_at) VALUES (?, ?, 1, `+now+` + ?)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at`, awaited(name), holder, ttl.Milliseconds())
	return err
}

// LeaseAwaited implements settle.Store.
func (s *Store) LeaseAwaited(ctx context.Context, l settle.Lease) (bool, error) {
	var n int
	err := s.get(ctx, s.r, &n, "count processes that await lease",
		"SELECT COUNT(*) FROM leases WHERE name = ? AND holder <> ? AND expires_at > "+
			s.dialect.now, awaited(l.Name), l.Holder)
	return n > 0, err
}

// CheckLease implements settle.Tx. A lease is lost if its epoch was attested in
// another history: the database was replaced since.
func (t *tx) CheckLease(ctx context.Context, l settle.Lease) error {
	database, err := t.s.history(ctx)
	if err != nil {
		return err
	}
	var fence int64
	err = t.s.get(ctx, t.t, &fence, "check lease",
		"SELECT fence FROM leases WHERE name = ? AND holder = ? AND fence = ? AND expires_at > "+
			t.s.dialect.now+" AND (epoch IS NULL OR history = "+database+")"+t.s.dialect.forUpdate, l.Name, l.Holder, l.Fence)
	if errors.Is(err, card.ErrNoRow) {
		return card.ErrFenced
	}
	return err
}
