package store

import (
	"context"
	"io/fs"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// OpenImpatient opens a database that has its schema as Open does, but with other bounds of a statement.
func OpenImpatient(ctx context.Context, databaseURL string, conns int, longest time.Duration, coins []card.Currency) (*Store, error) {
	return open(ctx, databaseURL, conns, longest, coins)
}

// Scalar runs a query on a connection of the store.
func (s *Store) Scalar(ctx context.Context, dest any, query string) error {
	return s.get(ctx, s.r, dest, "query", query)
}

// Tx is what happens within one transaction.
type Tx = tx

// Do runs f in a transaction.
func (s *Store) Do(ctx context.Context, f func(*Tx) error) error {
	return s.inTx(ctx, f)
}

// With returns a migration that knows other files than this program.
func (m Migration) With(files fs.FS) Migration {
	m.files = files
	return m
}
