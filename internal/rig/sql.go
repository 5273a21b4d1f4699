package rig

import (
	"database/sql"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver for SQLite
)

// OpenSQL opens the database at url, sqlite:PATH or postgres://...,
// independently of the program under test. It is closed when the test ends.
func OpenSQL(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	driver, source := "postgres", url
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, source = "sqlite", path+"?_pragma=busy_timeout(10000)" // other connections may be writing
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}
