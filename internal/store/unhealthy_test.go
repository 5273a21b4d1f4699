package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// eventually calls f until it succeeds, for at most five seconds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still failing after five seconds: %v", err)
		}
	}
}

// warm opens all connections of s.
func warm(t *testing.T, s *store.Store) {
	t.Helper()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			var nothing string
			if err := s.Scalar(t.Context(), &nothing, "SELECT CAST(pg_sleep(0.2) AS TEXT)"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// awaitFirst waits until a standby has the first row of a table.
func awaitFirst(t *testing.T, standby *rig.Cluster, table string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); standby.Value(t,
		"SELECT count(*) FROM "+table) != "1"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the standby has no row of %s after ten seconds", table)
		}
	}
}

func wantUnready(t *testing.T, err error, why string) {
	t.Helper()
	got, _ := errors.AsType[card.Unready](err)
	if string(got) != why {
		t.Errorf("unready for reason %q, want %q: %v", got, why, err)
	}
}

func TestUnhealthyServer_IsUnavailable_AndRecovers(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	end := "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'cards'"
	c.Exec(t, "CREATE ROLE shop LOGIN")
	c.Exec(t, "CREATE DATABASE cards OWNER shop")
	s := openNew(t, strings.Replace(c.URL("cards"), "//postgres@", "//shop@", 1))
	owner := newAccount(t, s)
	insert := func() error { _, err := s.InsertCard(t.Context(), newCard(owner), 0); return err }
	for _, x := range []struct {
		name            string
		breaks, repairs []string
		why             string
	}{
		{"read only", []string{"ALTER DATABASE cards SET default_transaction_read_only = on", end},
			[]string{"ALTER DATABASE cards RESET default_transaction_read_only"}, "read only"},
		{"read only by configuration",
			[]string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"},
			[]string{"ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"}, "read only"},
		{"login refused", []string{"ALTER ROLE shop NOLOGIN", end}, []string{"ALTER ROLE shop LOGIN"}, "login refused"},
		{"missing", []string{"ALTER DATABASE cards WITH ALLOW_CONNECTIONS false", end,
			"ALTER DATABASE cards RENAME TO elsewhere"},
			[]string{"ALTER DATABASE elsewhere RENAME TO cards", "ALTER DATABASE cards WITH ALLOW_CONNECTIONS true"},
			"database missing"},
	} {
		t.Run(x.name, func(t *testing.T) {
			warm(t, s)
			for _, statement := range x.breaks {
				c.Exec(t, statement)
			}
			eventually(t, func() error { // until the server has reloaded its configuration
				if err := s.Ping(t.Context()); err == nil {
					return errors.New("ready")
				}
				return nil
			})
			wantUnready(t, s.Ping(t.Context()), x.why)
			for range 20 {
				wantError(t, insert(), card.ErrUnavailable)
			}
			for _, statement := range x.repairs {
				c.Exec(t, statement)
			}
			eventually(t, func() error { return s.Ping(t.Context()) })
			eventually(t, insert)
			for range 20 { // no broken session remains
				check(t, insert())
			}
		})
	}
}

func TestUnhealthyServer_Restart_IsUnavailable(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	s := openNew(t, c.URL("postgres"))
	owner := newAccount(t, s)
	warm(t, s)
	c.Stop()
	wantUnready(t, s.Ping(t.Context()), "does not answer")
	_, err := s.InsertCard(t.Context(), newCard(owner), 0)
	wantError(t, err, card.ErrUnavailable)
	c.Start(t)
	eventually(t, func() error {
		_, err := s.InsertCard(t.Context(), newCard(owner), 0)
		return errors.Join(err, s.Ping(t.Context()))
	})
}

// A frozen server does not respond, and lib/pq waits for the response to its
// cancel request. Every call returns in time, and no goroutine or connection
// leaks.
func TestFrozenServer_CallsEndWithTheirContext(t *testing.T) {
	c := rig.NewCluster(t)
	s := openNew(t, c.URL("postgres"))
	owner := newAccount(t, s)
	known := insertCard(t, s, newCard(owner))
	warm(t, s)
	goroutines := runtime.NumGoroutine()
	c.Freeze()
	var all sync.WaitGroup
	for name, call := range map[string]func(context.Context) error{
		"insert":      func(ctx context.Context) error { _, err := s.InsertCard(ctx, newCard(owner), 0); return err },
		"read":        func(ctx context.Context) error { _, err := s.CardByUUID(ctx, owner, known.UUID); return err },
		"list":        func(ctx context.Context) error { _, err := s.CardsByUUID(ctx, []uuid.UUID{known.UUID}); return err },
		"ping":        s.Ping,
		"replay":      s.AwaitReplication,
		"transaction": func(ctx context.Context) error { return s.Do(ctx, func(*store.Tx) error { return nil }) },
		"lease": func(ctx context.Context) error {
			_, err := s.AcquireLease(ctx, "watch", "a", time.Minute)
			return err
		},
	} {
		for range 3 { // more calls than connections: some open one, or wait
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if err := call(ctx); !errors.Is(err, card.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("%s took %s", name, took)
				}
			})
		}
	}
	all.Wait()
	c.Thaw()
	eventually(t, func() error {
		_, err := s.InsertCard(t.Context(), newCard(owner), 0)
		return errors.Join(err, s.Ping(t.Context()))
	})
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > goroutines {
			return fmt.Errorf("%d goroutines, before %d", n, goroutines)
		}
		return nil
	})
	eventually(t, func() error {
		if n := c.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"); n > "9" ||
			len(n) > 1 {
			return fmt.Errorf("%s sessions", n)
		}
		return nil
	})
}

// A process can shut down while its database is frozen.
func TestClose_FrozenServer_DoesNotWait(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	s := openNew(t, c.URL("postgres"))
	owner := newAccount(t, s)
	known := insertCard(t, s, newCard(owner))
	var all sync.WaitGroup
	for range 8 { // each connection prepares statements
		all.Go(func() {
			for range 20 {
				if _, err := s.CardByUUID(t.Context(), owner, known.UUID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	c.Freeze()
	defer c.Thaw()
	check(t, within(t, 20*time.Second, func(context.Context) error { return s.Close() }))
	c.Thaw()
	eventually(t, func() error { // a resumed server ends the sessions as any other does
		if n := c.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"); n != "1" {
			return fmt.Errorf("%s sessions", n)
		}
		return nil
	})
}

func TestSeveralHosts_ConnectsToPrimary(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	standby := primary.Standby(t, "second")
	hosts := standby.Host() + "," + primary.Host()
	s := openNew(t, "postgres://postgres@"+hosts+"/postgres?sslmode=disable")
	owner := newAccount(t, s)
	warm(t, s)
	insertCard(t, s, newCard(owner))
	var recovering bool
	check(t, s.Scalar(t.Context(), &recovering, "SELECT pg_is_in_recovery()"))
	if recovering {
		t.Error("connected to the standby")
	}
	awaitFirst(t, standby, "cards")
	primary.Stop()
	wantUnready(t, s.Ping(t.Context()), "read only") // the standby is reachable
	standby.Promote(t)
	eventually(t, func() error {
		_, err := s.InsertCard(t.Context(), newCard(owner), 0)
		return errors.Join(err, s.Ping(t.Context()))
	})
}

func TestSeveralHosts_URLOverridesDefaults(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	openNew(t, primary.URL("postgres"))
	standby := primary.Standby(t, "second")
	for _, url := range []string{
		"postgres://postgres@" + primary.Host() + "," + standby.Host() +
			"/postgres?sslmode=disable&target_session_attrs=standby",
		"postgres://postgres@/postgres?sslmode=disable&target_session_attrs=standby&host=127.0.0.1,127.0.0.1&port=" +
			strings.TrimPrefix(primary.Host(), "127.0.0.1:") + "," + strings.TrimPrefix(standby.Host(), "127.0.0.1:"),
	} {
		s, err := store.OpenWithTimeout(t.Context(), url, 2, time.Minute, chain.Currencies())
		check(t, err)
		wantUnready(t, s.Ping(t.Context()), "read only")
		check(t, s.Close())
	}
}

// A proxy in front of a cluster may still route to the previous primary.
func TestStandby_Order_IsUnavailable(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	owner := newAccount(t, openNew(t, primary.URL("postgres")))
	s, err := store.OpenWithTimeout(t.Context(), primary.Standby(t, "second").URL("postgres"), 2, time.Minute,
		chain.Currencies())
	check(t, err)
	defer func() { check(t, s.Close()) }()
	_, err = s.InsertCard(t.Context(), newCard(owner), 0)
	wantError(t, err, card.ErrUnavailable)
	_, err = s.TakeAddresses(t.Context(), "monero", 1)
	wantError(t, err, card.ErrUnavailable)
	wantUnready(t, s.Ping(t.Context()), "read only")
}

// New connections read the password file again.
func TestPassword_Rotated_NeedsNoRestart(t *testing.T) {
	c := rig.NewCluster(t)
	c.Exec(t, "CREATE ROLE shop LOGIN PASSWORD 'old'")
	c.Exec(t, "CREATE DATABASE cards OWNER shop")
	c.RequirePasswords(t, "scram-sha-256")
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(password string) { check(t, os.WriteFile(file, []byte("*:*:cards:shop:"+password+"\n"), 0o600)) }
	write("old")
	t.Setenv("PGPASSFILE", file)
	s := openNew(t, strings.Replace(c.URL("cards"), "//postgres@", "//shop@", 1))
	check(t, s.Ping(t.Context()))
	c.Exec(t, "ALTER ROLE shop PASSWORD 'new'")
	check(t, s.Ping(t.Context())) // existing sessions continue
	c.Exec(t, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'shop'")
	eventually(t, func() error {
		if err := s.Ping(t.Context()); err == nil {
			return errors.New("the old password is still accepted")
		}
		return nil
	})
	wantUnready(t, s.Ping(t.Context()), "login refused")
	write("new")
	eventually(t, func() error { return s.Ping(t.Context()) })
}
