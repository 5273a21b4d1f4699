package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// longestMigration limits one statement of a migration. Building an index of a large table takes long.
const longestMigration = 24 * time.Hour

// ErrNewerSchema means that a newer version of this program has used the database.
var ErrNewerSchema = errors.New("the database has a newer schema than this program knows")

// Migrate brings the schema of the database at databaseURL up to date, and returns its version. Several processes may call it at once:
// one works, the others wait. The error is ErrNewerSchema if the schema is newer than this program's.
func Migrate(ctx context.Context, databaseURL string) (int64, error) {
	s, err := connect(databaseURL, 2, longestMigration)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	if err := s.migrate(ctx); err != nil {
		return 0, err
	}
	p, err := s.provider()
	if err != nil {
		return 0, err
	}
	version, err := p.GetDBVersion(ctx)
	return version, s.fail("read schema version", err)
}

func (s *Store) migrate(ctx context.Context) error {
	p, err := s.provider()
	if err != nil {
		return err
	}
	// On PostgreSQL an advisory lock makes the other processes wait. SQLite has none: there they fail, and try again until the one
	// that works is done.
	for attempt := 1; ; attempt++ {
		current, target, err := p.GetVersions(ctx)
		switch {
		case err != nil:
			err = s.fail("read schema version", err)
		case current > target:
			return fmt.Errorf("%w: version %d, this program's is %d", ErrNewerSchema, current, target)
		case current == target:
			return nil
		default:
			if _, err = p.Up(ctx); err == nil {
				return nil
			}
			err = s.fail("migrate", err)
		}
		if attempt == 20 || s.dialect.name != sqlite.name {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return s.fail("migrate", ctx.Err())
		}
	}
}

func (s *Store) provider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations/"+s.dialect.name)
	if err != nil {
		return nil, err
	}
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption(nil)
	if s.dialect.name == postgres.name {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // every second, for five minutes
		if err != nil {
			return nil, err
		}
		dialect, options = goose.DialectPostgres, append(options, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(dialect, s.w.DB, files, options...)
}
