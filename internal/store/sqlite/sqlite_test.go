package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	modernc "modernc.org/sqlite"
)

// numbers returns the numbers up to a parameter, one per row.
const numbers = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writer returns the writing connection of a database.
func writer(t *testing.T, path string) *sql.Conn {
	t.Helper()
	w, r, err := Open(path, 1)
	check(t, err)
	c, err := w.Conn(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, errors.Join(c.Close(), r.Close(), w.Close())) })
	return c
}

func newFile(t *testing.T) string { return filepath.Join(t.TempDir(), "db") }

func TestCache_SameStatementWhileItIsRead_Runs(t *testing.T) {
	t.Parallel()
	c := writer(t, newFile(t))
	outer, err := c.QueryContext(t.Context(), numbers, 99)
	check(t, err)
	defer func() { _ = outer.Close() }()
	for want := range 100 {
		if !outer.Next() {
			t.Fatalf("ended after %d rows: %v", want, outer.Err())
		}
		var got, last int
		check(t, outer.Scan(&got))
		check(t, c.QueryRowContext(t.Context(), "SELECT MAX(i) FROM ("+numbers+")", want).Scan(&last))
		inner, err := c.QueryContext(t.Context(), numbers, want)
		check(t, err)
		n := 0
		for inner.Next() {
			n++
		}
		check(t, errors.Join(inner.Err(), inner.Close()))
		if got != want || last != want || n != want+1 {
			t.Fatalf("row %d is %d; counted to %d, in %d rows", want, got, last, n)
		}
	}
}

func TestCache_FailedOrCanceledStatement_RunsAgain(t *testing.T) {
	t.Parallel()
	c := writer(t, newFile(t))
	_, err := c.ExecContext(t.Context(), "CREATE TABLE things (name TEXT PRIMARY KEY)")
	check(t, err)
	for i := range 3 {
		name := fmt.Sprint(i)
		_, err := c.ExecContext(t.Context(), "INSERT INTO things VALUES (?)", name)
		check(t, err)
		if _, err := c.ExecContext(t.Context(), "INSERT INTO things VALUES (?)", name); err == nil {
			t.Error("inserted twice")
		}
		ctx, cancel := context.WithCancel(t.Context())
		some, err := c.QueryContext(ctx, numbers, 1_000_000)
		check(t, err)
		if !some.Next() {
			t.Error(some.Err())
		}
		cancel()
		_ = some.Close()
		var n int
		check(t, c.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM things").Scan(&n))
		if n != i+1 {
			t.Errorf("%d things, want %d", n, i+1)
		}
	}
}

func TestCache_SchemaChangedByAnotherConnection_IsSeen(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	other := writer(t, path)
	c := writer(t, path)
	for _, x := range []struct{ change, want string }{
		{"CREATE TABLE things (a INTEGER); INSERT INTO things VALUES (1)", "a"},
		{"ALTER TABLE things ADD COLUMN b INTEGER", "a b"},
		{"DROP TABLE things; CREATE TABLE things (c INTEGER)", "c"},
	} {
		_, err := other.ExecContext(t.Context(), x.change)
		check(t, err)
		found, err := c.QueryContext(t.Context(), "SELECT * FROM things")
		check(t, err)
		got, err := found.Columns()
		check(t, errors.Join(err, found.Close()))
		if strings.Join(got, " ") != x.want {
			t.Errorf("after %s: columns %s, want %s", x.change, got, x.want)
		}
	}
}

func TestCache_ManyStatements_KeepsSome(t *testing.T) {
	t.Parallel()
	c := writer(t, newFile(t))
	var nothing int
	for i := range 3 * maxCached {
		check(t, c.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d", i)).Scan(&nothing))
	}
	if n := len(cached(t, c)); n != maxCached {
		t.Errorf("kept %d statements, want %d", n, maxCached)
	}
	for _, query := range []string{"PRAGMA foreign_keys", "SELECT 1 -- " + strings.Repeat("x", 1<<16)} {
		check(t, c.QueryRowContext(t.Context(), query).Scan(&nothing))
		if _, found := cached(t, c)[query]; found {
			t.Errorf("kept %.50s", query)
		}
	}
}

const schema = `
	CREATE TABLE cards (uuid TEXT PRIMARY KEY, account_id TEXT, currency TEXT, ready_height INTEGER);
	CREATE INDEX cards_account ON cards (account_id, uuid);
	CREATE INDEX cards_ready ON cards (currency, ready_height) WHERE ready_height IS NOT NULL;
	CREATE TABLE replies (id INTEGER PRIMARY KEY, created_at INTEGER);
	CREATE INDEX replies_created ON replies (created_at);`

// SQLite recompiles a statement if the values that it was planned for change.
// That allocates memory for all its parts again.
func TestCache_OtherValues_CompilesOnce(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"a page":                       "SELECT uuid FROM cards WHERE account_id = ? ORDER BY uuid LIMIT ?",
		"what is ready":                "SELECT uuid FROM cards WHERE currency = ? AND ready_height IS NOT NULL ORDER BY ready_height LIMIT ?",
		"a page that others look into": "DELETE FROM replies WHERE id IN (SELECT id FROM replies WHERE created_at < ? ORDER BY created_at LIMIT ?)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := writer(t, newFile(t))
			_, err := c.ExecContext(t.Context(), schema)
			check(t, err)
			var first int
			for i := range 10 {
				before := parts(t, c)
				_, err := c.ExecContext(t.Context(), query, fmt.Sprint(i), i+1)
				check(t, err)
				switch took := parts(t, c) - before; {
				case i == 0:
					first = took
				case 5*took > first:
					t.Errorf("the first run allocated %d parts, the next %d", first, took)
				}
			}
		})
	}
}

// cached returns the statements that a connection keeps.
func cached(t *testing.T, c *sql.Conn) (kept map[string]stmt) {
	t.Helper()
	check(t, c.Raw(func(conn any) error { kept = conn.(*cachingConn).idle; return nil }))
	return kept
}

// parts returns the number of small allocations of a connection.
func parts(t *testing.T, c *sql.Conn) (n int) {
	t.Helper()
	check(t, c.Raw(func(conn any) error {
		var err error
		_, n, err = conn.(modernc.DBStatus).Status(modernc.DBStatusLookasideHit, false)
		return err
	}))
	return n
}
