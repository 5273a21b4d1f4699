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
	// They could refer to tables that are replaced.
	ErrOtherTables = errors.New("the database has tables that the backup does not have")
	// ErrNoBackup means that a file is not a backup of such a database, or is
	// corrupt.
	ErrNoBackup = errors.New("the file is not a complete backup of this kind of database")
)

// MissingTool means that a program of PostgreSQL is not in PATH.
type MissingTool struct {
	Name    string
	Command string // the command line, which does not contain the password
}

func (e *MissingTool) Error() string { return e.Name + " is not installed" }

// Contents is what a database or a backup contains.
type Contents struct {
	Schema Schema
	Cards  int64
	// Newest is the time of the newest card, event or transfer; zero if there
	// is none.
	Newest time.Time
}

// Backup writes a consistent copy of the database at databaseURL to a file that
// only its owner may read, and checks it. The database may be busy and its
// schema may be older or newer than this program's. For SQLite the file is a
// database itself; for PostgreSQL it is an archive of pg_dump, in its custom
// format. Backup calls progress before each step. The file appears when it is
// complete. The error is ErrFileExists if the file exists, ErrNoSchema, or a
// *MissingTool. It returns the contents of the copy, or of a PostgreSQL database
// when the copy began, and the size of the file.
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
	temp, err := createTemp(file)
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

// Restored is the result of Restore.
type Restored struct {
	Contents
	Kept []string // the files of the previous database, under their new names
}

// Restore restores a backup at databaseURL, with its schema, and calls
// MarkRestored. With replace, a database may exist there: SQLite's files are
// kept under other names, PostgreSQL's tables are replaced in one transaction.
// Restore calls progress before each step. The error is ErrNotEmpty, ErrInUse,
// ErrOtherTables, ErrNoBackup or a *MissingTool; then the database is
// unchanged.
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

// MarkRestored records when the database was restored from a backup: it lacks
// everything between the backup and that time. The setting restored_at contains
// the time in Unix milliseconds. Calling it again replaces the time.
func (s *Store) MarkRestored(ctx context.Context, at time.Time) error {
	_, err := s.exec(ctx, s.w, "mark as restored", `INSERT INTO settings (name, value) VALUES ('restored_at', ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, strconv.FormatInt(at.UnixMilli(), 10))
	return err
}

// contents returns the contents of the database, for any version of the schema.
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

// createTemp creates an empty file in the directory of file, readable by its
// owner only.
func createTemp(file string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*.tmp")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// publish gives a finished file its name durably, and returns its size. It never
// replaces another file.
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

// syncDir makes new names in a directory durable, if the system supports that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // some systems and file systems don't support it
	return d.Close()
}
