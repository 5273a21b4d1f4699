package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// ErrNewerSchema means that the database has been migrated by a newer version
// of this program, in a way that this one can't use.
var ErrNewerSchema = errors.New("the database has a newer schema than this program can use")

// ErrOlderSchema means that the database must be migrated before this program
// can use it.
var ErrOlderSchema = errors.New("the database has an older schema than this program needs")

// ErrNoSchema means that the database is empty, or belongs to something else.
var ErrNoSchema = errors.New("the database has no schema of cardmint")

// firstCompatible is the first version of the schema that records the oldest
// program that can use it.
const firstCompatible = 6

// Schema compares the version of a database's schema with the versions that this
// program supports.
type Schema struct {
	Version int64 // of the last migration that was applied; 0 if there is no schema
	Oldest  int64 // a program that knows this version of the schema, or a newer one, can use the database
	Program int64 // the newest version that this program knows
}

// Usable returns nil, ErrNoSchema, ErrOlderSchema or ErrNewerSchema.
func (s Schema) Usable() error {
	switch {
	case s.Version == 0:
		return ErrNoSchema
	case s.Version < s.Program:
		return fmt.Errorf("%w: version %d, this program's is %d", ErrOlderSchema, s.Version, s.Program)
	case s.Oldest > s.Program:
		return fmt.Errorf("%w: version %d, this program's is %d", ErrNewerSchema, s.Version, s.Program)
	}
	return nil
}

// Newer reports whether a newer version of this program has migrated the
// database.
func (s Schema) Newer() bool { return s.Version > s.Program }

// Schema returns the schema as it was when the store was opened.
func (s *Store) Schema() Schema { return s.schema }

// readSchema reads the version of the schema. files are the migrations that this
// program knows. It is read-only; goose would create its table.
func (s *Store) readSchema(ctx context.Context, files fs.FS) (Schema, error) {
	program, err := newest(files)
	schema := Schema{Program: program}
	if err != nil {
		return schema, err
	}
	var exists bool
	if err := s.get(ctx, s.w, &exists, "look for the schema", s.dialect.hasTable, "goose_db_version"); err != nil ||
		!exists {
		return schema, err
	}
	if err := s.get(ctx, s.w, &schema.Version, "read schema version",
		"SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version"); err != nil {
		return schema, err
	}
	schema.Oldest = schema.Version
	if schema.Version >= firstCompatible {
		err = s.get(ctx, s.w, &schema.Oldest, "read schema compatibility", "SELECT oldest FROM schema_compatibility")
	}
	return schema, err
}

// checkSchema returns an error if this program can't use the database. It
// creates no file.
func (s *Store) checkSchema(ctx context.Context, databaseURL string) error {
	if err := checkAccess(databaseURL); err != nil {
		return err
	}
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrNoSchema, err)
		}
	}
	files, err := s.dialect.migrations()
	if err != nil {
		return err
	}
	if s.schema, err = s.readSchema(ctx, files); err != nil {
		return err
	}
	return s.schema.Usable()
}

// newest returns the number of the last migration.
func newest(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "*.sql") // in order
	if err != nil || len(names) == 0 {
		return 0, errors.Join(err, errors.New("there are no migrations"))
	}
	number, _, _ := strings.Cut(names[len(names)-1], "_")
	return strconv.ParseInt(number, 10, 64)
}
