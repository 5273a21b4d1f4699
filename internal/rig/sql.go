package rig

import (
	"database/sql"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the other driver is PostgreSQL's
)

// OpenSQL opens the database of a URL, sqlite:PATH or postgres://..., to look at it beside the program under test.
func OpenSQL(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	driver, source := "postgres", url
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, source = "sqlite", path
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}
