package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cardmint/cardmint/internal/store/postgres"
)

// PermissionError means that this process may not use the database. Waiting
// does not help.
type PermissionError struct {
	err  error
	hint string
}

// Error implements error.
func (e *PermissionError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *PermissionError) Unwrap() error { return e.err }

// Hint returns what an operator can do about it.
func (e *PermissionError) Hint() string { return e.hint }

// checkAccess returns a *PermissionError if this process may not read and write
// the file of an SQLite database or its directory, because SQLite creates files
// next to it. A file that does not exist is no error.
func checkAccess(databaseURL string) error {
	path, ok := strings.CutPrefix(databaseURL, "sqlite:")
	if !ok || path == "" {
		return nil
	}
	directory := filepath.Dir(path)
	for _, p := range []struct{ path, what string }{
		{directory, "the directory of the database"}, {path, "the database file"}} {
		if err := access(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return denied(p.path, p.what, err)
		}
	}
	return nil
}

func denied(path, what string, err error) *PermissionError {
	const hint = "run the command as the user that the service runs as; or give that user the directory, " +
		"the database and the -wal and -shm files next to it, with chown"
	info, statErr := os.Stat(path)
	switch {
	case !errors.Is(err, fs.ErrPermission):
		return &PermissionError{fmt.Errorf("%s %s can't be written: %w", what, path, err),
			"mount the file system so that it can be written, or choose another path with --database-url"}
	case statErr != nil:
		return &PermissionError{fmt.Errorf("no permission to read and write %s %s: %w", what, path, err), hint}
	}
	return &PermissionError{
		fmt.Errorf("no permission to read and write %s %s (%s): it belongs to %s, and this process runs as %s: %w",
			what, path, info.Mode(), owner(info), self(), err), hint}
}

// deniedByServer returns a *PermissionError if PostgreSQL denied access, and
// nil otherwise.
func deniedByServer(err error) *PermissionError {
	if !postgres.IsDenied(err) {
		return nil
	}
	return &PermissionError{err,
		"the role of --database-url lacks rights: make it the owner of the database with " +
			"'ALTER DATABASE ... OWNER TO ...', or grant it all on the schema and its tables"}
}
