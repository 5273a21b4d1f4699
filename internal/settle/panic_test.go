package settle_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

func TestWatcher_PassPanics_FailsAndContinues(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, c.Amount, 10)
		broken := true
		w := s.watch(slowChain{s.chain, func() {
			if broken {
				panic("canary")
			}
		}}, settle.Config{})
		for range 2 {
			err := w.Tick(t.Context())
			if _, panicked := errors.AsType[*panics.Error](err); !panicked || strings.Contains(err.Error(), "canary") ||
				w.Health() == nil {
				t.Errorf("error %v, health %v", err, w.Health())
			}
		}
		broken = false
		check(t, w.Tick(t.Context()))
		check(t, w.Health())
		s.want(c, card.AwaitingPayment, card.Paid, c.Amount, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, c.Amount, 10)
	})
}

// Numbers out of range in a lease may fail passes, but do not stop the process.
// Passes succeed again once the row is restored.
func TestWatcher_ExtremeIntegersInLease_WorksOnceRepaired(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		db := rig.OpenSQL(t, s.url)
		columns := integerColumns(t, db, s.url, "leases")
		for _, column := range columns {
			for _, value := range []any{-10, -1, 0, 1, 1 << 31, 1 << 62, math.MaxInt64, math.MinInt64, nil} {
				var was any
				check(t, db.QueryRow("SELECT "+column+" FROM leases").Scan(&was))
				if _, err := db.Exec("UPDATE leases SET "+column+" = $1", value); err != nil {
					continue // a constraint rejects it
				}
				for range 2 {
					_ = s.watcher.Tick(t.Context())
					_ = s.watcher.Mark(t.Context())
				}
				_, err := db.Exec(fmt.Sprintf("UPDATE leases SET %s = $1, expires_at = 0", column), was)
				if column == "expires_at" {
					_, err = db.Exec("UPDATE leases SET expires_at = 0")
				}
				check(t, err)
				_ = s.watcher.Tick(t.Context()) // notices the lost lease
				if err := s.watcher.Tick(t.Context()); err != nil {
					t.Fatalf("%s = %v was repaired: %v", column, value, err)
				}
			}
		}
		c := s.order()
		s.pay(c, c.Amount, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, c.Amount, 10)
	})
}

// integerColumns returns the integer columns of a table's schema.
func integerColumns(t *testing.T, db *sql.DB, url, table string) (columns []string) {
	t.Helper()
	query := "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND data_type IN ('smallint', 'integer', 'bigint')"
	if strings.HasPrefix(url, "sqlite:") {
		query = "SELECT name FROM pragma_table_info($1) WHERE type = 'INTEGER'"
	}
	rows, err := db.Query(query, table)
	check(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		check(t, rows.Scan(&name))
		columns = append(columns, name)
	}
	check(t, rows.Err())
	if !slices.Contains(columns, "fence") {
		t.Fatalf("%s has only these integer columns: %v", table, columns)
	}
	return columns
}
