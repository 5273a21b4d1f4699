package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	modernc "modernc.org/sqlite"

	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// numbers counts to a number, a row at a time.
const numbers = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n"

// onWriter runs f on the connection of an SQLite database that writes.
func onWriter(t *testing.T, url string, f func(t *testing.T, c *sql.Conn)) {
	t.Helper()
	c, err := store.Writer(t.Context(), open(t, url))
	check(t, err)
	defer func() { check(t, c.Close()) }()
	f(t, c)
}

func TestCompiled_AStatementRunsWhileItIsRead(t *testing.T) {
	t.Parallel()
	onWriter(t, databases.SQLite(t), func(t *testing.T, c *sql.Conn) {
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
	})
}

func TestCompiled_RunsAfterItFailedOrWasCancelled(t *testing.T) {
	t.Parallel()
	onWriter(t, databases.SQLite(t), func(t *testing.T, c *sql.Conn) {
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
	})
}

func TestCompiled_ASchemaThatAnotherChangedIsSeen(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	other := rig.OpenSQL(t, url)
	onWriter(t, url, func(t *testing.T, c *sql.Conn) {
		for _, x := range []struct{ change, want string }{
			{"CREATE TABLE things (a INTEGER); INSERT INTO things VALUES (1)", "a"},
			{"ALTER TABLE things ADD COLUMN b INTEGER", "a b"},
			{"DROP TABLE things; CREATE TABLE things (c INTEGER)", "c"},
		} {
			_, err := other.Exec(x.change)
			check(t, err)
			found, err := c.QueryContext(t.Context(), "SELECT * FROM things")
			check(t, err)
			got, err := found.Columns()
			check(t, errors.Join(err, found.Close()))
			if strings.Join(got, " ") != x.want {
				t.Errorf("after %s: columns %s, want %s", x.change, got, x.want)
			}
		}
	})
}

func TestCompiled_AConnectionKeepsSoMany(t *testing.T) {
	t.Parallel()
	onWriter(t, databases.SQLite(t), func(t *testing.T, c *sql.Conn) {
		var nothing int
		for i := range 3 * store.MostCompiled {
			check(t, c.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d", i)).Scan(&nothing))
		}
		kept := store.Compiled(t, c)
		if len(kept) != store.MostCompiled {
			t.Errorf("kept %d statements, want %d", len(kept), store.MostCompiled)
		}
		for _, query := range []string{"PRAGMA foreign_keys", "SELECT 1 -- " + strings.Repeat("x", 1<<16)} {
			check(t, c.QueryRowContext(t.Context(), query).Scan(&nothing))
			if _, found := store.Compiled(t, c)[query]; found {
				t.Errorf("kept %.50s", query)
			}
		}
	})
}

// SQLite deletes the log when the last connection is really closed.
func TestClose_EndsKeptStatements(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	s := open(t, url)
	owner := newAccount(t, s)
	_, err := s.CardByUUID(t.Context(), owner, insertCard(t, s, newCard(owner)).UUID)
	check(t, err)
	log := strings.TrimPrefix(url, "sqlite:") + "-wal"
	_, err = os.Stat(log)
	check(t, err)
	check(t, s.Close())
	if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is still there: %v", err)
	}
}

// SQLite compiles a statement again if what it planned for has changed. Then it
// needs memory again for all its parts.
func TestCompiled_AStatementIsCompiledOnceForAllValues(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"a page":                       "SELECT uuid FROM cards WHERE account_id = ? ORDER BY uuid LIMIT ?",
		"what is ready":                "SELECT uuid FROM cards WHERE currency = ? AND ready_height IS NOT NULL ORDER BY ready_height LIMIT ?",
		"a page that others look into": "DELETE FROM replies WHERE id IN (SELECT id FROM replies WHERE created_at < ? ORDER BY created_at LIMIT ?)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onWriter(t, databases.SQLite(t), func(t *testing.T, c *sql.Conn) {
				var first int
				for i := range 10 {
					before := parts(t, c)
					_, err := c.ExecContext(t.Context(), query, fmt.Sprint(i), i+1)
					check(t, err)
					switch took := parts(t, c) - before; {
					case i == 0:
						first = took
					case 5*took > first:
						t.Errorf("the first time took %d parts, the next %d", first, took)
					}
				}
			})
		})
	}
}

// parts returns how many small pieces of memory a connection has asked for.
func parts(t *testing.T, c *sql.Conn) (n int) {
	t.Helper()
	check(t, c.Raw(func(conn any) error {
		var err error
		_, n, err = conn.(modernc.DBStatus).Status(modernc.DBStatusLookasideHit, false)
		return err
	}))
	return n
}
