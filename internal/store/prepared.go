package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// prepared is a runner whose statements every session of PostgreSQL keeps
// prepared. That saves the round trip in which lib/pq prepares every other
// statement with arguments, parsing, and most of the planning.
//
// PostgreSQL plans a prepared statement for its values five times, and may then
// keep one plan for all values. So a statement must search by indexes, whatever
// its values are. A plan from when a table was small may read all of that table
// once it is large: statementLifetime limits how long.
type prepared struct{ runner }

// ExecContext implements runner.
func (p prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.runner.ExecContext(withPrepare(ctx), query, args...)
}

// SelectContext implements runner.
func (p prepared) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return p.runner.SelectContext(withPrepare(ctx), dest, query, args...)
}

// GetContext implements runner.
func (p prepared) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return p.runner.GetContext(withPrepare(ctx), dest, query, args...)
}

// QueryxContext implements runner.
func (p prepared) QueryxContext(ctx context.Context, query string, args ...any) (*sqlx.Rows, error) {
	return p.runner.QueryxContext(withPrepare(ctx), query, args...)
}

// statement is a prepared statement whose text is built once.
type statement struct {
	on    prepared
	query string
}

func newStatement(on runner, query string) statement {
	return statement{prepared{on}, on.Rebind(query)}
}

func (s statement) exec(ctx context.Context, args ...any) (sql.Result, error) {
	return s.on.ExecContext(ctx, s.query, args...)
}

func (s statement) get(ctx context.Context, dest any, args ...any) error {
	return s.on.GetContext(ctx, dest, s.query, args...)
}

func (s statement) list(ctx context.Context, dest any, args ...any) error {
	return s.on.SelectContext(ctx, dest, s.query, args...)
}

const (
	maxPrepared       = 100              // statements of a session
	statementLifetime = 10 * time.Second // after that, a statement is prepared and planned again
)

type prepareKey struct{}

// withPrepare returns a context in which sessions prepare statements.
func withPrepare(ctx context.Context) context.Context {
	return context.WithValue(ctx, prepareKey{}, true)
}

// prepares reports whether sessions prepare a statement with such arguments.
func prepares(ctx context.Context, args []driver.NamedValue) bool {
	return len(args) > 0 && ctx.Value(prepareKey{}) != nil
}

// preparedStmt is what statements of the drivers implement.
type preparedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// cachedStmt is a statement that a session keeps prepared.
type cachedStmt struct {
	preparedStmt
	preparedAt time.Time
}

// prepare returns a prepared statement of the session.
func (s *session) prepare(ctx context.Context, query string) (preparedStmt, error) {
	old, found := s.prepared[query]
	if found && time.Since(old.preparedAt) < s.all.statementLifetime {
		return old, nil
	}
	if found {
		delete(s.prepared, query)
	} else {
		old, found = evict(s.prepared, maxPrepared)
	}
	if found {
		if err := old.Close(); err != nil {
			return nil, err
		}
	}
	st, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.prepared[query] = cachedStmt{st.(preparedStmt), time.Now()}
	return s.prepared[query], nil
}

// evict makes room in a cache of up to size entries. If it is full, it removes
// any entry and returns its value: those that are used often soon come back.
func evict[K comparable, V any](cache map[K]V, size int) (evicted V, full bool) {
	if len(cache) >= size {
		for key, value := range cache {
			delete(cache, key)
			return value, true
		}
	}
	return evicted, false
}

// forgetIfChanged forgets a statement that the server can't run as it was
// prepared, because the types of its columns have changed since.
func (s *session) forgetIfChanged(query string, err error) {
	var e *pq.Error
	if errors.As(err, &e) && e.Code == featureNotSupported {
		delete(s.prepared, query)
	}
}

// execPrepared is like ExecContext, for a statement that is prepared.
func (s *session) execPrepared(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	st, err := s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	result, err := st.ExecContext(ctx, args)
	s.forgetIfChanged(query, err)
	return result, err
}

// queryPrepared is like QueryContext, for a statement that is prepared.
func (s *session) queryPrepared(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	st, err := s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args)
	s.forgetIfChanged(query, err)
	return rows, err
}
