package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

const ignored = "ignore_startup_parameters = extra_float_digits, client_min_messages, statement_timeout, idle_in_transaction_session_timeout, " +
	"tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count, tcp_user_timeout"

func TestPgBouncer_SessionModeWorks(t *testing.T) {
	t.Parallel()
	s := open(t, rig.PgBouncer(t, databases.Postgres(t), "pool_mode = session", ignored))
	owner := newAccount(t, s)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if _, err := s.InsertCard(t.Context(), newCard(owner), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	check(t, s.Do(t.Context(), func(tx *store.Tx) error { return tx.CheckedPool(t.Context(), "monero") }))
	// The settings apply although PgBouncer does not forward them.
	var settings string
	check(t, s.Scalar(t.Context(), &settings, `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
		WHERE name IN ('client_min_messages', 'jit', 'statement_timeout', 'idle_in_transaction_session_timeout')`))
	if settings != "client_min_messages=warning idle_in_transaction_session_timeout=65000 jit=off statement_timeout=60000" {
		t.Error(settings)
	}
}

func TestPgBouncer_OtherModes_AreRejectedUnderLoad(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		url := rig.PgBouncer(t, databases.Postgres(t), "pool_mode = "+mode, ignored)
		for range 3 {
			_, err := store.Open(t.Context(), url, 4, chain.Currencies())
			wantError(t, err, store.ErrPoolMode)
		}
		// Also if the URL contains the settings.
		_, err := store.Open(t.Context(), url+"&statement_timeout=60s&idle_in_transaction_session_timeout=60s", 4,
			chain.Currencies())
		wantError(t, err, store.ErrPoolMode)
	}
}

func TestPgBouncer_RejectsParameters_ErrorNamesThem(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), rig.PgBouncer(t, databases.Postgres(t), "pool_mode = session"), 4,
		chain.Currencies())
	wantError(t, err, store.ErrPoolParameters)
	wantError(t, err, card.ErrUnavailable)
}

// If the pool has only one session, the session is not shared.
func TestPgBouncer_SmallPool_IsAccepted(t *testing.T) {
	t.Parallel()
	url := rig.PgBouncer(t, databases.Postgres(t), "pool_mode = session", "default_pool_size = 2", ignored)
	start := time.Now()
	s, err := store.Open(t.Context(), url, 1, chain.Currencies())
	check(t, err)
	defer func() { _ = s.Close() }()
	check(t, s.Ping(t.Context()))
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}
