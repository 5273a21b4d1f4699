package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Databases creates databases, one per test. A package should share one value
// in a variable.
type Databases struct {
	// Migrate creates the schema in the empty database at url, and closes its
	// connections. It runs once for each kind of database; every test gets a
	// copy of the result. Defaults to none: databases are empty.
	Migrate func(url string) error

	lite struct {
		sync.Once
		file []byte
		err  error
	}
	pg struct {
		sync.Once
		name string
		err  error
	}
}

// SQLite returns the URL of a new SQLite database, which is deleted when the
// test ends.
func (d *Databases) SQLite(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "test.db")
	if d.Migrate != nil {
		d.lite.Do(func() { d.lite.file, d.lite.err = d.migrateSQLite() })
		if d.lite.err != nil {
			tb.Fatal(d.lite.err)
		}
		if err := os.WriteFile(path, d.lite.file, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return "sqlite:" + path
}

// migrateSQLite returns the file of a migrated database. It is complete once
// the last connection is closed.
func (d *Databases) migrateSQLite() ([]byte, error) {
	dir, err := os.MkdirTemp("", "rig-sqlite")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "template.db")
	if err := d.Migrate("sqlite:" + path); err != nil {
		return nil, fmt.Errorf("migrate SQLite template: %w", err)
	}
	return os.ReadFile(path)
}

// Postgres returns the URL of a new database on the PostgreSQL server that all
// tests of a process share. The database is deleted when the test ends.
func (d *Databases) Postgres(tb testing.TB) string {
	tb.Helper()
	startPostgres(tb)
	if d.Migrate != nil {
		d.pg.Do(func() { d.pg.name, d.pg.err = d.migratePostgres() })
		if d.pg.err != nil {
			tb.Fatal(d.pg.err)
		}
	}
	name, err := createDatabase(d.pg.name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = cluster.admin.Exec("DROP DATABASE " + name + " WITH (FORCE)") })
	return postgresURL(name)
}

// migratePostgres returns the name of a migrated database. It forbids
// connections and ends the sessions left from Migrate, because PostgreSQL
// copies a database only while it has no sessions.
func (d *Databases) migratePostgres() (string, error) {
	name, err := createDatabase("")
	if err != nil {
		return "", err
	}
	if err := d.Migrate(postgresURL(name)); err != nil {
		return "", fmt.Errorf("migrate PostgreSQL template: %w", err)
	}
	if _, err := cluster.admin.Exec("ALTER DATABASE " + name + " WITH ALLOW_CONNECTIONS false"); err != nil {
		return "", err
	}
	_, err = cluster.admin.Exec("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1", name)
	return name, err
}

// createDatabase creates a copy of the database template, or of PostgreSQL's
// default template if that is "", and returns its name.
func createDatabase(template string) (string, error) {
	name := fmt.Sprintf("test%d", cluster.made.Add(1))
	statement := "CREATE DATABASE " + name
	if template != "" {
		statement += " TEMPLATE " + template
	}
	_, err := cluster.admin.Exec(statement)
	return name, err
}

// Each runs f as two parallel subtests, one for each kind of database. If the
// caller has called t.Parallel, other tests run at the same time too.
func (d *Databases) Each(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, d.SQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, d.Postgres(t))
	})
}
