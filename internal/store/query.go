package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/cardmint/cardmint/internal/card"
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
