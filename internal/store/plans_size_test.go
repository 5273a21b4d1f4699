package store_test

import (
	"database/sql"
	"flag"
	"fmt"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

var plansAt = flag.String("plans-at", "",
	"explain the store's statements on the PostgreSQL database at this URL; it is filled first if it is empty, and stays")

// With manyCards or more, indexes are built after the rows are inserted, which
// is several times faster.
const manyCards = 1_000_000

// atURL migrates the database at url, which a flag names, and reports whether
// it is empty and must be filled.
func atURL(t *testing.T, url string) (empty bool) {
	t.Helper()
	_, err := store.Migrate(t.Context(), url)
	check(t, err)
	check(t, rig.OpenSQL(t, url).QueryRow("SELECT NOT EXISTS (SELECT 1 FROM cards)").Scan(&empty))
	return empty
}

// withoutIndexes drops all indexes except keys while f fills the tables.
func withoutIndexes(t testing.TB, db *sql.DB, f func()) {
	t.Helper()
	var all [][2]string
	found, err := db.Query(`SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE c.relnamespace = 'public'::regnamespace AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)
		ORDER BY pg_relation_size(i.indexrelid)`)
	check(t, err)
	for found.Next() {
		var one [2]string
		check(t, found.Scan(&one[0], &one[1]))
		all = append(all, one)
	}
	check(t, found.Close())
	for _, index := range all {
		execPlans(t, db, "DROP INDEX "+index[0])
	}
	f()
	for _, index := range all {
		execPlans(t, db, index[1])
	}
}

// printSizes prints the bytes per card of each table and index.
func printSizes(t *testing.T, url string, n int) {
	t.Helper()
	found, err := rig.OpenSQL(t, url).Query(`SELECT c.relname, COALESCE(t.relname, ''), pg_relation_size(c.oid) FROM pg_class c
		LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i') AND pg_relation_size(c.oid) > $1
		ORDER BY COALESCE(t.relname, c.relname), t.relname NULLS FIRST, c.relname`, n)
	check(t, err)
	defer func() { _ = found.Close() }()
	for found.Next() {
		var name, of string
		var size int64
		check(t, found.Scan(&name, &of, &size))
		fmt.Printf("size %-16s %-28s %8.1f bytes a card %10d kB\n", of, name, float64(size)/float64(n), size/1024)
	}
	check(t, found.Err())
}
