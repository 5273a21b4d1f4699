package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// prepared is a runner of statements that are run again and again with the same
// texts. Every session of PostgreSQL keeps them prepared, which saves parsing,
// most of the planning, and the round trip in which lib/pq prepares any other
// statement with arguments.
//
// The server may plan such a statement once for all values. So it is for
// statements that search by indexes, whatever the values are.
type prepared struct{ runner }

// ExecContext implements runner.
func (p prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.runner.ExecContext(keeping(ctx, longestKept), query, args...)
}

// SelectContext implements runner.
func (p prepared) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return p.runner.SelectContext(keeping(ctx, longestKept), dest, query, args...)
}

// GetContext implements runner.
func (p prepared) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return p.runner.GetContext(keeping(ctx, longestKept), dest, query, args...)
}

// QueryxContext implements runner.
func (p prepared) QueryxContext(ctx context.Context, query string, args ...any) (*sqlx.Rows, error) {
	return p.runner.QueryxContext(keeping(ctx, longestKept), query, args...)
}

// statement is a statement that is run often, and whose plan is good for all
// values, however long they are.
type statement struct {
	on    runner
	query string // with the parameters of on
}

func (s statement) exec(ctx context.Context, args ...any) (sql.Result, error) {
	return s.on.ExecContext(keeping(ctx, math.MaxInt), s.query, args...)
}

func (s statement) get(ctx context.Context, dest any, args ...any) error {
	return s.on.GetContext(keeping(ctx, math.MaxInt), dest, s.query, args...)
}

func (s statement) list(ctx context.Context, dest any, args ...any) error {
	return s.on.SelectContext(keeping(ctx, math.MaxInt), dest, s.query, args...)
}

const (
	mostKept    = 100     // statements that a session keeps prepared
	longestKept = 4 << 10 // bytes of the lists of values of prepared; for longer ones, a plan of their own is worth making
	// A statement is prepared anew after firstUses, then after twice as many,
	// and so on up to mostUses. The server plans one for good after five times,
	// perhaps to read the whole of a table that is small then but is not any
	// more.
	firstUses, mostUses = 100, 12_800
)

type keepingKey struct{}

// keeping returns a context in which sessions keep a statement prepared if its
// values are no longer than so many bytes.
func keeping(ctx context.Context, longest int) context.Context {
	return context.WithValue(ctx, keepingKey{}, longest)
}

// keepsPrepared reports whether a statement with such arguments is kept.
func keepsPrepared(ctx context.Context, args []driver.NamedValue) bool {
	longest, marked := ctx.Value(keepingKey{}).(int)
	if !marked || len(args) == 0 {
		return false
	}
	bytes := 0
	for _, arg := range args {
		if text, ok := arg.Value.(string); ok {
			bytes += len(text)
		}
	}
	return bytes <= longest
}

// keptStatement is a statement that a session keeps prepared.
type keptStatement struct {
	preparedStmt
	uses, most int // how often it was run, and may be
}

// keep returns a statement that the session has prepared, or prepares now.
func (s *session) keep(ctx context.Context, query string) (*keptStatement, error) {
	st, most := s.kept[query], firstUses
	switch {
	case st != nil && st.uses < st.most:
		st.uses++
		return st, nil
	case st != nil:
		most = min(2*st.most, mostUses)
		if err := s.forget(query); err != nil {
			return nil, err
		}
	default:
		if other, full := evict(s.kept, mostKept); full {
			if err := other.Close(); err != nil {
				return nil, err
			}
		}
	}
	made, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	st = &keptStatement{preparedStmt: made.(preparedStmt), uses: 1, most: most}
	s.kept[query] = st
	return st, nil
}

// evict makes room in a cache that may have up to size entries. It removes any
// one if there are as many, and returns its value: those that are used often
// soon come back.
func evict[K comparable, V any](cache map[K]V, size int) (evicted V, full bool) {
	if len(cache) >= size {
		for key, value := range cache {
			delete(cache, key)
			return value, true
		}
	}
	return evicted, false
}

// forget gives up a statement, on the server as well.
func (s *session) forget(query string) error {
	st := s.kept[query]
	delete(s.kept, query)
	return st.Close()
}

// changed gives up a statement that the server can't run as it prepared it: the
// types of its columns are others since.
func (s *session) changed(query string, err error) {
	var e *pq.Error
	if errors.As(err, &e) && e.Code == featureNotSupported {
		delete(s.kept, query)
	}
}

// execKept is like ExecContext, for a statement that runs often.
func (s *session) execKept(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	st, err := s.keep(ctx, query)
	if err != nil {
		return nil, err
	}
	result, err := st.ExecContext(ctx, args)
	s.changed(query, err)
	return result, err
}

// queryKept is like QueryContext, for a statement that runs often.
func (s *session) queryKept(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	st, err := s.keep(ctx, query)
	if err != nil {
		return nil, err
	}
	found, err := st.QueryContext(ctx, args)
	s.changed(query, err)
	return found, err
}
