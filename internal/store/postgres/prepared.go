package postgres

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/lib/pq/pqerror"
)

// MaxPrepared is how many statements a session keeps prepared.
const MaxPrepared = 100

// statementLifetime is how long a session keeps a statement prepared.
// PostgreSQL plans it for its values five times, and may then keep one plan for
// all values. A plan that was made for a small table may scan all of it once it
// is large.
const statementLifetime = 10 * time.Second

type prepareKey struct{}

// WithPrepare returns a context that makes sessions keep statements prepared.
// This saves parsing, most of the planning, and the round trip for preparing
// that lib/pq adds to statements with arguments. The statements must use
// indexes for all arguments.
func WithPrepare(ctx context.Context) context.Context {
	return context.WithValue(ctx, prepareKey{}, true)
}

// Prepares reports whether sessions prepare a statement with such arguments.
func Prepares(ctx context.Context, args []driver.NamedValue) bool {
	return len(args) > 0 && ctx.Value(prepareKey{}) != nil
}

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
	if found && time.Since(old.preparedAt) < s.connector.StatementLifetime {
		return old, nil
	}
	switch {
	case found:
		if err := s.closePrepared(query); err != nil {
			return nil, err
		}
	case len(s.prepared) >= MaxPrepared:
		for other := range s.prepared { // a frequent statement soon returns
			if err := s.closePrepared(other); err != nil {
				return nil, err
			}
			break
		}
	}
	st, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.prepared[query] = cachedStmt{st.(preparedStmt), time.Now()}
	return s.prepared[query], nil
}

func (s *session) closePrepared(query string) error {
	st := s.prepared[query]
	delete(s.prepared, query)
	return st.Close()
}

// forgetIfChanged discards a statement that the server can no longer run
// because the types of its columns have changed.
func (s *session) forgetIfChanged(query string, err error) {
	if code(err) == pqerror.FeatureNotSupported {
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
	found, err := st.QueryContext(ctx, args)
	s.forgetIfChanged(query, err)
	return found, err
}
