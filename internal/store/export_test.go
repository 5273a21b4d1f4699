package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/batch"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store/sqlite"
)

// OpenWithTimeout opens a database that has its schema as Open does, but with
// other bounds of a statement.
func OpenWithTimeout(ctx context.Context, databaseURL string, conns int, longest time.Duration,
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

// With returns a migration that knows other files than this program.
func (m Migration) With(files fs.FS) Migration {
	m.files = files
	return m
}

// OpenThrough opens a database as Open does, with connections that pass through
// wrap.
func OpenThrough(ctx context.Context, databaseURL string, conns int, coins []card.Currency,
	wrap func(driver.Connector) driver.Connector) (*Store, error) {
	s, err := connect(databaseURL, conns, migrationTimeout)
	if err != nil {
		return nil, err
	}
	if path, lite := strings.CutPrefix(databaseURL, "sqlite:"); lite {
		for _, pool := range []struct {
			db     **sqlx.DB
			params string
		}{{&s.w, sqlite.ReadWrite}, {&s.r, sqlite.ReadOnly}} {
			connector, err := sqlite.NewConnector(path, pool.params)
			if err != nil {
				return nil, err
			}
			*pool.db = sqlx.NewDb(sql.OpenDB(wrap(connector)), "sqlite")
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

// BlockedWrites returns how many writes have waited for the connection that
// HoldWrites occupies. It is of use on SQLite only.
func BlockedWrites(s *Store) int64 { return s.w.Stats().WaitCount }

// Queued returns how many cards wait to be inserted.
func Queued(s *Store) int { return s.inserts.Pending() }

// anyQuery is a cardQuery of any row type.
type anyQuery interface {
	hold(release <-chan struct{})
	waitForever()
	pending() int
	readAll(account uuid.UUID, ids []uuid.UUID) error
}

func (s *Store) cardQueries() []anyQuery {
	cards, tags := s.statements.cardByUUID, s.statements.cardTag
	return []anyQuery{cards.base, cards.full, tags.base, tags.full}
}

// HoldReads makes all reads of single cards wait until release is called.
// waiting returns how many do.
func HoldReads(s *Store) (waiting func() int, release func()) {
	released := make(chan struct{})
	for _, q := range s.cardQueries() {
		q.hold(released)
	}
	waiting = func() (n int) {
		for _, q := range s.cardQueries() {
			n += q.pending()
		}
		return n
	}
	return waiting, func() { close(released) }
}

func (q *cardQuery[R]) hold(release <-chan struct{}) {
	cfg := q.batching()
	cfg.MaxWait = 0
	cfg.Acquire = func() func() {
		<-release
		return func() {}
	}
	q.reads = batch.New(cfg)
}

// WaitForever removes the limit of how long a read waits for a worker.
func WaitForever(s *Store) {
	for _, q := range s.cardQueries() {
		q.waitForever()
	}
}

func (q *cardQuery[R]) waitForever() {
	cfg := q.batching()
	cfg.MaxWait = 0
	q.reads = batch.New(cfg)
}

func (q *cardQuery[R]) pending() int { return q.reads.Pending() }

// Arrays reports whether the database takes arrays.
func Arrays(s *Store) bool { return s.dialect.arrays }

// BreakStatements makes the shared statements panic. The returned function
// restores them.
func BreakStatements(s *Store) (restore func()) {
	writer, inserts, insert, reads := s.w, s.statements.insertCards, s.statements.insertCard,
		s.statements.cardByUUID.base.many
	s.w = nil // SQLite's shared INSERT is not prepared
	s.statements.insertCards, s.statements.insertCard, s.statements.cardByUUID.base.many = withQuota{}, withQuota{},
		statement{}
	return func() {
		s.w, s.statements.insertCards, s.statements.insertCard, s.statements.cardByUUID.base.many = writer, inserts, insert,
			reads
	}
}

// ReadTogether reads cards, and their tags, with one statement each.
func ReadTogether(s *Store, account uuid.UUID, ids ...uuid.UUID) (err error) {
	for _, q := range s.cardQueries() {
		err = errors.Join(err, q.readAll(account, ids))
	}
	return err
}

func (q *cardQuery[R]) readAll(account uuid.UUID, ids []uuid.UUID) error {
	keys := make([]cardKey, len(ids))
	for i, id := range ids {
		keys[i] = cardKey{account, id}
	}
	rows, err := q.readMany(keys)
	if err == nil && slices.Contains(rows, nil) {
		err = sql.ErrNoRows
	}
	return err
}

// MaxActive is the number of cards with activity that are remembered.
const MaxActive = maxActive

// SetActive remembers that a card has activity, and returns the number of such
// cards.
func SetActive(s *Store, account, id uuid.UUID) int {
	s.statements.cardByUUID.setActive(cardKey{account, id})
	return len(s.statements.cardByUUID.active)
}

// ReadWorkers is the number of workers of a query. The second one starts once
// the first has run for SlowRead.
const (
	ReadWorkers = readWorkers
	SlowRead    = slowRead
)

// SetStatementLifetime sets for how long sessions keep statements prepared.
func SetStatementLifetime(s *Store, d time.Duration) { s.pg.StatementLifetime = d }

// Select runs a query of a transaction.
func (t *tx) Select(ctx context.Context, dest any, query string, args ...any) error {
	return t.s.list(ctx, t.t, dest, "query", query, args...)
}
