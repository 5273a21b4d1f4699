// Package store keeps cards in an SQL database: one set of statements for
// PostgreSQL (lib/pq) and SQLite.
//
// It may import package card, the actors whose ports it implements, and package
// batch. Sessions and files are the concern of its packages postgres and
// sqlite. Times are stored as Unix milliseconds and amounts as integers of
// atomic units. After a crash a transaction has happened as a whole or not at
// all; running a statement outside of transactions twice is harmless. No type
// or error of a driver leaves the package.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/batch"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store/postgres"
	"github.com/cardmint/cardmint/internal/store/sqlite"
	"github.com/cardmint/cardmint/internal/webhook"
)

// Store is an open database. It implements the Store of every actor.
type Store struct {
	w, r       *sqlx.DB // the same pool on PostgreSQL; on SQLite, one connection that writes and several that read
	corrupt    corruptRows
	dialect    dialect
	schema     Schema
	coins      map[string]card.Currency // the currencies that cards may have, by code
	pg         *postgres.Connector      // nil on SQLite
	writers    chan struct{}            // one element per connection that writes; nil for no limit
	statements struct {
		insertCard, insertCards, reserveCard withQuota
		insertRefundable, reserveRefundable  withQuota // of cards with a refund address
		cardByUUID                           *cardReader[oneCardRow]
		cardTag                              *cardReader[tagRow]
		cardByKey                            struct{ base, full statement }
		tokenByHash                          statement
	}
	inserts            *batch.Batcher[insertion, bool]
	rollbacks          *rollbackDetector
	file               string                 // identifies the file of SQLite and the boot of the machine; "" if unknown
	requireAttestation atomic.Bool            // see RequireAttestation
	historySQL         atomic.Pointer[string] // the expression of history that the role may use, once it is known
}

var (
	_ account.Store  = (*Store)(nil)
	_ keys.Store     = (*Store)(nil)
	_ issue.Store    = (*Store)(nil)
	_ operator.Store = (*Store)(nil)
	_ order.Store    = (*Store)(nil)
	_ settle.Store   = (*Store)(nil)
	_ webhook.Outbox = (*Store)(nil)
	_ webhook.Store  = (*Store)(nil)
)

// Open opens the database at databaseURL, "sqlite:PATH" or "postgres://...",
// with at most conns connections. coins are the currencies that its cards may
// have. Open does not migrate: the error is ErrNoSchema, ErrOlderSchema or
// ErrNewerSchema if this program can't use the schema that it finds. A
// statement is prepared when a connection first uses it; after that it costs
// one round trip. The caller must close the store.
func Open(ctx context.Context, databaseURL string, conns int, coins []card.Currency) (*Store, error) {
	return open(ctx, databaseURL, conns, txTimeout, coins)
}

func open(ctx context.Context, databaseURL string, conns int, timeout time.Duration,
	coins []card.Currency) (*Store, error) {
	s, err := connect(databaseURL, conns, timeout)
	if err != nil {
		return nil, err
	}
	if err := s.ready(ctx, databaseURL, coins); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// ready prepares the store for statements, if the program can use the database.
func (s *Store) ready(ctx context.Context, databaseURL string, coins []card.Currency) error {
	s.rollbacks = &rollbackDetector{}
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		s.file = identifyFile(path)
	}
	s.coins = make(map[string]card.Currency, len(coins))
	for _, c := range coins {
		s.coins[c.Code] = c
	}
	if err := s.checkPooler(ctx); err != nil {
		return err
	}
	if err := s.checkSchema(ctx, databaseURL); err != nil {
		return err
	}
	s.buildStatements()
	s.inserts = s.newInsertBatcher()
	return nil
}

// connect opens a database. No statement may take more than timeout.
func connect(databaseURL string, conns int, timeout time.Duration) (*Store, error) {
	scheme, rest, _ := strings.Cut(databaseURL, ":")
	switch scheme {
	case "sqlite":
		if rest == "" {
			return nil, errors.New("database url: sqlite: names no file")
		}
		w, r, err := sqlite.Open(rest, conns)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", rest, err)
		}
		return &Store{w: w, r: r, dialect: sqliteDialect}, nil
	case "postgres", "postgresql":
		pg, err := postgres.NewConnector(databaseURL, timeout)
		if err != nil {
			return nil, err
		}
		db := pg.Open(conns)
		writers := max(1, conns-max(1, conns/8)) // leaves connections to readers while commits wait for a standby
		return &Store{w: db, r: db, dialect: postgresDialect, pg: pg, writers: make(chan struct{}, writers)}, nil
	}
	// never quote the URL: it may contain a password
	return nil, errors.New("database url: must be sqlite:PATH or postgres://...")
}

// IsServer reports whether a database is on a server, which may not be
// reachable yet.
func IsServer(databaseURL string) bool {
	scheme, _, _ := strings.Cut(databaseURL, ":")
	return scheme == "postgres" || scheme == "postgresql"
}

// UnverifiedHosts returns the hosts, by name or address, that a database is
// reached at by TCP without verifying the server's certificate. A SQLite
// database has none.
func UnverifiedHosts(databaseURL string) ([]string, error) {
	if !IsServer(databaseURL) {
		return nil, nil
	}
	return postgres.UnverifiedHosts(databaseURL)
}

// Errors that only a change to a pooler's configuration ends.
var (
	ErrPoolMode       = postgres.ErrPoolMode
	ErrPoolParameters = postgres.ErrPoolParameters
)

// checkPooler returns ErrPoolMode if a pooler shares sessions among its
// clients.
func (s *Store) checkPooler(ctx context.Context) error {
	if s.pg == nil {
		return nil
	}
	err := s.pg.CheckPooler(ctx, s.r)
	if errors.Is(err, ErrPoolMode) {
		return ErrPoolMode
	}
	return s.fail("check for a pooler", err)
}

// Close closes every connection.
func (s *Store) Close() error {
	if s.r != s.w {
		_ = s.r.Close()
	}
	return s.w.Close()
}

// buildStatements builds the statements with long texts once.
func (s *Store) buildStatements() {
	read := func(query string) statement { return newStatement(s.r, query) }
	write := func(query string) statement { return newStatement(s.w, query) }
	full := s.dialect.selectFullCard()
	s.statements.cardByUUID = newCardReader[oneCardRow](s, selectBaseCard, full)
	s.statements.cardTag = newCardReader[tagRow](s, selectBaseTag, s.dialect.selectFullTag())
	const byKey = " WHERE c.account_id = ? AND c.idempotency_key = ?"
	s.statements.cardByKey.base, s.statements.cardByKey.full = read(selectBaseCard+byKey), read(full+byKey)
	s.statements.tokenByHash = read(selectTokens + " WHERE t.hash = ?")
	s.statements.insertRefundable = withQuota{write(s.dialect.insertCard(false, exceptServiceAddress)),
		write(s.dialect.insertCard(true, exceptServiceAddress))}
	s.statements.insertCard = withQuota{write(s.dialect.insertCard(false, "")), write(s.dialect.insertCard(true, ""))}
	if s.dialect.arrays {
		cards := s.dialect.batchTable()
		s.statements.insertCards = withQuota{write(s.dialect.insertCards(false, cards)), write(s.dialect.insertCards(true, cards))}
		s.statements.reserveCard = withQuota{write(s.dialect.reserveCard(false, "")), write(s.dialect.reserveCard(true, ""))}
		s.statements.reserveRefundable = withQuota{write(s.dialect.reserveCard(false, exceptServiceAddress)),
			write(s.dialect.reserveCard(true, exceptServiceAddress))}
	}
}

// SettleTx implements settle.Store.
func (s *Store) SettleTx(ctx context.Context, f func(settle.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error {
		t.t = prepared{t.t}
		return f(t)
	})
}

// OperatorTx implements operator.Store.
func (s *Store) OperatorTx(ctx context.Context, f func(operator.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error { return f(t) })
}

// IssueTx implements issue.Store.
func (s *Store) IssueTx(ctx context.Context, f func(issue.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error {
		t.t, t.requireAttestation = prepared{t.t}, s.requireAttestation.Load()
		return f(t)
	})
}

// WebhookTx implements webhook.Store and webhook.Outbox.
func (s *Store) WebhookTx(ctx context.Context, f func(webhook.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error {
		t.t, t.requireAttestation = prepared{t.t}, s.requireAttestation.Load()
		return f(t)
	})
}

// maxAttempts is how often a transaction runs that the database could not
// serialize.
const maxAttempts = 5

// LongestWrite implements keys.Store.
func (s *Store) LongestWrite() time.Duration { return maxAttempts * txTimeout }

func (s *Store) inTx(ctx context.Context, f func(*tx) error) error {
	var err error
	for range maxAttempts {
		if err = s.tryTx(ctx, f); err == nil || !s.dialect.isRetryable(err) {
			break
		}
	}
	return err
}

// txTimeout limits a transaction, including its waits.
const txTimeout = time.Minute

// claimTimeout limits the statements that acquire a lease, claim intents or
// webhooks, or take addresses: after that they return card.ErrUnavailable. They
// take milliseconds unless another process has locked the rows. Callers retry
// later instead of blocking their own callers.
const claimTimeout = 5 * time.Second

func (s *Store) tryTx(ctx context.Context, f func(*tx) error) error {
	done, err := s.writing(ctx)
	if err != nil {
		return s.fail("begin", err)
	}
	conn, err := s.w.Connx(ctx)
	if err != nil {
		done()
		return s.fail("begin", err)
	}
	// The transaction does not end with ctx: if a canceled context cut off
	// COMMIT, its outcome would be unknown.
	committing, cancel := outliving(ctx)
	end := func() {
		cancel()
		_ = conn.Close()
		done()
	}
	handedOver := false
	defer func() {
		if !handedOver {
			end()
		}
	}()
	t, err := conn.BeginTxx(committing, nil)
	if err != nil {
		return s.fail("begin", err)
	}
	if err := f(&tx{s: s, t: t}); err != nil {
		_ = t.Rollback()
		return err
	}
	if err := ctx.Err(); err != nil {
		_ = t.Rollback()
		return s.fail("commit", err)
	}
	handedOver = true
	return s.fail("commit", s.outlive(ctx, func(context.Context) error {
		defer end()
		return t.Commit()
	}))
}

// tx implements the Tx of every actor.
type tx struct {
	s                  *Store
	t                  runner
	requireAttestation bool // see RequireAttestation
}

var (
	_ issue.Tx    = (*tx)(nil)
	_ operator.Tx = (*tx)(nil)
	_ settle.Tx   = (*tx)(nil)
	_ webhook.Tx  = (*tx)(nil)
)

// runner runs statements: a connection pool or a transaction.
type runner interface {
	sqlx.ExtContext
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
	GetContext(ctx context.Context, dest any, query string, args ...any) error
	Rebind(query string) string
}

// exec runs a statement and returns the number of affected rows.
func (s *Store) exec(ctx context.Context, on runner, operation, query string, args ...any) (int64, error) {
	result, err := on.ExecContext(ctx, on.Rebind(query), args...)
	if err != nil {
		return 0, s.fail(operation, err)
	}
	n, err := result.RowsAffected()
	return n, s.fail(operation, err)
}

// get reads one row. It returns card.ErrNoRow if there is none.
func (s *Store) get(ctx context.Context, on runner, dest any, operation, query string, args ...any) error {
	return s.fail(operation, on.GetContext(ctx, dest, on.Rebind(query), args...))
}

// list reads all rows.
func (s *Store) list(ctx context.Context, on runner, dest any, operation, query string, args ...any) error {
	return s.fail(operation, on.SelectContext(ctx, dest, on.Rebind(query), args...))
}

// selectMany is like list, for up to most rows of a struct without embedded
// pointers. It maps the columns to fields once; sqlx.Select does so for each row.
func selectMany[T any](ctx context.Context, s *Store, on runner, most int, operation, query string, args ...any) ([]T,
	error) {
	rows, err := on.QueryxContext(ctx, on.Rebind(query), args...)
	if err != nil {
		return nil, s.fail(operation, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, s.fail(operation, err)
	}
	var row, empty T
	fields := make([]any, len(columns))
	into := reflect.ValueOf(&row).Elem()
	for i, path := range rows.Mapper.TraversalsByName(into.Type(), columns) {
		if len(path) == 0 {
			return nil, s.fail(operation, fmt.Errorf("no field for the column %s", columns[i]))
		}
		fields[i] = reflectx.FieldByIndexes(into, path).Addr().Interface()
	}
	all := make([]T, 0, min(most, maxRows))
	for rows.Next() {
		row = empty // a Scanner may leave its field unchanged for NULL
		if err := rows.Scan(fields...); err != nil {
			return nil, s.fail(operation, err)
		}
		all = append(all, row)
	}
	return all, s.fail(operation, rows.Err())
}

// maxRows is how many rows one statement handles. Both databases allow the
// parameters that it needs.
const maxRows = 500

// rows returns n copies of a group of placeholders, for VALUES.
func rows(group string, n int) string {
	return strings.TrimSuffix(strings.Repeat(group+", ", n), ", ")
}

// inChunks splits all into parts that fit one statement, and calls f with
// each.
func inChunks[T any](all []T, f func([]T) error) error {
	for len(all) > 0 {
		n := min(maxRows, len(all))
		if err := f(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// insertAll inserts a row for each element of all, in chunks. into is the table
// and its columns, and types are the types of values. selected may refer to the
// values as column1, column2 and so on; "" selects them unchanged. onConflict is
// the ON CONFLICT clause, or "".
func insertAll[T any](ctx context.Context, t *tx, operation, into string, types []string, selected, onConflict string,
	all []T, values func(T) []any) error {
	return inChunks(all, func(some []T) error {
		rows := make([][]any, len(some))
		for i, one := range some {
			rows[i] = values(one)
		}
		table, args := t.s.dialect.table(rows, types...)
		_, err := t.s.exec(ctx, t.t, operation,
			"INSERT INTO "+into+" SELECT "+cmp.Or(selected, "*")+" FROM "+table+" WHERE TRUE "+onConflict, args...)
		return err
	})
}

func nullSecret(s *card.Secret) sql.NullString {
	if s == nil {
		return sql.NullString{}
	}
	return sql.NullString{String: s.Reveal(), Valid: true}
}

func nullString(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// SingleWriter reports whether only one connection of a process can write. A
// second pool would only compete for it.
func (s *Store) SingleWriter() bool { return s.w != s.r }
