package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrFileExists means that a backup would overwrite a file.
	ErrFileExists = errors.New("the file exists already")
	// ErrNotEmpty means that a database to restore into contains something.
	ErrNotEmpty = errors.New("there is a database already")
	// ErrInUse means that the database can't be replaced because a process has
	// it open.
	ErrInUse = errors.New("the database is in use")
	// ErrOtherTables means that the database has tables that the backup lacks.
	// They could refer to what is replaced.
	ErrOtherTables = errors.New("the database has tables that the backup does not have")
	// ErrNoBackup means that a file is not a backup of such a database, or is
	// damaged.
	ErrNoBackup = errors.New("the file is not a whole backup of such a database")
)

// MissingTool means that a program of PostgreSQL is not in PATH.
type MissingTool struct {
	Name    string
	Command string // what would have been run; the password is not part of it
}

func (e *MissingTool) Error() string { return e.Name + " is not installed" }

// Contents is what a database or a backup contains.
type Contents struct {
	Schema Schema
	Cards  int64
	// when the newest card was ordered, the newest event happened or the newest
	// transfer was seen; zero if there is none
	Newest time.Time
}

// Backup writes a consistent copy of the database at databaseURL to a file for
// its owner only, and checks it. The database may be busy and its schema may be
// older or newer than this program's. For SQLite the file is a database itself;
// for PostgreSQL it is an archive by pg_dump, in its custom format. progress is
// told what happens next. The file appears when it is complete. The error is
// ErrFileExists if it exists before, ErrNoSchema, or a *MissingTool. The
// contents are those of the copy, or of a PostgreSQL database when the copy
// began.
func Backup(ctx context.Context, databaseURL, file string, progress func(string)) (Contents, int64, error) {
	s, err := connect(databaseURL, 1, migrationTimeout)
	if err != nil {
		return Contents{}, 0, err
	}
	defer func() { _ = s.Close() }()
	if err := s.checkSchema(ctx, databaseURL); err != nil && s.schema.Version == 0 {
		return Contents{}, 0, err
	}
	if _, err := os.Lstat(file); err == nil {
		return Contents{}, 0, fmt.Errorf("%w: %s", ErrFileExists, file)
	}
	temp, err := tempBeside(file)
	if err != nil {
		return Contents{}, 0, err
	}
	defer func() { _ = os.Remove(temp) }()
	progress("copying the database")
	var contents Contents
	if path, lite := strings.CutPrefix(databaseURL, "sqlite:"); lite {
		if err := copySQLite(ctx, path, "rw", temp); err != nil {
			return Contents{}, 0, err
		}
		progress("checking the copy")
		contents, err = checkSQLite(ctx, temp)
	} else if contents, err = s.contents(ctx); err == nil {
		err = dump(ctx, databaseURL, temp, progress)
		if missing := (*MissingTool)(nil); errors.As(err, &missing) {
			missing.Command = strings.ReplaceAll(missing.Command, temp, file)
		}
	}
	if err != nil {
		return Contents{}, 0, err
	}
	size, err := publish(temp, file)
	return contents, size, err
}

// Restored is what Restore did.
type Restored struct {
	Contents
	Kept []string // the files of the database that was there before, under their new names
}

// Restore puts a backup where databaseURL points to, and marks the result with
// MarkRestored. The schema stays that of the backup. With replace, a database
// may be there: SQLite's files are kept under other names, PostgreSQL's tables
// are replaced in one transaction. progress is told what happens next. The
// error is ErrNotEmpty, ErrInUse, ErrOtherTables, ErrNoBackup or a
// *MissingTool; the database is then as it was.
func Restore(ctx context.Context, databaseURL, file string, replace bool, at time.Time,
	progress func(string)) (Restored, error) {
	if _, err := os.Stat(file); err != nil {
		return Restored{}, err
	}
	s, err := connect(databaseURL, 1, migrationTimeout)
	if err != nil {
		return Restored{}, err
	}
	defer func() { _ = s.Close() }()
	if path, lite := strings.CutPrefix(databaseURL, "sqlite:"); lite {
		return restoreSQLite(ctx, path, file, replace, at, progress)
	}
	if err := s.undump(ctx, databaseURL, file, replace, progress); err != nil {
		return Restored{}, err
	}
	if err := s.MarkRestored(ctx, at); err != nil {
		return Restored{}, err
	}
	contents, err := s.contents(ctx)
	return Restored{Contents: contents}, err
}

// MarkRestored records that the database was restored from a backup at a time:
// it knows nothing of what happened between the backup and then. The setting
// restored_at has the time, in Unix milliseconds. Calling it again replaces the
// time.
func (s *Store) MarkRestored(ctx context.Context, at time.Time) error {
	_, err := s.exec(ctx, s.w, "mark as restored", `INSERT INTO settings (name, value) VALUES ('restored_at', ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, strconv.FormatInt(at.UnixMilli(), 10))
	return err
}

// contents reads what the database contains, whatever its schema's version.
func (s *Store) contents(ctx context.Context) (Contents, error) {
	var c Contents
	files, err := s.dialect.migrations()
	if err != nil {
		return c, err
	}
	if c.Schema, err = s.readSchema(ctx, files); err != nil {
		return c, err
	}
	if c.Schema.Version == 0 {
		return c, ErrNoSchema
	}
	var row struct {
		Cards  int64
		Newest sql.NullInt64
	}
	err = s.get(ctx, s.w, &row, "select contents", `SELECT (SELECT COUNT(*) FROM cards) AS cards, MAX(n.at) AS newest FROM (SELECT MAX(created_at) AS at FROM cards
		UNION ALL SELECT MAX(created_at) FROM events UNION ALL SELECT MAX(first_seen_at) FROM transfers) AS n`)
	c.Cards = row.Cards
	if row.Newest.Valid {
		c.Newest = time.UnixMilli(row.Newest.Int64).UTC()
	}
	return c, err
}

// tempBeside creates an empty file for its owner only, in the directory of
// file.
func tempBeside(file string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*.tmp")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// publish gives a finished file its name, never that of another file, such that
// a crash of the machine does not take it back. It returns the file's size.
func publish(temp, file string) (int64, error) {
	f, err := os.OpenFile(temp, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	err = f.Sync()
	info, errStat := f.Stat()
	if err := errors.Join(err, errStat, f.Close()); err != nil {
		return 0, err
	}
	switch err := os.Link(temp, file); {
	case errors.Is(err, os.ErrExist):
		return 0, fmt.Errorf("%w: %s", ErrFileExists, file)
	case err != nil: // a file system without links
		if _, err := os.Lstat(file); err == nil {
			return 0, fmt.Errorf("%w: %s", ErrFileExists, file)
		}
		if err := os.Rename(temp, file); err != nil {
			return 0, err
		}
	}
	return info.Size(), syncDir(filepath.Dir(file))
}

// syncDir makes new names in a directory durable, where the system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // some systems and file systems can't
	return d.Close()
}
