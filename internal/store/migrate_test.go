package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

func migrate(t *testing.T, url string) {
	t.Helper()
	_, err := store.Migrate(t.Context(), url)
	check(t, err)
}

// scratchSchema is the version of a migration that a later version of the program might bring.
const scratchSchema = 99

// later returns the migrations for the database at url and one more.
func later(t *testing.T, url, migration string) fs.FS {
	t.Helper()
	name, _, _ := strings.Cut(url, ":")
	files := fstest.MapFS{fmt.Sprintf("%05d_scratch.sql", scratchSchema): {Data: []byte("-- +goose Up\n" + migration)}}
	all, err := filepath.Glob("migrations/" + name + "/*.sql")
	check(t, err)
	for _, path := range all {
		text, err := os.ReadFile(path)
		check(t, err)
		files[filepath.Base(path)] = &fstest.MapFile{Data: text}
	}
	return files
}

// version returns the version of the schema, or -1 if goose has not touched the database.
func version(t *testing.T, url string) int64 {
	t.Helper()
	var v int64
	if err := rig.OpenSQL(t, url).QueryRow("SELECT MAX(version_id) FROM goose_db_version").Scan(&v); err != nil {
		return -1
	}
	return v
}

func TestOpen_NeverMigrates(t *testing.T) {
	t.Parallel()
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		opened := func() error {
			s, err := store.Open(t.Context(), url, 2, chain.Currencies())
			if err == nil {
				_ = s.Close()
			}
			return err
		}
		wantError(t, opened(), store.ErrNoSchema)
		if path, lite := strings.CutPrefix(url, "sqlite:"); lite {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file was made: %v", err)
			}
		}
		if v := version(t, url); v != -1 {
			t.Errorf("an empty database got version %d", v)
		}
		migrateTo(t, url, newestSchema-1)
		wantError(t, opened(), store.ErrOlderSchema)
		if v := version(t, url); v != newestSchema-1 {
			t.Errorf("version %d", v)
		}
		migrate(t, url)
		check(t, opened())
	})
}

func TestOpen_NewerSchema(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		owner := newAccount(t, open(t, url))
		schema, err := store.Migration{}.With(later(t, url, "ALTER TABLE cards ADD COLUMN scratch TEXT;")).Run(t.Context(), url)
		check(t, err)
		if schema.Version != scratchSchema || schema.Newer() {
			t.Errorf("%+v", schema)
		}
		s := open(t, url)
		want := store.Schema{Version: scratchSchema, Oldest: newestSchema, Program: newestSchema}
		if got := s.Schema(); got != want || !got.Newer() {
			t.Errorf("got %+v, want %+v", got, want)
		}
		c := insertCard(t, s, newCard(owner))
		_, err = s.CardByUUID(t.Context(), owner, c.UUID)
		check(t, err)
		if v, err := store.Migrate(t.Context(), url); err != nil || v != scratchSchema {
			t.Errorf("version %d, error %v", v, err)
		}
		_, err = rig.OpenSQL(t, url).Exec(fmt.Sprintf("UPDATE schema_compatibility SET oldest = %d", scratchSchema))
		check(t, err)
		_, err = store.Open(t.Context(), url, 2, chain.Currencies())
		wantError(t, err, store.ErrNewerSchema)
		_, err = store.Migrate(t.Context(), url)
		wantError(t, err, store.ErrNewerSchema)
	})
}

// Whoever writes a migration has to decide whether the programs that run meanwhile can go on.
func TestMigrations_SayWhichProgramsCanGoOn(t *testing.T) {
	said := regexp.MustCompile(`(?m)^UPDATE schema_compatibility SET oldest = (\d+);$`)
	oldest := map[string][]string{}
	for _, dialect := range []string{"postgres", "sqlite"} {
		all, err := filepath.Glob("migrations/" + dialect + "/*.sql")
		check(t, err)
		for _, path := range all {
			name := filepath.Base(path)
			if name <= "00006_compatibility.sql" {
				continue
			}
			text, err := os.ReadFile(path)
			check(t, err)
			up, down, _ := strings.Cut(string(text), "-- +goose Down")
			for _, part := range []string{up, down} {
				found := said.FindAllStringSubmatch(part, -1)
				if len(found) != 1 {
					t.Errorf("%s: want one line UPDATE schema_compatibility SET oldest = ...; each way", path)
					continue
				}
				oldest[name] = append(oldest[name], found[0][1])
			}
		}
	}
	for name, said := range oldest {
		if len(said) != 4 || said[0] != said[2] || said[1] != said[3] {
			t.Errorf("%s: up and down say %v", name, said)
		}
	}
}

func TestMigrate_SQLiteFilesAreTheirOwners(t *testing.T) {
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	path := filepath.Join(t.TempDir(), "x.db")
	migrate(t, "sqlite:"+path)
	s := open(t, "sqlite:"+path)
	newAccount(t, s)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		check(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("x.db%s has mode %s", suffix, info.Mode())
		}
	}
}
