// Package storetest opens stores for tests, on SQLite and PostgreSQL.
//
// It is imported by tests only. A package that uses it calls rig.Main from
// TestMain.
package storetest

import (
	"context"
	"testing"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// Databases creates databases with the current schema.
var Databases = &rig.Databases{Migrate: func(url string) error {
	_, err := store.Migrate(context.Background(), url)
	return err
}}

// Each marks the test as parallel and runs f as a subtest for each kind of
// database.
func Each(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Parallel()
	Databases.Each(t, f)
}

// Open opens a store with four connections, which is closed when the test ends.
func Open(tb testing.TB, url string) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), url, 4, chain.Currencies())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}
