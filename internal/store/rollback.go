package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/store/postgres"
)

var errNoHistory = errors.New("the database does not report when it was started")

// A restored database looks exactly as it did when it was saved. Therefore a
// process trusts a database only after it has seen it advance: its store
// remembers the newest mark of each lease, and the server that it was read
// from.

// observation is the row of a lease.
type observation struct {
	Epoch    int64  `db:"epoch"` // 0 while no process attests to it
	Mark     int64  `db:"mark"`
	MarkedAt int64  `db:"marked_at"`
	Now      int64  `db:"now"`
	Database string `db:"database"` // the server and its history, see Store.history
	History  string `db:"history"`  // Database at the last attestation
}

// rollbackDetector remembers the newest observation of each lease, by name.
type rollbackDetector struct {
	mu   sync.Mutex
	seen map[string]lastObservation
}

// lastObservation is the newest observation, by epoch and mark.
type lastObservation struct {
	observation
	moving bool      // the mark has grown on this database since, or this process made it grow
	back   bool      // an older mark was seen later
	at     time.Time // of the observation, by the clock of this process
}

// last returns the newest observation of a lease.

func (d *rollbackDetector) last(lease string) lastObservation {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.seen[lease]
	m.moving = m.moving && !m.outdated()
	return m
}

// clockLeeway is how far the wall clock may be set without invalidating
// observations.
const clockLeeway = 5 * time.Second

// outdated reports whether the wall clock and the monotonic clock disagree
// about the time since the observation. A machine that was suspended, or reset
// to a snapshot with its memory, would mistake the past for the present.
func (m lastObservation) outdated() bool {
	return m.Epoch > 0 && (time.Now().Round(0).Sub(m.at.Round(0))-time.Since(m.at)).Abs() > clockLeeway
}

// olderThan reports whether an observation is of an earlier time than other.
func (s observation) olderThan(other observation) bool {
	if s.Epoch == 0 || s.Epoch == other.Epoch {
		return s.Mark < other.Mark
	}
	return s.Epoch < other.Epoch
}

// observe remembers an observation. before is the newest observation when the
// database was read: another goroutine may have stored a newer one since, which
// proves nothing. own means that this process wrote the mark, based on the
// previous one.
func (d *rollbackDetector) observe(lease string, s observation, before lastObservation, own bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]lastObservation{}
	}
	m := d.seen[lease]
	switch {
	case s.olderThan(m.observation) && !s.olderThan(before.observation):
		return
	case s.Epoch == 0:
		m.moving = false
	case s.olderThan(m.observation):
		m.moving, m.back = false, true
	case own:
		m = lastObservation{observation: s, moving: true, at: time.Now()}
	case s.Epoch > m.Epoch, s.Database != m.Database, m.outdated():
		m = lastObservation{observation: s, at: time.Now()}
	case s.Mark > m.Mark:
		m = lastObservation{observation: s, moving: true, at: time.Now()}
	}
	d.seen[lease] = m
}

// ShareDetector lets two stores share their observations. Both must be of one
// process, which can't be older than itself.
func (s *Store) ShareDetector(other *Store) { s.rollbacks = other.rollbacks }

// RequireAttestation makes issuing cards and numbering events fail unless a
// process attests that the database was not rolled back: after a restore, the
// next numbers may have been used already. Decisions of operators do not need
// it.
func (s *Store) RequireAttestation() { s.requireAttestation.Store(true) }

var errNotAttested = errors.New("no process attests that the database was not rolled back")

// attested returns the condition that a process attests to an epoch, in the
// present history of the database.
func (s *Store) attested(ctx context.Context) (string, error) {
	database, err := s.history(ctx)
	return "EXISTS (SELECT 1 FROM leases l WHERE l.epoch IS NOT NULL AND l.marked_at > " + s.dialect.now + " - " +
		markLasts +
		" AND l.history = " + database + ")", err
}

// InvalidateEpochs ends all epochs. A process that starts on SQLite calls it:
// the file may just have been restored, which it does not record.
func (s *Store) InvalidateEpochs(ctx context.Context) error {
	_, err := s.exec(ctx, s.w, "invalidate epochs", "UPDATE leases SET epoch = NULL")
	return err
}

// observeMark reads the row of a lease. It returns the row and the newest
// observation. The error is card.ErrNoRow if there is no such lease.
func (s *Store) observeMark(ctx context.Context, lease string) (seen observation, known lastObservation, err error) {
	database, err := s.history(ctx)
	if err != nil {
		return seen, known, err
	}
	before := s.rollbacks.last(lease)
	err = s.get(ctx, prepared{s.w}, &seen, "read mark",
		"SELECT COALESCE(epoch, 0) AS epoch, mark, marked_at, history, "+s.dialect.now+" AS now, "+database+
			" AS database FROM leases WHERE name = ?", lease)
	if err != nil {
		return seen, known, err
	}
	s.rollbacks.observe(lease, seen, before, false)
	return seen, s.rollbacks.last(lease), nil
}

// history returns an expression for the server and its history. PostgreSQL
// starts a new timeline when a standby is promoted, and after a restore to a
// point in time. If the role may not read it, the start of the server replaces
// it, so that every restart counts as another history. A file of SQLite has
// nothing of that kind.
func (s *Store) history(ctx context.Context) (string, error) {
	if s.dialect.name != postgresDialect.name {
		return "''", nil
	}
	if known := s.historySQL.Load(); known != nil {
		return *known, nil
	}
	database := "CAST('leases'::regclass AS OID) || '/' || " // a table that was restored has another
	for _, expression := range []string{
		database + "(SELECT system_identifier FROM pg_control_system()) || '/' || " +
			"substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)",
		database + "CAST(pg_postmaster_start_time() AS TEXT)",
	} {
		var name string
		err := s.get(ctx, s.w, &name, "read the history", "SELECT "+expression)
		if err == nil {
			s.historySQL.Store(&expression)
			return expression, nil
		}
		if !postgres.IsForbidden(err) {
			return "", err
		}
	}
	return "", errNoHistory
}
