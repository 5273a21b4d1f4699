package store

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/store/postgres"
)

// prepared is a runner whose statements every session of PostgreSQL keeps
// prepared (postgres.WithPrepare). They must use indexes for all arguments.
type prepared struct{ runner }

// ExecContext implements runner.
func (p prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.runner.ExecContext(postgres.WithPrepare(ctx), query, args...)
}

// SelectContext implements runner.
func (p prepared) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return p.runner.SelectContext(postgres.WithPrepare(ctx), dest, query, args...)
}

// GetContext implements runner.
func (p prepared) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return p.runner.GetContext(postgres.WithPrepare(ctx), dest, query, args...)
}

// QueryxContext implements runner.
func (p prepared) QueryxContext(ctx context.Context, query string, args ...any) (*sqlx.Rows, error) {
	return p.runner.QueryxContext(postgres.WithPrepare(ctx), query, args...)
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
