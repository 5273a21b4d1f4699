package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

func migrate(t *testing.T, url string) {
	t.Helper()
	_, err := store.Migrate(t.Context(), url)
	check(t, err)
}

// scratchSchema is the number of a migration that the tests add.
const scratchSchema = 99

// later returns the migrations for the database at url, and an additional one.
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

// version returns the version of the schema, or -1 if goose has not touched the
// database.
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
				t.Errorf("a file was created: %v", err)
			}
		}
		if v := version(t, url); v != -1 {
			t.Errorf("an empty database got version %d", v)
		}
		migrateTo(t, url, newestSchema-1)
		before := version(t, url)
		wantError(t, opened(), store.ErrOlderSchema)
		if v := version(t, url); v != before || v >= newestSchema {
			t.Errorf("version %d, before %d", v, before)
		}
		migrate(t, url)
		check(t, opened())
	})
}

func TestOpen_NewerSchema(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		before := open(t, url)
		owner := newAccount(t, before)
		schema, err := store.Migration{}.With(later(t, url, "ALTER TABLE cards ADD COLUMN scratch TEXT;")).Run(t.Context(),
			url)
		check(t, err)
		if schema.Version != scratchSchema || schema.Newer() {
			t.Errorf("%+v", schema)
		}
		s := open(t, url)
		want := store.Schema{Version: scratchSchema, Oldest: before.Schema().Oldest, Program: newestSchema}
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

// Every migration states whether running programs can continue with the new
// schema.
func TestMigrations_RecordOldestProgram(t *testing.T) {
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
					t.Errorf("%s: want one line UPDATE schema_compatibility SET oldest = ...; in Up and Down", path)
					continue
				}
				oldest[name] = append(oldest[name], found[0][1])
			}
		}
	}
	for name, said := range oldest {
		if len(said) != 4 || said[0] != said[2] || said[1] != said[3] {
			t.Errorf("%s: up and down set %v", name, said)
		}
	}
}

func TestMigrate_SQLiteFiles_OnlyOwnerReads(t *testing.T) {
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

// progress collects log messages.
type progress struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// read opens a transaction that has read the table accounts. end ends it.
func read(t *testing.T, url string) (end func()) {
	t.Helper()
	tx, err := rig.OpenSQL(t, url).BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{ReadOnly: true})
	check(t, err)
	_, err = tx.Exec("SELECT COUNT(*) FROM accounts")
	check(t, err)
	return sync.OnceFunc(func() { _ = tx.Rollback() })
}

// A transaction that reads for ten seconds blocks a migration, which queues
// ahead of all other sessions.
func TestMigrate_WaitingForLock_OthersContinue(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	beside := rig.OpenSQL(t, url)
	_, err := beside.Exec(
		`INSERT INTO accounts (id, name, created_at) SELECT gen_random_uuid(), 'account ' || n, 0 FROM generate_series(1, 200000) AS n`)
	check(t, err)
	end := read(t, url)
	time.AfterFunc(10*time.Second, end)
	s := open(t, url)
	stop, stopped := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var waits []time.Duration
		for {
			start := time.Now()
			newAccount(t, s)
			waits = append(waits, time.Since(start))
			select {
			case <-stop:
				stopped <- waits
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	log := &progress{}
	start := time.Now()
	schema, err := store.Migration{Log: slog.New(slog.NewTextHandler(log, nil))}.
		With(later(t, url, "ALTER TABLE accounts ADD COLUMN scratch TEXT NOT NULL DEFAULT '';")).Run(t.Context(), url)
	took := time.Since(start)
	close(stop)
	waits := <-stopped
	check(t, err)
	if schema.Version != scratchSchema || took < 9*time.Second {
		t.Errorf("schema %+v after %s", schema, took)
	}
	if slowest := slices.Max(waits); slowest > 2*time.Second || len(waits) < 100 {
		t.Errorf("%d accounts were inserted in the meantime, the slowest in %s", len(waits), slowest)
	}
	for _, want := range []string{"migration waiting for other transactions",
		fmt.Sprintf("schema=%d of=%d", newestSchema, scratchSchema), "migrated the database", "schema=99"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in the log:\n%s", want, log)
		}
	}
}

func TestMigrate_LockTimeout_ChangesNothing(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	defer read(t, url)()
	files := later(t, url, "CREATE TABLE scratch (id INTEGER);\nALTER TABLE accounts ADD COLUMN scratch TEXT;")
	_, err := store.Migration{LockWait: time.Millisecond}.With(files).Run(t.Context(), url)
	wantError(t, err, store.ErrLocked)
	if v := version(t, url); v != newestSchema {
		t.Errorf("version %d", v)
	}
	var tables []string
	query(t, url, &tables, "SELECT table_name FROM information_schema.tables WHERE table_name = 'scratch'")
	if len(tables) > 0 {
		t.Error("the first half of the migration stayed")
	}
}
