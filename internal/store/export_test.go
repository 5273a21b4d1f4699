package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	modernc "modernc.org/sqlite"

	"github.com/cardmint/cardmint/internal/card"
)

// OpenImpatient opens a database that has its schema as Open does, but with
// other bounds of a statement.
func OpenImpatient(ctx context.Context, databaseURL string, conns int, longest time.Duration,
	coins []card.Currency) (*Store, error) {
	return open(ctx, databaseURL, conns, longest, coins)
}

// Scalar runs a query on a connection of the store.
func (s *Store) Scalar(ctx context.Context, dest any, query string) error {
	return s.get(ctx, s.r, dest, "query", query)
}

// Changing are the columns that tags are made of.
const Changing = changing

// Tx is what happens within one transaction.
type Tx = tx

// Do runs f in a transaction of an actor.
func (s *Store) Do(ctx context.Context, f func(*Tx) error) error {
	return s.inTx(ctx, func(t *Tx) error {
		t.t = prepared{t.t}
		return f(t)
	})
}

// MostCompiled is how many statements a connection of SQLite keeps.
const MostCompiled = mostCompiled

// Writer returns the connection that writes.
func Writer(ctx context.Context, s *Store) (*sql.Conn, error) { return s.w.Conn(ctx) }

// Status implements modernc.DBStatus.
func (c *compiled) Status(op modernc.DBStatusOp, reset bool) (current, high int, err error) {
	return c.liteConn.(modernc.DBStatus).Status(op, reset)
}

// Compiled returns the statements that a connection of SQLite keeps, by text.
func Compiled(t *testing.T, c *sql.Conn) map[string]preparedStmt {
	t.Helper()
	var kept map[string]preparedStmt
	if err := c.Raw(func(conn any) error { kept = conn.(*compiled).idle; return nil }); err != nil {
		t.Fatal(err)
	}
	return kept
}

// With returns a migration that knows other files than this program.
func (m Migration) With(files fs.FS) Migration {
	m.files = files
	return m
}

// OpenThrough opens a database as Open does, with connections that pass through
// wrap.
func OpenThrough(ctx context.Context, databaseURL string, conns int, coins []card.Currency,
	wrap func(driver.Connector) driver.Connector) (*Store, error) {
	s, err := connect(databaseURL, conns, longestMigration)
	if err != nil {
		return nil, err
	}
	if path, lite := strings.CutPrefix(databaseURL, "sqlite:"); lite {
		for _, pool := range []struct {
			db     **sqlx.DB
			params string
		}{{&s.w, toWrite}, {&s.r, toRead}} {
			connector, err := modernc.NewConnector(sqliteDSN(path, pool.params))
			if err != nil {
				return nil, err
			}
			*pool.db = sqlx.NewDb(sql.OpenDB(wrap(compiling{connector})), "sqlite")
			(*pool.db).SetMaxOpenConns(1)
		}
	} else {
		s.w = sqlx.NewDb(sql.OpenDB(wrap(s.pg)), "postgres")
		s.w.SetMaxOpenConns(conns)
		s.r = s.w
	}
	if err := s.ready(ctx, databaseURL, coins); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// HoldWrites lets a store write nothing until release is called.
func HoldWrites(ctx context.Context, s *Store) (release func(), err error) {
	if s.writers == nil {
		conn, err := s.w.Connx(ctx)
		return func() { _ = conn.Close() }, err
	}
	for range cap(s.writers) {
		s.writers <- struct{}{}
	}
	return func() {
		for range cap(s.writers) {
			<-s.writers
		}
	}, nil
}

// Queued returns how many cards wait to be inserted.
func Queued(s *Store) int {
	s.inserts.mu.Lock()
	defer s.inserts.mu.Unlock()
	return s.inserts.sent + len(s.inserts.waiting)
}

// sharing is reads of any row.
type sharing interface {
	hold()
	neverImpatient()
	waits() int
	release()
	readTogether(account uuid.UUID, ids []uuid.UUID) error
}

func (s *Store) sharing() []sharing {
	cards, tags := &s.statements.cardByUUID, &s.statements.cardTag
	return []sharing{&cards.base, &cards.full, &tags.base, &tags.full}
}

// HoldReads has those who read single cards wait, with all patience, until
// release is called. waiting returns how many do.
func HoldReads(s *Store) (waiting func() int, release func()) {
	for _, r := range s.sharing() {
		r.hold()
	}
	waiting = func() (n int) {
		for _, r := range s.sharing() {
			n += r.waits()
		}
		return n
	}
	return waiting, func() {
		for _, r := range s.sharing() {
			r.release()
		}
	}
}

func (r *reads[R]) hold() {
	r.neverImpatient()
	r.quick = 0
	for range readsAtOnce {
		r.begin(nil)
	}
}

func (r *reads[R]) release() {
	r.mu.Lock()
	held := slices.Clone(r.slots)
	r.mu.Unlock()
	for _, one := range held {
		r.proceed(one)
	}
}

func (r *reads[R]) waits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// Arrays reports whether the database takes arrays.
func Arrays(s *Store) bool { return s.dialect.arrays }

// BreakStatements makes the shared statements panic. The returned function
// restores them.
func BreakStatements(s *Store) (mend func()) {
	writer, inserts, insert, reads := s.w, s.statements.insertCards, s.statements.insertCard, s.statements.cardByUUID.base.many
	s.w = nil // SQLite's shared INSERT is not prepared
	s.statements.insertCards, s.statements.insertCard, s.statements.cardByUUID.base.many = withQuota{}, withQuota{}, statement{}
	return func() {
		s.w, s.statements.insertCards, s.statements.insertCard, s.statements.cardByUUID.base.many = writer, inserts, insert, reads
	}
}

// ReadTogether reads cards, and their tags, each by one statement for all of
// them.
func ReadTogether(s *Store, account uuid.UUID, ids ...uuid.UUID) (err error) {
	for _, r := range s.sharing() {
		err = errors.Join(err, r.readTogether(account, ids))
	}
	return err
}

func (r *reads[R]) readTogether(account uuid.UUID, ids []uuid.UUID) (err error) {
	some := make([]*read[R], len(ids))
	for i, id := range ids {
		some[i] = &read[R]{of: cardKey{account, id}, done: make(chan struct{})}
	}
	r.together(some)
	for _, this := range some {
		err = errors.Join(err, this.err)
	}
	return err
}

// MostRemembered is for how many cards is known that something has happened to
// them.
const MostRemembered = mostRemembered

// Remember notes of a card that something has happened to it, and returns for
// how many that is known.
func Remember(s *Store, account, id uuid.UUID) int {
	s.statements.cardByUUID.remember(cardKey{account, id})
	return len(s.statements.cardByUUID.active)
}

// ReadsAtOnce is how many statements of a kind read single cards, the second
// once the first has run for QuickRead.
const (
	ReadsAtOnce = readsAtOnce
	QuickRead   = quickRead
)

// NeverImpatient has those who read single cards wait for the statements of
// others however long they take.
func NeverImpatient(s *Store) {
	for _, r := range s.sharing() {
		r.neverImpatient()
	}
}

func (r *reads[R]) neverImpatient() { r.patience = time.Hour }

// KeepsPrepared reports whether a session keeps a statement prepared.
var KeepsPrepared = keepsPrepared

// What a session keeps of statements that run often.
const (
	MostKept    = mostKept
	FirstUses   = firstUses
	MostUses    = mostUses
	LongestKept = longestKept
)

// Select runs a query of a transaction.
func (t *tx) Select(ctx context.Context, dest any, query string, args ...any) error {
	return t.s.list(ctx, t.t, dest, "query", query, args...)
}
