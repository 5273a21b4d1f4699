package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// within fails the test if f takes longer than it may. f gets a context without a deadline, as worker loops have it.
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

// stopIn has the process of s stop for good, as it were, in a transaction that did f. The transaction is told to go on by resume, and
// returns what came of it.
func stopIn(t *testing.T, s *store.Store, f func(ctx context.Context, tx card.Tx) error) (resume func() error) {
	t.Helper()
	stopped, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ctx := context.WithoutCancel(t.Context())
		ended <- s.InTx(ctx, func(tx card.Tx) error {
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

func TestAcquireLease_UnavailableWhileAStoppedProcessHasTheRow(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
	dead, alive := open(t, url), open(t, url)
	l, err := dead.AcquireLease(t.Context(), "watch", "dead", time.Hour)
	check(t, err)
	resume := stopIn(t, dead, func(ctx context.Context, tx card.Tx) error { return tx.CheckLease(ctx, l) })
	acquire := func(ctx context.Context) error {
		_, err := alive.AcquireLease(ctx, "watch", "alive", time.Minute)
		return err
	}
	wantError(t, within(t, 20*time.Second, acquire), card.ErrUnavailable)
	check(t, resume())
	wantError(t, within(t, 20*time.Second, acquire), card.ErrFenced)
}

func TestTakeAddresses_UnavailableWhileAStoppedProcessHasThePool(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
	dead, alive := open(t, url), open(t, url)
	addAddresses(t, alive, 0, 100)
	service, err := card.New(alive, openVault{}, nil, nil, card.Config{Currencies: []card.Currency{card.Monero()}})
	check(t, err)
	resume := stopIn(t, dead, func(ctx context.Context, tx card.Tx) error { return tx.CheckedPool(ctx, "monero", false) })
	wantError(t, within(t, 20*time.Second, service.Prepare), card.ErrUnavailable)
	check(t, resume())
	check(t, within(t, 20*time.Second, service.Prepare)) // nobody has the right to fill any more
}

func TestInTx_StoppedInsideEndsAndGivesUpItsLocks(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
	alive := open(t, url)
	dead := open(t, url+"&idle_in_transaction_session_timeout=500")
	l, err := dead.AcquireLease(t.Context(), "watch", "dead", time.Hour)
	check(t, err)
	resume := stopIn(t, dead, func(ctx context.Context, tx card.Tx) error { return tx.CheckLease(ctx, l) })
	wantError(t, within(t, 20*time.Second, func(ctx context.Context) error {
		_, err := alive.AcquireLease(ctx, "watch", "alive", time.Minute)
		return err
	}), card.ErrFenced) // it got the row: its lease was still good
	wantError(t, resume(), card.ErrUnavailable)
	inTx(t, dead, func(ctx context.Context, tx card.Tx) error { return tx.CheckLease(ctx, l) }) // by another connection
}

func TestOpen_SessionsEndWhenTheirProcessIsGone(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
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

// impatient opens an empty database with a second for each statement.
func impatient(t *testing.T) *store.Store {
	t.Helper()
	url := rig.Postgres(t)
	_, err := store.Migrate(t.Context(), url)
	check(t, err)
	s, err := store.OpenImpatient(t.Context(), url, 1, time.Second)
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestSlowStatement_IsEndedByTheServer(t *testing.T) {
	t.Parallel()
	s := impatient(t)
	before := session(t, s)
	wantError(t, within(t, 20*time.Second, func(ctx context.Context) error {
		var nothing string
		return s.Scalar(ctx, &nothing, "SELECT CAST(pg_sleep(60) AS TEXT)")
	}), card.ErrUnavailable)
	if after := session(t, s); before != after {
		t.Error("the connection was given up, while the server might still be at work")
	}
}

// session returns which of the server's sessions the one connection of s is.
func session(t *testing.T, s *store.Store) (pid int) {
	t.Helper()
	check(t, s.Scalar(t.Context(), &pid, "SELECT pg_backend_pid()"))
	return pid
}
