package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/store/postgres"
)

var errNoHistory = errors.New("the database does not say when it was started")

// A restored database looks exactly as it did when it was saved. So a process
// believes a database only as far as it has seen it move on: its store
// remembers the newest mark of each lease, and which server it was read from.

// observation is what was seen of a lease's row.
type observation struct {
	Epoch    int64  `db:"epoch"` // 0 while nobody attests
	Mark     int64  `db:"mark"`
	MarkedAt int64  `db:"marked_at"`
	Now      int64  `db:"now"`
	Database string `db:"database"` // the server, and which of its histories it follows
	History  string `db:"history"`  // the same, when an epoch was last attested to
}

// rollbackDetector remembers sightings, by the name of the lease.
type rollbackDetector struct {
	mu   sync.Mutex
	seen map[string]lastObservation
}

// lastObservation is the newest observation, by epoch and mark.
type lastObservation struct {
	observation
	moving bool      // the mark was seen to grow on this database, or this process made it grow
	back   bool      // an older mark was seen after it
	at     time.Time // of the observation, by the clock of this process
}

// last returns what is remembered of a lease.
func (d *rollbackDetector) last(lease string) lastObservation {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.seen[lease]
	m.moving = m.moving && !m.outdated()
	return m
}

// clockLeeway is how far the clock on the wall may be set while a process
// remembers its marks.
const clockLeeway = 5 * time.Second

// outdated reports whether the clock on the wall and the one that only runs
// disagree about the time since the observation: a machine that was suspended, or
// reset to a snapshot with all its lastObservation, takes the past for the present.
func (m lastObservation) outdated() bool {
	return m.Epoch > 0 && (time.Now().Round(0).Sub(m.at.Round(0))-time.Since(m.at)).Abs() > clockLeeway
}

// olderThan reports whether an observation is of an earlier time than another one.
func (s observation) olderThan(other observation) bool {
	if s.Epoch == 0 || s.Epoch == other.Epoch {
		return s.Mark < other.Mark
	}
	return s.Epoch < other.Epoch
}

// observe remembers an observation. before is what was remembered when the database
// was asked: what others of this process have seen since may be newer, and
// proves nothing. own means that this process made the mark, knowing the one
// before.
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

// ShareDetector has s believe what other has seen, and the other way round. Both must
// be of one process, which can't be older than itself.
func (s *Store) ShareDetector(other *Store) { s.rollbacks = other.rollbacks }

// RequireAttestation has cards issued and events numbered only while somebody attests that
// the database is as it was: after a restore, the next numbers may have been
// used. What operators decide is not affected.
func (s *Store) RequireAttestation() { s.requireAttestation.Store(true) }

var errNotAttested = errors.New("nobody attests that the database is as it was")

// attested returns the condition that somebody attests to an epoch, in the
// history that the database follows now.
func (s *Store) attested(ctx context.Context) (string, error) {
	database, err := s.history(ctx)
	return "EXISTS (SELECT 1 FROM leases l WHERE l.epoch IS NOT NULL AND l.marked_at > " + s.dialect.now + " - " +
		markLasts +
		" AND l.history = " + database + ")", err
}

// InvalidateEpochs ends all epochs. A process that starts on SQLite calls it: the file may
// have been put back a moment ago, and nothing in it tells.
func (s *Store) InvalidateEpochs(ctx context.Context) error {
	_, err := s.exec(ctx, s.w, "invalidate epochs", "UPDATE leases SET epoch = NULL")
	return err
}

// observeMark reads the row of a lease, and returns it with what is remembered now.
// The error is card.ErrNoRow if there is none.
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

// history returns an expression that names the server and the history that it
// follows. PostgreSQL begins a new timeline when a standby is promoted, and
// after a restore to a point in time. Where it may not be asked for, the start
// of the server stands for it, so that every restart counts as another history.
// On SQLite a file has nothing of that kind.
func (s *Store) history(ctx context.Context) (string, error) {
	if s.dialect.name != postgresDialect.name {
		return "''", nil
	}
	if known := s.historySQL.Load(); known != nil {
		return *known, nil
	}
	database := "CAST('leases'::regclass AS OID) || '/' || " // a table that was restored has another
	for _, expression := range []string{
		database + "(SELECT system_identifier FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)",
		database + "CAST(pg_postmaster_start_time() AS TEXT)",
	} {
		var name string
		err := s.get(ctx, s.w, &name, "ask for the database's history", "SELECT "+expression)
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
