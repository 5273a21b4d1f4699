package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/store/sqlite"
)

// suffixes distinguish the files of an SQLite database. The last commits may be
// in -wal only.
var suffixes = [...]string{"", "-wal", "-shm", "-journal"}

// openFile opens an SQLite database that exists (sqlite.OpenFile).
func openFile(path, mode string) (*Store, error) {
	db, err := sqlite.OpenFile(path, mode)
	if err != nil {
		return nil, err
	}
	return &Store{w: db, r: db, dialect: sqliteDialect}, nil
}

// copySQLite copies a snapshot of the database at path into an empty file.
func copySQLite(ctx context.Context, path, mode, target string) error {
	absolute, err := filepath.Abs(target) // SQLite would parse a relative one as a URI
	if err != nil {
		return err
	}
	s, err := openFile(path, mode)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	_, err = s.exec(ctx, s.w, "copy the database", "VACUUM INTO ?", absolute)
	return err
}

// checkSQLite checks every page of a database that no other process uses, and
// returns its contents.
func checkSQLite(ctx context.Context, path string) (Contents, error) {
	s, err := openFile(path, "ro")
	if err != nil {
		return Contents{}, err
	}
	defer func() { _ = s.Close() }()
	var found []string
	if err := s.list(ctx, s.w, &found, "check the copy", "PRAGMA integrity_check"); err != nil {
		return Contents{}, err
	}
	if len(found) != 1 || found[0] != "ok" {
		return Contents{}, fmt.Errorf("%w: %s", ErrNoBackup, strings.Join(found, "; "))
	}
	return s.contents(ctx)
}

// restoreSQLite implements Restore. The new database is complete and marked
// before it gets its name.
func restoreSQLite(ctx context.Context, path, file string, replace bool, at time.Time,
	progress func(string)) (Restored, error) {
	there := filesOf(path)
	if len(there) > 0 && !replace {
		return Restored{}, fmt.Errorf("%w: %s", ErrNotEmpty, there[0])
	}
	temp, err := createTemp(path)
	if err != nil {
		return Restored{}, err
	}
	defer func() {
		for _, left := range filesOf(temp) {
			_ = os.Remove(left)
		}
	}()
	progress("copying the backup")
	if err := copySQLite(ctx, file, "ro", temp); err != nil {
		return Restored{}, fmt.Errorf("%w: %w", ErrNoBackup, err)
	}
	progress("checking the copy")
	var r Restored
	if r.Contents, err = checkSQLite(ctx, temp); err != nil {
		return Restored{}, fmt.Errorf("%w: %w", ErrNoBackup, err)
	}
	if err := markSQLite(ctx, temp, at); err != nil {
		return Restored{}, err
	}
	release, err := sqlite.Lock(path)
	if errors.Is(err, sqlite.ErrLocked) {
		return Restored{}, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	if err != nil {
		return Restored{}, err
	}
	defer release()
	if err := sqlite.CopyOwner(path, temp); err != nil {
		return Restored{}, err
	}
	if r.Kept, err = moveAway(path,
		fmt.Sprintf("%s.before-restore-%s", path, at.UTC().Format("20060102T150405Z"))); err != nil {
		return Restored{}, err
	}
	if _, err := publish(temp, path); err != nil {
		return Restored{}, errors.Join(err, moveBack(path, r.Kept))
	}
	return r, nil
}

// markSQLite marks the database in a file.
func markSQLite(ctx context.Context, path string, at time.Time) error {
	s, err := openFile(path, "rw")
	if err != nil {
		return err
	}
	return errors.Join(s.MarkRestored(ctx, at), s.Close())
}

// filesOf returns those files of a database that exist.
func filesOf(path string) []string {
	var all []string
	for _, suffix := range suffixes {
		if _, err := os.Lstat(path + suffix); err == nil {
			all = append(all, path+suffix)
		}
	}
	return all
}

// moveAway renames the files of a database, such that they still are one, and
// returns the new names.
func moveAway(path, name string) ([]string, error) {
	if taken := filesOf(name); len(taken) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrFileExists, taken[0])
	}
	var moved []string
	for _, old := range filesOf(path) {
		renamed := name + strings.TrimPrefix(old, path)
		if err := os.Rename(old, renamed); err != nil {
			return nil, errors.Join(err, moveBack(path, moved))
		}
		moved = append(moved, renamed)
	}
	return moved, nil
}

func moveBack(path string, moved []string) error {
	var failed error
	for _, name := range moved {
		suffix := ""
		for _, s := range suffixes[1:] {
			if strings.HasSuffix(name, s) {
				suffix = s
			}
		}
		failed = errors.Join(failed, os.Rename(name, path+suffix))
	}
	return failed
}
