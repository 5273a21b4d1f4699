package rig_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

func openSQL(url string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)")
	}
	return sql.Open("postgres", url)
}

func TestDatabases_EachTest_GetsOwnCopy(t *testing.T) {
	var migrated atomic.Int64
	databases := rig.Databases{Migrate: func(url string) error {
		migrated.Add(1)
		db, err := openSQL(url)
		if err != nil {
			return err
		}
		_, err = db.Exec("CREATE TABLE cards (number INTEGER PRIMARY KEY)")
		return errors.Join(err, db.Close())
	}}
	t.Run("all", func(t *testing.T) {
		for range 3 {
			databases.Each(t, func(t *testing.T, url string) {
				db := rig.OpenSQL(t, url)
				var n int
				if err := db.QueryRow("SELECT count(*) FROM cards").Scan(&n); err != nil || n != 0 {
					t.Fatalf("%d rows, error %v", n, err)
				}
				if _, err := db.Exec("INSERT INTO cards VALUES (1)"); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	if n := migrated.Load(); n > 2 {
		t.Errorf("migrated %d times, want once for each kind", n)
	}
}

func TestDatabases_NoMigrate_AreEmpty(t *testing.T) {
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		if _, err := rig.OpenSQL(t, url).Exec("CREATE TABLE cards (number INTEGER)"); err != nil {
			t.Fatal(err)
		}
	})
}
