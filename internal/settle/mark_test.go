package settle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// A standby requests a pass as soon as a mark acquires the lease, and only
// then.
func TestWatcher_MarkTakesOver_RequestsPass(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		passes, wake := 0, wakesNothing()
		wake.Pass = func() { passes++ }
		w, err := settle.New(s.store, s.rates, s.chain, wake, quiet,
			settle.Config{PoolSize: 200, CompareEvery: -1, Now: s.clock, LeaseTTL: time.Minute})
		check(t, err)
		for i, want := range []int{0, 1, 1} {
			if i == 1 {
				expireLeases(t, s)
			}
			s.now = s.now.Add(time.Second)
			if check(t, w.Mark(t.Context())); passes != want {
				t.Errorf("mark %d: %d passes were requested, want %d", i, passes, want)
			}
		}
		check(t, w.Close(t.Context()))
	})
}

// failingLeases is a database that fails to renew one lease.
type failingLeases struct {
	*store.Store
	asked atomic.Int64
	again chan struct{} // closed at the next renewal
}

var errAway = errors.New("the database is unavailable")

func (u *failingLeases) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (settle.Lease,
	error) {
	switch u.asked.Add(1) {
	case 2: // the first call acquires it
		return settle.Lease{}, errAway
	case 3:
		defer close(u.again)
	}
	return u.Store.AcquireLease(ctx, name, holder, ttl)
}

// A failed renewal of the lease is logged, and does not end the pass.
func TestWatcher_LeaseRenewedLate_KeepsChain(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		check(t, s.watcher.Close(t.Context()))
		u := &failingLeases{Store: s.store, again: make(chan struct{})}
		slow := slowScan{Chain: s.chain, scan: func(ctx context.Context) error {
			select {
			case <-u.again:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		var log bytes.Buffer
		w, err := settle.New(u, s.rates, slow, wakesNothing(), slog.New(slog.NewTextHandler(&log, nil)),
			settle.Config{PoolSize: 200, CompareEvery: -1, Now: s.clock, LeaseTTL: time.Minute})
		check(t, err)
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		if n := strings.Count(log.String(), "lease not renewed"); n != 1 || !strings.Contains(log.String(), errAway.Error()) {
			t.Errorf("%d failures are logged:\n%s", n, &log)
		}
		check(t, w.Close(t.Context()))
	})
}

// repeatingWallet is a wallet that makes its newest address once more.
type repeatingWallet struct{ settle.Chain }

func (f repeatingWallet) NewAddresses(ctx context.Context, after int64, n int) ([]settle.Address, error) {
	all, err := f.Chain.NewAddresses(ctx, after, n)
	if err == nil {
		all[0].Position = after
	}
	return all, err
}

func TestWatcher_WalletRepeatsNewestAddress_IsNotTrusted(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.order() // takes an address
		s.watcher = s.watch(repeatingWallet{s.chain}, settle.Config{})
		if err := s.watcher.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
			t.Errorf("error %v", err)
		}
	})
}
