package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// replicated starts a primary whose commits wait for a standby.
func replicated(t *testing.T) (primary, standby *rig.Cluster) {
	t.Helper()
	primary = rig.NewCluster(t)
	standby = primary.Standby(t, "second")
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	return primary, standby
}

// waiting waits until n sessions wait for the standby, and then calls the SQL
// function do, unless it is empty, with the pid of each.
func waiting(t *testing.T, c *rig.Cluster, n int, do string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		found := c.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		if found == string(rune('0'+n)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s sessions wait for the standby, want %d", found, n)
		}
	}
	if do != "" {
		c.Exec(t, "SELECT "+do+"(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	}
}

// A commit that is not on the promoted standby must not have been acknowledged.
func TestReplication_Failover_KeepsAcknowledgedOrders(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	s := openNew(t, primary.URL("postgres"))
	owner := newAccount(t, s)
	acknowledged := []uuid.UUID{insertCard(t, s, newCard(owner)).UUID}
	stockUp(t, s, 1)
	unclear := insertAll(t, s, owner, primary, standby, &acknowledged)

	t.Run("a transaction", func(t *testing.T) {
		ended := make(chan error, 1)
		go func() {
			ended <- s.Do(context.WithoutCancel(t.Context()), func(tx *store.Tx) error {
				return tx.UpsertTransfers(t.Context(),
					[]card.Transfer{{Currency: "monero", TxID: "t", Address: "a", Amount: 1, FirstSeenAt: epoch}})
			})
		}()
		waiting(t, primary, 1, "pg_cancel_backend")
		wantError(t, <-ended, card.ErrUnavailable)
	})
	t.Run("a transaction whose caller cancels", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := s.Do(ctx, func(tx *store.Tx) error {
			return tx.UpsertTransfers(ctx,
				[]card.Transfer{{Currency: "monero", TxID: "u", Address: "a", Amount: 1, FirstSeenAt: epoch}})
		})
		wantError(t, err, card.ErrUnavailable)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		waiting(t, primary, 1, "") // the commit was not interrupted
	})
	t.Run("a statement with a result", func(t *testing.T) {
		ended := make(chan error, 1)
		go func() {
			_, err := s.AcquireLease(context.WithoutCancel(t.Context()), "watch", "a", time.Minute)
			ended <- err
		}()
		waiting(t, primary, 2, "pg_cancel_backend")
		wantError(t, <-ended, card.ErrUnavailable)
	})
	t.Run("an order that reserves", func(t *testing.T) {
		ended, c := make(chan error, 1), newCard(owner)
		unclear = append(unclear, c.UUID)
		go func() {
			_, err := s.InsertCardReserving(context.WithoutCancel(t.Context()), c, 0, shelf, time.Hour)
			ended <- err
		}()
		waiting(t, primary, 1, "pg_cancel_backend")
		wantError(t, <-ended, card.ErrUnavailable)
	})

	primary.Stop()
	standby.Start(t)
	standby.Promote(t)
	after := open(t, standby.URL("postgres"))
	for _, id := range acknowledged {
		if _, err := after.CardByUUID(t.Context(), owner, id); err != nil {
			t.Errorf("a card that was acknowledged: %v", err)
		}
	}
	for _, id := range unclear {
		if _, err := after.CardByUUID(t.Context(), owner, id); !errors.Is(err, card.ErrNoRow) {
			t.Errorf("the standby was not cut off: %v", err)
		}
	}
}

// insertAll disconnects the standby, inserts cards, and ends their waits in
// several ways. It returns the cards that are on the primary.
func insertAll(t *testing.T, s *store.Store, owner uuid.UUID, primary, standby *rig.Cluster,
	acknowledged *[]uuid.UUID) (unclear []uuid.UUID) {
	t.Helper()
	standby.Stop() // a frozen one would still receive the data after it resumes
	var mu sync.Mutex
	for _, by := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		t.Run("insert, "+by, func(t *testing.T) {
			c := newCard(owner)
			c.IdempotencyKey, c.RequestHash = by, []byte("hash")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			inserted, err := s.InsertCard(ctx, c, 0)
			mu.Lock()
			defer mu.Unlock()
			if inserted {
				*acknowledged = append(*acknowledged, c.UUID)
			}
			wantError(t, err, card.ErrUnavailable)
			if _, err := s.CardByUUID(t.Context(), owner, c.UUID); !errors.Is(err, card.ErrNoRow) {
				t.Errorf("the request cut off the commit: %v", err) // visible only after the wait
			}
			waiting(t, primary, 1, by)
			unclear = append(unclear, c.UUID)
			for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if _, err := s.CardOfKey(t.Context(), owner, by); err == nil || time.Now().After(deadline) {
					check(t, err)
					break
				}
			}
			replay, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			wantError(t, s.AwaitReplication(replay), card.ErrUnavailable)
		})
	}
	t.Run("insert, the wait is canceled while the caller waits", func(t *testing.T) {
		c, ended := newCard(owner), make(chan error, 1)
		go func() {
			_, err := s.InsertCard(context.WithoutCancel(t.Context()), c, 0)
			ended <- err
		}()
		waiting(t, primary, 1, "pg_cancel_backend")
		wantError(t, <-ended, card.ErrUnavailable)
		if _, err := s.CardByUUID(t.Context(), owner, c.UUID); err != nil {
			t.Errorf("the row was not found: %v", err)
		}
		unclear = append(unclear, c.UUID)
	})
	return slices.Clip(unclear)
}

// Commits that wait for a standby must not occupy the connections of reads.
func TestReplication_WritesWaitForStandby_ReadsContinue(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	s := openNew(t, primary.URL("postgres"))
	owner := newAccount(t, s)
	c := insertCard(t, s, newCard(owner))
	standby.Freeze()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.Do(ctx, func(tx *store.Tx) error { return tx.InsertReply(ctx, newReply(owner, uuid.NewString())) })
			if !errors.Is(err, card.ErrUnavailable) {
				t.Errorf("insert a reply: %v", err)
			}
		})
	}
	waiting(t, primary, 7, "")
	for range 20 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.InsertCard(ctx, newCard(owner), 0); !errors.Is(err, card.ErrUnavailable) {
				t.Errorf("insert a card: %v", err)
			}
		})
	}
	check(t, within(t, 5*time.Second, func(ctx context.Context) error {
		_, err := s.CardByUUID(ctx, owner, c.UUID)
		return errors.Join(err, s.Ping(ctx))
	}))
	all.Wait()
	standby.Thaw()
	insertCard(t, s, newCard(owner)) // all connections are released
	check(t, s.AwaitReplication(t.Context()))
}

// The wait also works for unprepared statements and unprivileged roles, and
// costs one round trip.
func TestAwaitReplication_CostsOneRoundTrip(t *testing.T) {
	primary, _ := replicated(t)
	primary.Exec(t, "CREATE ROLE shop LOGIN")
	primary.Exec(t, "CREATE DATABASE cards OWNER shop")
	proxy := startCountingProxy(t, primary.URL("cards"))
	s := openNew(t, strings.Replace(proxy.url, "//postgres@", "//shop@", 1))
	check(t, s.AwaitReplication(t.Context()))
	before, log := proxy.ready.Load(), primary.Value(t, "SELECT pg_current_wal_lsn()")
	check(t, s.AwaitReplication(t.Context()))
	if n := proxy.ready.Load() - before; n != 1 {
		t.Errorf("%d round trips", n)
	}
	if now := primary.Value(t, "SELECT pg_current_wal_lsn()"); now == log {
		t.Error("nothing was committed")
	}
}
