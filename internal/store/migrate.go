package store

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// migrationTimeout limits one statement of a migration. Building an index of a
// large table may take hours.
const migrationTimeout = 24 * time.Hour

// While a statement of a migration waits for a table, all later statements of
// other processes queue behind it, even reads. So it waits only briefly, and
// the pause before the next attempt lets the queue drain.
const (
	lockTimeout = "1s"
	minPause    = 2 * time.Second
	maxPause    = 15 * time.Second
)

// ErrLocked means that other processes locked the tables that a migration
// changes, or were migrating, for longer than it may wait.
var ErrLocked = errors.New("other processes keep the database locked")

// Migration brings the schema of a database up to date. Its zero value is ready
// to use.
type Migration struct {
	Log      *slog.Logger  // logs progress. Defaults to none.
	LockWait time.Duration // how long to wait for locks in total. Defaults to ten minutes.

	files fs.FS // Defaults to the migrations of this program.
}

// Migrate brings the schema of the database at databaseURL up to date, as
// Migration.Run does, and returns its version.
func Migrate(ctx context.Context, databaseURL string) (int64, error) {
	schema, err := Migration{}.Run(ctx, databaseURL)
	return schema.Version, err
}

// Run brings the schema of the database at databaseURL up to date, and returns
// the new schema. An SQLite database that does not exist is created, readable
// by its owner only. A newer schema than this program's is not changed: the
// error is ErrNewerSchema if this program can't use it. Several processes may
// call Run at once: one migrates while the rest wait. The error is ErrLocked if
// a lock was not acquired in time. Migrations that have finished by then stay.
//
// Each migration is a transaction, which is rolled back and retried when it
// can't get a lock. A migration without a transaction must be safe to run again.
func (m Migration) Run(ctx context.Context, databaseURL string) (Schema, error) {
	m.Log = cmp.Or(m.Log, slog.New(slog.DiscardHandler))
	m.LockWait = cmp.Or(m.LockWait, 10*time.Minute)
	if err := checkAccess(databaseURL); err != nil {
		return Schema{}, err
	}
	if err := createSQLite(databaseURL); err != nil {
		return Schema{}, err
	}
	s, err := connect(databaseURL, 2, txTimeout)
	if err != nil {
		return Schema{}, err
	}
	defer func() { _ = s.Close() }()
	if err := s.checkPooler(ctx); err != nil { // the advisory lock belongs to a session
		return Schema{}, err
	}
	if m.files == nil {
		if m.files, err = s.dialect.migrations(); err != nil {
			return Schema{}, err
		}
	}
	if s.dialect.name == sqliteDialect.name {
		return m.migrate(ctx, s)
	}
	// Most starts have nothing to migrate. They should not wait for an
	// unresponsive server as long as a migration does.
	if schema, err := s.readSchema(ctx, m.files); err != nil || schema.Version >= schema.Program {
		return schema, cmp.Or(err, schema.Usable())
	}
	patient, err := connect(databaseURL, 2, migrationTimeout)
	if err != nil {
		return Schema{}, err
	}
	defer func() { _ = patient.Close() }()
	return m.migrate(ctx, patient)
}

func (m Migration) migrate(ctx context.Context, s *Store) (Schema, error) {
	until := time.Now().Add(m.LockWait)
	p, err := m.provider(s, until)
	if err != nil {
		return Schema{}, err
	}
	level := slog.LevelInfo
	for attempt := 1; ; attempt++ {
		schema, err := s.readSchema(ctx, m.files)
		if err == nil && schema.Version >= schema.Program {
			return schema, schema.Usable()
		}
		if schema.Version == 0 { // a new database
			level = slog.LevelDebug
		}
		var done *goose.MigrationResult
		if err == nil {
			done, err = p.UpByOne(ctx)
		}
		if err == nil && done.Source.Version > attributionsSchema {
			err = s.leaveBehind(ctx, s.w)
		}
		if err == nil && done.Source.Version > scopesSchema {
			err = s.demandScopes(ctx, s.w, ifScoped)
		}
		if err == nil && done.Source.Version > sealsSchema {
			err = s.demandSeals(ctx, s.w, ifSealed)
		}
		switch {
		case err == nil:
			m.Log.Log(ctx, level, "migrated the database", "schema", done.Source.Version, "took",
				done.Duration.Round(time.Millisecond))
			attempt = 0
			continue
		case errors.Is(err, goose.ErrNoNextVersion): // another process was faster
			continue
		case !s.tryAgain(attempt, err):
			return schema, s.fail("migrate", err)
		case time.Now().After(until):
			return schema, fmt.Errorf("%w: %w", ErrLocked, err)
		}
		pause := s.pause(attempt)
		m.Log.Info("migration waiting for other transactions to end", "schema", schema.Version, "of", schema.Program,
			"attempt", attempt,
			"again in", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return schema, s.fail("migrate", ctx.Err())
		}
	}
}

// tryAgain reports whether a failed migration may succeed later. On PostgreSQL
// an advisory lock makes other migrating processes wait. SQLite has none: there
// they fail, in many ways, until the working process has finished.
func (s *Store) tryAgain(attempt int, err error) bool {
	if s.dialect.name == sqliteDialect.name {
		return attempt < 20
	}
	return s.dialect.isRetryable(err)
}

func (s *Store) pause(attempt int) time.Duration {
	if s.dialect.name == sqliteDialect.name {
		return 100 * time.Millisecond
	}
	pause := minPause
	for range attempt - 1 {
		pause = min(pause*3/2, maxPause)
	}
	return pause
}

func (m Migration) provider(s *Store, until time.Time) (*goose.Provider, error) {
	if s.dialect.name == sqliteDialect.name {
		return goose.NewProvider(goose.DialectSQLite3, s.w.DB, m.files)
	}
	return goose.NewProvider(goose.DialectPostgres, s.w.DB, m.files,
		goose.WithSessionLocker(&locker{log: m.Log, until: until}))
}

// locker acquires the advisory lock of goose, so that one process migrates at a
// time, and limits how long its statements wait for other locks.
type locker struct {
	log   *slog.Logger
	until time.Time
}

// SessionLock implements lock.SessionLocker.
func (l *locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	// A statement that blocks no other session may wait for all of LockWait
	// (cardmint.lock_wait).
	patience := strconv.FormatInt(max(1, time.Until(l.until).Milliseconds()), 10)
	for _, set := range []string{"SET lock_timeout = '" + lockTimeout + "'",
		"SET cardmint.lock_wait = '" + patience + "'"} {
		if _, err := conn.ExecContext(ctx, set); err != nil {
			return err
		}
	}
	for logged := false; ; {
		var locked bool
		err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", lock.DefaultLockID).Scan(&locked)
		switch {
		case err != nil || locked:
			return err
		case time.Now().After(l.until):
			return fmt.Errorf("%w: another process is migrating it", ErrLocked)
		case !logged:
			l.log.Info("waiting for another process to migrate the database")
			logged = true
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SessionUnlock implements lock.SessionLocker. The lock also ends with its
// connection.
func (l *locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	// a pooler may give the session to another client
	_, errReset := conn.ExecContext(ctx, "RESET lock_timeout; RESET cardmint.lock_wait")
	_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", lock.DefaultLockID)
	return errors.Join(errReset, err)
}

// createSQLite creates the file of an SQLite database if it does not exist,
// readable by its owner only. SQLite itself would apply the umask. It creates
// the files -wal and -shm with the same mode.
func createSQLite(databaseURL string) error {
	path, ok := strings.CutPrefix(databaseURL, "sqlite:")
	if !ok || path == "" {
		return nil
	}
	// O_EXCL is required: closing an existing file would release the locks
	// that the process may hold on it.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return f.Close()
}

// migrations returns the migrations that this program knows.
func (d dialect) migrations() (fs.FS, error) { return fs.Sub(migrations, "migrations/"+d.name) }
