package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errNoHistory = errors.New("the database does not say when it was started")

// A restored database looks exactly as it did when it was saved. So a process
// believes a database only as far as it has seen it move on: its store
// remembers the newest mark of each lease, and which server it was read from.

// sighting is what was seen of a lease's row.
type sighting struct {
	Epoch    int64  `db:"epoch"` // 0 while nobody attests
	Mark     int64  `db:"mark"`
	MarkedAt int64  `db:"marked_at"`
	Now      int64  `db:"now"`
	Database string `db:"database"` // the server, and which of its histories it follows
	History  string `db:"history"`  // the same, when an epoch was last attested to
}

// witness remembers sightings, by the name of the lease.
type witness struct {
	mu   sync.Mutex
	seen map[string]memory
}

// memory is the newest sighting, by epoch and mark.
type memory struct {
	sighting
	moving bool      // the mark was seen to grow on this database, or this process made it grow
	back   bool      // an older mark was seen after it
	at     time.Time // of the sighting, by the clock of this process
}

// recall returns what is remembered of a lease.
func (w *witness) recall(lease string) memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.seen[lease]
	m.moving = m.moving && !m.outdated()
	return m
}

// clockLeeway is how far the clock on the wall may be set while a process
// remembers its marks.
const clockLeeway = 5 * time.Second

// outdated reports whether the clock on the wall and the one that only runs
// disagree about the time since the sighting: a machine that was suspended, or
// reset to a snapshot with all its memory, takes the past for the present.
func (m memory) outdated() bool {
	return m.Epoch > 0 && (time.Now().Round(0).Sub(m.at.Round(0))-time.Since(m.at)).Abs() > clockLeeway
}

// olderThan reports whether a sighting is of an earlier time than another one.
func (s sighting) olderThan(other sighting) bool {
	if s.Epoch == 0 || s.Epoch == other.Epoch {
		return s.Mark < other.Mark
	}
	return s.Epoch < other.Epoch
}

// note remembers a sighting. before is what was remembered when the database
// was asked: what others of this process have seen since may be newer, and
// proves nothing. own means that this process made the mark, knowing the one
// before.
func (w *witness) note(lease string, s sighting, before memory, own bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string]memory{}
	}
	m := w.seen[lease]
	switch {
	case s.olderThan(m.sighting) && !s.olderThan(before.sighting):
		return
	case s.Epoch == 0:
		m.moving = false
	case s.olderThan(m.sighting):
		m.moving, m.back = false, true
	case own:
		m = memory{sighting: s, moving: true, at: time.Now()}
	case s.Epoch > m.Epoch, s.Database != m.Database, m.outdated():
		m = memory{sighting: s, at: time.Now()}
	case s.Mark > m.Mark:
		m = memory{sighting: s, moving: true, at: time.Now()}
	}
	w.seen[lease] = m
}

// Trust has s believe what other has seen, and the other way round. Both must
// be of one process, which can't be older than itself.
func (s *Store) Trust(other *Store) { s.witness = other.witness }

// Insist has cards issued and events numbered only while somebody attests that
// the database is as it was: after a restore, the next numbers may have been
// used. What operators decide is not affected.
func (s *Store) Insist() { s.insist.Store(true) }

var errNotAttested = errors.New("nobody attests that the database is as it was")

// attested returns the condition that somebody attests to an epoch, in the
// history that the database follows now.
func (s *Store) attested(ctx context.Context) (string, error) {
	database, err := s.history(ctx)
	return "EXISTS (SELECT 1 FROM leases l WHERE l.epoch IS NOT NULL AND l.marked_at > " + s.dialect.now + " - " +
		markLasts +
		" AND l.history = " + database + ")", err
}

// Doubt ends all epochs. A process that starts on SQLite calls it: the file may
// have been put back a moment ago, and nothing in it tells.
func (s *Store) Doubt(ctx context.Context) error {
	_, err := s.exec(ctx, s.w, "doubt epochs", "UPDATE leases SET epoch = NULL")
	return err
}

// look reads the row of a lease, and returns it with what is remembered now.
// The error is card.ErrNoRow if there is none.
func (s *Store) look(ctx context.Context, lease string) (seen sighting, known memory, err error) {
	database, err := s.history(ctx)
	if err != nil {
		return seen, known, err
	}
	before := s.witness.recall(lease)
	err = s.get(ctx, often{s.w}, &seen, "read mark",
		"SELECT COALESCE(epoch, 0) AS epoch, mark, marked_at, history, "+s.dialect.now+" AS now, "+database+
			" AS database FROM leases WHERE name = ?", lease)
	if err != nil {
		return seen, known, err
	}
	s.witness.note(lease, seen, before, false)
	return seen, s.witness.recall(lease), nil
}

// history returns an expression that names the server and the history that it
// follows. PostgreSQL begins a new timeline when a standby is promoted, and
// after a restore to a point in time. Where it may not be asked for, the start
// of the server stands for it, so that every restart counts as another history.
// On SQLite a file has nothing of that kind.
func (s *Store) history(ctx context.Context) (string, error) {
	if s.dialect.name != postgres.name {
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
		if !s.dialect.forbidden(err) {
			return "", err
		}
	}
	return "", errNoHistory
}
