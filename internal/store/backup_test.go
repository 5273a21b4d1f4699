package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

var restoredAt = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

func silent(string) {}

// backup writes a backup to a new file.
func backup(t *testing.T, url string) (string, store.Contents) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	c, size, err := store.Backup(t.Context(), url, file, silent)
	check(t, err)
	info, err := os.Stat(file)
	check(t, err)
	if info.Mode().Perm() != 0o600 || info.Size() != size || size == 0 {
		t.Errorf("mode %s, %d bytes, reported as %d", info.Mode(), info.Size(), size)
	}
	return file, c
}

func restore(t *testing.T, url, file string, replace bool) (store.Restored, error) {
	t.Helper()
	return store.Restore(t.Context(), url, file, replace, restoredAt, silent)
}

// sibling returns the URL of another, empty database of the same kind.
func sibling(t *testing.T, url string) string {
	t.Helper()
	if strings.HasPrefix(url, "sqlite:") {
		return "sqlite:" + filepath.Join(t.TempDir(), "restored.db")
	}
	return rig.Postgres(t)
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBackup_RestoresEverything(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		c := newCard(newAccount(t, s))
		insertCard(t, s, c)
		e := newEvent(c, card.EventDetected)
		e.CreatedAt = epoch.Add(time.Hour)
		insertEvents(t, s, e)
		file, contents := backup(t, url)
		want := store.Contents{Schema: s.Schema(), Cards: 1, Newest: e.CreatedAt}
		if diff := cmp.Diff(want, contents); diff != "" {
			t.Error(diff)
		}
		insertCard(t, s, newCard(c.AccountID)) // not in the backup
		wantFiles(t, filepath.Dir(file), "backup")

		other := sibling(t, url)
		r, err := restore(t, other, file, false)
		check(t, err)
		if diff := cmp.Diff(store.Restored{Contents: want}, r); diff != "" {
			t.Error(diff)
		}
		restored := open(t, other)
		before, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
		check(t, err)
		after, err := restored.CardByUUID(t.Context(), c.AccountID, c.UUID)
		check(t, err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Error(diff)
		}
		var at []string
		query(t, other, &at, "SELECT value FROM settings WHERE name = 'restored_at'")
		if len(at) != 1 || at[0] != fmt.Sprint(restoredAt.UnixMilli()) {
			t.Errorf("restored_at is %q", at)
		}
		check(t, restored.MarkRestored(t.Context(), restoredAt.Add(time.Second)))
		at = nil
		query(t, other, &at, "SELECT value FROM settings WHERE name = 'restored_at'")
		if len(at) != 1 || at[0] != fmt.Sprint(restoredAt.Add(time.Second).UnixMilli()) {
			t.Errorf("restored_at is %q", at)
		}
	})
}

// The backup contains everything that was committed before it began, and each
// concurrent transaction completely or not at all.
func TestBackup_BusyDatabase_IsConsistent(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: fills a database")
	}
	onEach(t, func(t *testing.T, url string) {
		db := rig.OpenSQL(t, url)
		_, err := db.Exec(`INSERT INTO settings (name, value) VALUES ('a', '0'), ('b', '0')`)
		check(t, err)
		bulk(t, db, 5000)
		var done atomic.Int64
		stop, writer := make(chan struct{}), sync.WaitGroup{}
		writer.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				tx, err := db.Begin()
				if err == nil {
					for _, name := range []string{"a", "b"} {
						_, e := tx.Exec(fmt.Sprintf("UPDATE settings SET value = '%d' WHERE name = '%s'", n, name))
						err = errors.Join(err, e)
					}
					err = errors.Join(err, tx.Commit())
				}
				if err != nil {
					t.Error(err)
					return
				}
				done.Store(n)
			}
		})
		var files []string
		var least []int64
		busy := false
		for range 20 { // until another process writes
			before := done.Load()
			file, _ := backup(t, url)
			files, least = append(files, file), append(least, before)
			if busy = done.Load() > before+1; busy {
				break
			}
		}
		close(stop)
		writer.Wait()
		if !busy {
			t.Errorf("%d transactions, none of them during a backup", done.Load())
		}
		for i, file := range files {
			other := sibling(t, url)
			_, err := restore(t, other, file, false)
			check(t, err)
			var values []int64
			query(t, other, &values, "SELECT CAST(value AS BIGINT) FROM settings WHERE name IN ('a', 'b') ORDER BY name")
			if len(values) != 2 || values[0] != values[1] || values[0] < least[i] {
				t.Errorf("backup %d has %v; %d transactions were committed before it", i, values, least[i])
			}
		}
	})
}

// bulk inserts n accounts.
func bulk(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for n > 0 {
		var some []string
		for ; n > 0 && len(some) < 1000; n-- {
			some = append(some, fmt.Sprintf("('%s', 'account %d', 0)", uuid.New(), n))
		}
		_, err := db.Exec("INSERT INTO accounts (id, name, created_at) VALUES " + strings.Join(some, ", "))
		check(t, err)
	}
}

func TestBackup_Refuses(t *testing.T) {
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		dir := t.TempDir()
		file := filepath.Join(dir, "backup")
		_, _, err := store.Backup(t.Context(), url, file, silent)
		wantError(t, err, store.ErrNoSchema)
		if path, lite := strings.CutPrefix(url, "sqlite:"); lite {
			wantFiles(t, filepath.Dir(path))
		}
		migrate(t, url)
		check(t, os.WriteFile(file, []byte("precious"), 0o600))
		_, _, err = store.Backup(t.Context(), url, file, silent)
		wantError(t, err, store.ErrFileExists)
		_, _, err = store.Backup(t.Context(), url, filepath.Join(dir, "no", "such", "file"), silent)
		wantError(t, err, os.ErrNotExist)
		text, err := os.ReadFile(file)
		check(t, err)
		if string(text) != "precious" {
			t.Errorf("the file contains %q", text)
		}
		wantFiles(t, dir, "backup")
	})
}

// An operator takes a backup with the new version before the database is
// migrated, and may have to go back to it.
func TestBackup_OlderSchema(t *testing.T) {
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		migrateTo(t, url, 3)
		file, contents := backup(t, url)
		if contents.Schema.Version != 3 || !contents.Newest.IsZero() {
			t.Errorf("%+v", contents)
		}
		other := sibling(t, url)
		r, err := restore(t, other, file, false)
		check(t, err)
		wantError(t, r.Schema.Usable(), store.ErrOlderSchema)
		migrate(t, other)
		newAccount(t, open(t, other))
	})
}

func TestRestore_Refuses(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		file, _ := backup(t, url)
		_, err := restore(t, url, file, false)
		wantError(t, err, store.ErrNotEmpty)
		_, err = restore(t, sibling(t, url), filepath.Join(t.TempDir(), "missing"), false)
		wantError(t, err, os.ErrNotExist)

		text, err := os.ReadFile(file)
		check(t, err)
		for name, bad := range map[string][]byte{"empty": nil, "nonsense": []byte("nonsense"), "half": text[:len(text)/2]} {
			damaged := filepath.Join(t.TempDir(), name)
			check(t, os.WriteFile(damaged, bad, 0o600))
			other := sibling(t, url)
			if _, err := restore(t, other, damaged, false); err == nil {
				t.Errorf("%s: restored", name)
			}
			if path, lite := strings.CutPrefix(other, "sqlite:"); lite {
				wantFiles(t, filepath.Dir(path))
			} else if v := version(t, other); v != -1 {
				t.Errorf("%s: left version %d", name, v)
			}
			if _, err := restore(t, url, damaged, true); err == nil {
				t.Errorf("%s: replaced", name)
			}
			check(t, open(t, url).Close())
		}
	})
}

// accounts returns the number of accounts in a database.
func accounts(t *testing.T, url string) int {
	t.Helper()
	s := open(t, url)
	defer func() { _ = s.Close() }()
	all, err := s.Accounts(t.Context())
	check(t, err)
	return len(all)
}

func TestRestore_Postgres_ReplacesTables(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	s := open(t, url)
	newAccount(t, s)
	file, _ := backup(t, url)
	newAccount(t, s)
	_, err := restore(t, url, file, true)
	wantError(t, err, store.ErrInUse)
	check(t, s.Close())
	r, err := restore(t, url, file, true)
	check(t, err)
	if n := accounts(t, url); n != 1 || r.Kept != nil {
		t.Errorf("%d accounts, %+v", n, r)
	}

	db, err := sql.Open("postgres", url)
	check(t, err)
	_, err = db.Exec("CREATE TABLE later (id UUID REFERENCES accounts (id))")
	check(t, err)
	bulk(t, db, 1)
	check(t, db.Close())
	_, err = restore(t, url, file, true)
	wantError(t, err, store.ErrOtherTables)
	if n := accounts(t, url); n != 2 {
		t.Errorf("%d accounts", n)
	}
}

// The file of a killed process is a database only together with its write-ahead
// log.
func TestRestore_SQLite_KeepsOldFiles(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	file, _ := backup(t, url)
	s := open(t, url)
	newAccount(t, s)
	killed := filepath.Join(t.TempDir(), "x.db")
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(strings.TrimPrefix(url, "sqlite:") + suffix)
		check(t, err)
		check(t, os.WriteFile(killed+suffix, text, 0o600))
	}
	const service = 65534
	root := os.Geteuid() == 0 // root, which must keep the owner of the service's files
	if root {
		check(t, os.Chown(killed, service, service))
	}
	r, err := restore(t, "sqlite:"+killed, file, true)
	check(t, err)
	info, err := os.Stat(killed)
	check(t, err)
	if owner := info.Sys().(*syscall.Stat_t).Uid; root && owner != service || info.Mode().Perm() != 0o600 {
		t.Errorf("belongs to %d, mode %s", owner, info.Mode())
	}
	kept := killed + ".before-restore-20261122T090000Z"
	if diff := cmp.Diff([]string{kept, kept + "-wal"}, r.Kept); diff != "" {
		t.Error(diff)
	}
	wantFiles(t, filepath.Dir(killed), "x.db", filepath.Base(kept), filepath.Base(kept)+"-wal")
	if before, after := accounts(t, "sqlite:"+kept), accounts(t, "sqlite:"+killed); before != 1 || after != 0 {
		t.Errorf("%d accounts before, %d after", before, after)
	}
	_, err = restore(t, "sqlite:"+killed, file, true) // within the same second
	wantError(t, err, store.ErrFileExists)
	check(t, open(t, "sqlite:"+killed).Close())
}

// The log of a database whose main file was lost must never be applied to
// another database.
func TestRestore_LeftLog_IsRefused(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	file, _ := backup(t, url)
	path := filepath.Join(t.TempDir(), "x.db")
	check(t, os.WriteFile(path+"-wal", []byte("log"), 0o600))
	_, err := restore(t, "sqlite:"+path, file, false)
	wantError(t, err, store.ErrNotEmpty)
	r, err := restore(t, "sqlite:"+path, file, true)
	check(t, err)
	if len(r.Kept) != 1 || !strings.HasSuffix(r.Kept[0], "-wal") {
		t.Errorf("kept %v", r.Kept)
	}
	check(t, open(t, "sqlite:"+path).Close())
}

// Every user of a machine can read the arguments of its processes.
func TestBackup_Password_IsNoArgument(t *testing.T) {
	const password = "p%23 &'x"
	url := strings.Replace(databases.Postgres(t), "postgres@", "postgres:p%2523%20%26%27x@", 1) +
		"&statement_timeout=99s&application_name=a%20b"
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	script := "#!/bin/sh\n{ echo \"$PGPASSWORD\"; for a in \"$@\"; do echo \"$a\"; done; } > " + said + "\nexit 1\n"
	check(t, os.WriteFile(filepath.Join(dir, "pg_dump"), []byte(script), 0o700))
	t.Setenv("PATH", dir)
	file := filepath.Join(t.TempDir(), "backup")
	if _, _, err := store.Backup(t.Context(), url, file, silent); err == nil || strings.Contains(err.Error(), "x@") {
		t.Errorf("error %v", err)
	}
	text, err := os.ReadFile(said)
	check(t, err)
	first, arguments, _ := strings.Cut(string(text), "\n")
	if first != password || strings.Contains(arguments, "p%") ||
		!strings.Contains(arguments, "--format=custom\n--no-owner\n") ||
		!strings.Contains(arguments, "postgres://postgres@127.0.0.1:") ||
		!strings.Contains(arguments, "application_name=a%20b") || strings.Contains(arguments, "statement_timeout") {
		t.Errorf("pg_dump got\n%s", text)
	}
	wantFiles(t, filepath.Dir(file))

	t.Setenv("PATH", "/nowhere")
	var missing *store.MissingTool
	_, _, err = store.Backup(t.Context(), url, file, silent)
	if !errors.As(err, &missing) || !strings.Contains(missing.Command, "'--file="+file+"'") ||
		strings.Contains(missing.Command, "p%") {
		t.Errorf("error %v: %+v", err, missing)
	}
}
