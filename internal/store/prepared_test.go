package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

// openSession opens a database with one session, which is always the same.
func openSession(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, 1, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// onSession returns a function that runs f in a transaction of an actor on
// PostgreSQL, always on the same session.
func onSession(t *testing.T, url string) func(f func(*store.Tx) error) error {
	t.Helper()
	s := openSession(t, url)
	return func(f func(*store.Tx) error) error { return s.Do(t.Context(), f) }
}

// plans returns the number of prepared statements of the session that contain
// text, and the number of their executions.
func plans(t *testing.T, tx *store.Tx, text string) (statements, uses int) {
	t.Helper()
	var rows []struct {
		Statements int `db:"statements"`
		Uses       int `db:"uses"`
	}
	// The query has no parameters, so it is not kept itself.
	check(t, tx.Select(t.Context(), &rows, `SELECT COUNT(*) AS statements, COALESCE(SUM(generic_plans + custom_plans), 0) AS uses
		FROM pg_prepared_statements WHERE statement LIKE '%`+text+`%'`))
	return rows[0].Statements, rows[0].Uses
}

// A plan that was made for a small table must not be used forever.
func TestPrepared_AfterItsLifetime_IsPlannedAgain(t *testing.T) {
	t.Parallel()
	s := openSession(t, databases.Postgres(t))
	wantUses := func(lifetime time.Duration, want int) {
		t.Helper()
		store.SetStatementLifetime(s, lifetime)
		check(t, s.Do(t.Context(), func(tx *store.Tx) error {
			var got []int
			check(t, tx.Select(t.Context(), &got, "SELECT CAST(? AS INTEGER) + 1 AS more", want))
			if len(got) != 1 || got[0] != want+1 {
				t.Errorf("got %v, want %d", got, want+1)
			}
			if n, uses := plans(t, tx, "AS more"); n != 1 || uses != want {
				t.Errorf("%d statements prepared, with %d uses, want %d", n, uses, want)
			}
			return nil
		}))
	}
	for uses := range 10 {
		wantUses(time.Hour, uses+1)
	}
	for range 3 {
		wantUses(0, 1)
	}
}

func TestPrepared_ManyStatements_SessionKeepsSome(t *testing.T) {
	t.Parallel()
	check(t, onSession(t, databases.Postgres(t))(func(tx *store.Tx) error {
		var nothing []int
		for i := range 2 * postgres.MaxPrepared {
			check(t, tx.Select(t.Context(), &nothing, fmt.Sprintf("SELECT CAST(? AS INTEGER) AS kept%d", i), i))
		}
		if n, _ := plans(t, tx, "AS kept"); n != postgres.MaxPrepared {
			t.Errorf("%d statements are prepared, want %d", n, postgres.MaxPrepared)
		}
		return nil
	}))
}

func TestPrepared_ColumnTypeChanged_FailsOnce(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	other := rig.OpenSQL(t, url)
	inTx := onSession(t, url)
	read := func(tx *store.Tx) error {
		var names []string
		return tx.Select(t.Context(), &names, "SELECT name FROM things WHERE name = ?", "1")
	}
	_, err := other.Exec("CREATE TABLE things (name VARCHAR(9))")
	check(t, err)
	check(t, inTx(read))
	_, err = other.Exec("ALTER TABLE things ALTER COLUMN name TYPE TEXT")
	check(t, err)
	if err := inTx(read); err == nil || !strings.Contains(err.Error(), "cached plan must not change result type") {
		t.Errorf("error %v", err)
	}
	check(t, inTx(read))
}
