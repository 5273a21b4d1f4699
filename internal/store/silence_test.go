package store_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// within fails the test if f takes longer than longest. Like a worker loop's,
// the context of f has no deadline.
func within(t *testing.T, longest time.Duration, f func(ctx context.Context) error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f(context.WithoutCancel(t.Context())) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(longest):
		t.Fatalf("did not end within %s", longest)
		return nil
	}
}

// stopIn simulates that the process of s stops inside a transaction that has
// run f. resume continues the transaction and returns its error.
func stopIn(t *testing.T, s *store.Store, f func(ctx context.Context, tx *store.Tx) error) (resume func() error) {
	t.Helper()
	stopped, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ctx := context.WithoutCancel(t.Context())
		ended <- s.Do(ctx, func(tx *store.Tx) error {
			if err := f(ctx, tx); err != nil {
				t.Error(err)
			}
			close(stopped)
			<-goOn
			return nil
		})
	}()
	<-stopped
	resume = sync.OnceValue(func() error {
		close(goOn)
		return <-ended
	})
	t.Cleanup(func() { _ = resume() })
	return resume
}

func TestAcquireLease_RowLockedByStoppedProcess_IsUnavailable(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	dead, alive := open(t, url), open(t, url)
	l, err := dead.AcquireLease(t.Context(), "watch", "dead", time.Hour)
	check(t, err)
	resume := stopIn(t, dead, func(ctx context.Context, tx *store.Tx) error { return tx.CheckLease(ctx, l) })
	acquire := func(ctx context.Context) error {
		_, err := alive.AcquireLease(ctx, "watch", "alive", time.Minute)
		return err
	}
	wantError(t, within(t, 20*time.Second, acquire), card.ErrUnavailable)
	check(t, resume())
	wantError(t, within(t, 20*time.Second, acquire), card.ErrFenced)
}

func TestTakeAddresses_PoolLockedByStoppedProcess_IsUnavailable(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	dead, alive := open(t, url), open(t, url)
	addAddresses(t, alive, 0, 100)
	take := func(ctx context.Context) error {
		_, err := alive.TakeAddresses(ctx, "monero", 9)
		return err
	}
	resume := stopIn(t, dead, func(ctx context.Context, tx *store.Tx) error { return tx.CheckedPool(ctx, "monero") })
	wantError(t, within(t, 20*time.Second, take), card.ErrUnavailable)
	check(t, resume())
	check(t, within(t, 20*time.Second, take))
}

func TestInTx_ProcessStoppedInside_ReleasesItsLocks(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	alive := open(t, url)
	dead := open(t, url+"&idle_in_transaction_session_timeout=500")
	l, err := dead.AcquireLease(t.Context(), "watch", "dead", time.Hour)
	check(t, err)
	resume := stopIn(t, dead, func(ctx context.Context, tx *store.Tx) error { return tx.CheckLease(ctx, l) })
	wantError(t, within(t, 20*time.Second, func(ctx context.Context) error {
		_, err := alive.AcquireLease(ctx, "watch", "alive", time.Minute)
		return err
	}), card.ErrFenced) // it got the lock, and its lease was still valid
	wantError(t, resume(), card.ErrUnavailable)
	inTx(t, dead, func(ctx context.Context, tx *store.Tx) error { return tx.CheckLease(ctx, l) }) // on another connection
}

func TestOpen_ProcessGone_ServerEndsItsSessions(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	settings := func(url string) string {
		var all string
		check(t, open(t, url).Scalar(t.Context(), &all, `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
			WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout') OR name LIKE 'tcp\_%'`))
		return all
	}
	for given, want := range map[string]string{
		"": "idle_in_transaction_session_timeout=65000 statement_timeout=60000 tcp_keepalives_count=3 tcp_keepalives_idle=15 tcp_keepalives_interval=5 tcp_user_timeout=30000",
		"&statement_timeout=7s&tcp_user_timeout=0&options=-c%20tcp_keepalives_idle%3D99": "idle_in_transaction_session_timeout=65000 statement_timeout=7000 " +
			"tcp_keepalives_count=3 tcp_keepalives_idle=99 tcp_keepalives_interval=5 tcp_user_timeout=0",
	} {
		if got := settings(url + given); got != want {
			t.Errorf("%q: got %s, want %s", given, got, want)
		}
	}
}

// impatient opens a database through a proxy that can silence it, with a
// statement timeout of one second.
func impatient(t *testing.T) (*store.Store, *silencer) {
	t.Helper()
	p := startSilencer(t, databases.Postgres(t))
	s, err := store.OpenWithTimeout(t.Context(), p.url, 1, time.Second, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, p
}

func TestSilentConnection_EveryCallEnds(t *testing.T) {
	acquire := func(s *store.Store) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.AcquireLease(ctx, "watch", "a", time.Minute)
			return err
		}
	}
	for name, call := range map[string]func(s *store.Store, silence func()) func(context.Context) error{
		"statement": func(s *store.Store, silence func()) func(context.Context) error {
			silence()
			return acquire(s)
		},
		"prepared statement": func(s *store.Store, silence func()) func(context.Context) error {
			silence()
			return func(ctx context.Context) error { _, err := s.TokenByHash(ctx, []byte("hash")); return err }
		},
		"transaction": func(s *store.Store, silence func()) func(context.Context) error {
			return func(ctx context.Context) error {
				return s.Do(ctx, func(tx *store.Tx) error {
					silence()
					return tx.CheckLease(ctx, settle.Lease{})
				})
			}
		},
		"commit": func(s *store.Store, silence func()) func(context.Context) error {
			return func(ctx context.Context) error {
				return s.Do(ctx, func(tx *store.Tx) error {
					silence()
					return nil
				})
			}
		},
		"canceled": func(s *store.Store, silence func()) func(context.Context) error {
			silence()
			return func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				return acquire(s)(ctx)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := impatient(t)
			check(t, acquire(s)(t.Context())) // opens a connection
			wantError(t, within(t, 20*time.Second, call(s, p.silence)), card.ErrUnavailable)
			check(t, within(t, 20*time.Second, acquire(s))) // on another connection
		})
	}
}

func TestIdleConnection_StaysOpen(t *testing.T) {
	t.Parallel()
	s, _ := impatient(t)
	before := session(t, s)
	time.Sleep(2 * time.Second) // longer than the read timeout
	if after := session(t, s); before != after {
		t.Errorf("session %d became %d", before, after)
	}
}

func TestSlowStatement_ServerEndsIt(t *testing.T) {
	t.Parallel()
	s, _ := impatient(t)
	before := session(t, s)
	wantError(t, within(t, 20*time.Second, func(ctx context.Context) error {
		var nothing string
		return s.Scalar(ctx, &nothing, "SELECT CAST(pg_sleep(60) AS TEXT)")
	}), card.ErrUnavailable)
	if after := session(t, s); before != after {
		t.Error("the connection was closed while the server may still run the statement")
	}
}

// session returns the server's process ID of the only connection of s.
func session(t *testing.T, s *store.Store) (pid int) {
	t.Helper()
	check(t, s.Scalar(t.Context(), &pid, "SELECT pg_backend_pid()"))
	return pid
}

func TestOpen_SilentServer_Fails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = l.Close() }()
	err = within(t, 20*time.Second, func(ctx context.Context) error {
		_, err := store.Open(ctx, "postgres://x@"+l.Addr().String()+"/x?sslmode=disable&connect_timeout=1", 1,
			chain.Currencies())
		return err
	})
	wantError(t, err, card.ErrUnavailable)
}

// silencer is a proxy that can silence its present connections: they stay open
// and accept data, but forward nothing. New ones work.
type silencer struct {
	url string
	mu  sync.Mutex
	all []*atomic.Bool
}

func startSilencer(t *testing.T, target string) *silencer {
	t.Helper()
	p := &silencer{}
	p.url = startProxy(t, target, func(client, server net.Conn) {
		silent := &atomic.Bool{}
		p.mu.Lock()
		p.all = append(p.all, silent)
		p.mu.Unlock()
		go func() { _, _ = io.Copy(quiet{server, silent}, client); _ = server.Close() }()
		go func() { _, _ = io.Copy(quiet{client, silent}, server); _ = client.Close() }()
	})
	return p
}

func (p *silencer) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, silent := range p.all {
		silent.Store(true)
	}
}

// quiet is a writer that discards all data once it is silent.
type quiet struct {
	io.Writer
	silent *atomic.Bool
}

func (q quiet) Write(b []byte) (int, error) {
	if q.silent.Load() {
		return len(b), nil
	}
	return q.Writer.Write(b)
}
