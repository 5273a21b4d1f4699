package settle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

var errKilled = errors.New("the process was killed")

// crashing is a worker's access to its database and wallet. The process is
// killed before or after one of its writes.
type crashing struct {
	left  int  // writes until it is killed
	after bool // killed after the last write
}

func (m *crashing) write(do func() error) error {
	m.left--
	switch {
	case m.left > 0:
		return do()
	case m.left == 0 && m.after:
		return errors.Join(do(), errKilled)
	}
	return errKilled
}

type crashingStore struct {
	*store.Store
	life *crashing
}

func (s crashingStore) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (l settle.Lease,
	err error) {
	err = s.life.write(func() error {
		l, err = s.Store.AcquireLease(ctx, name, holder, ttl)
		return err
	})
	return l, err
}

func (s crashingStore) ReleaseLease(ctx context.Context, l settle.Lease) error {
	return s.life.write(func() error { return s.Store.ReleaseLease(ctx, l) })
}

func (s crashingStore) BeginEpoch(ctx context.Context, l settle.Lease, e settle.Epoch) (begun settle.Lease, err error) {
	err = s.life.write(func() error {
		begun, err = s.Store.BeginEpoch(ctx, l, e)
		return err
	})
	return begun, err
}

func (s crashingStore) SettleTx(ctx context.Context, f func(settle.Tx) error) error {
	return s.life.write(func() error { return s.Store.SettleTx(ctx, f) })
}

type crashingWallet struct {
	*fakeWallet
	life *crashing
}

func (p crashingWallet) SetBeacon(ctx context.Context, b settle.Beacon, durable bool) error {
	return p.life.write(func() error { return p.fakeWallet.SetBeacon(ctx, b, durable) })
}

func (p crashingWallet) Reserve(ctx context.Context, upTo int64, n int) (reached bool, err error) {
	err = p.life.write(func() error {
		reached, err = p.fakeWallet.Reserve(ctx, upTo, n)
		return err
	})
	return reached, err
}

// restartFixture is a deployment whose only worker restarts.
type restartFixture struct {
	*deployment
	url  string
	sold map[string]bool
}

func onEachRestart(t *testing.T, f func(t *testing.T, r *restartFixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		r := &restartFixture{deployment: openDeploymentAt(t, url, &fakeWallet{made: 1}, uuid.Nil), url: url,
			sold: map[string]bool{}}
		r.account = insertAccount(t, r.store)
		r.pass()
		r.insertEvent()
		r.load(2)
		f(t, r)
	})
}

// load makes passes under load, a second apart, until one fails.
func (r *restartFixture) load(passes int) (err error) {
	r.t.Helper()
	for range passes {
		r.ahead += time.Second
		r.wait()
		if err = r.watcher.Tick(r.t.Context()); err != nil {
			return err
		}
		for range 3 { // no address may be free yet
			if c, err := create(r.t.Context(), r.orders, r.account, "150"); err == nil {
				if r.sold[c.Address] {
					r.t.Fatalf("%s was handed out twice", c.Address)
				}
				r.sold[c.Address] = true
			}
		}
	}
	return nil
}

// restart starts a process after the last one was killed. If life is nil, it is
// not killed.
func (r *restartFixture) restart(life *crashing) {
	r.t.Helper()
	_, err := r.direct.Exec("UPDATE leases SET expires_at = 0")
	check(r.t, err)
	check(r.t, r.store.Close())
	r.deployment = openDeploymentAt(r.t, r.url, r.wallet, r.account)
	if r.store.SingleWriter() {
		check(r.t, r.store.InvalidateEpochs(r.t.Context()))
	}
	if life != nil {
		r.watch(crashingStore{r.store, life}, crashingWallet{r.wallet, life}, wakesNothing())
	}
}

// wantEpochs compares how many epochs there were, and how often feeds were
// reset.
func (r *restartFixture) wantEpochs(epochs, resets int) {
	r.t.Helper()
	var got int
	check(r.t, r.direct.QueryRow("SELECT COUNT(*) FROM epochs").Scan(&got))
	if got != epochs || r.resets() != resets {
		r.t.Errorf("%d epochs and %d resets, want %d and %d; the last log:\n%s", got, r.resets(), epochs, resets, &r.log)
	}
}

func TestWatcher_RestartUnderLoad_ContinuesEpoch(t *testing.T) {
	onEachRestart(t, func(t *testing.T, r *restartFixture) {
		for range 20 {
			check(t, r.watcher.Close(t.Context()))
			r.restart(nil)
			check(t, r.load(2))
		}
		r.wantEpochs(1, 0)
		if len(r.sold) < 20 {
			t.Errorf("only %d cards were sold", len(r.sold))
		}
	})
}

func TestWatcher_KilledAtAnyWrite_ContinuesEpoch(t *testing.T) {
	onEachRestart(t, func(t *testing.T, r *restartFixture) {
		for _, after := range []bool{false, true} {
			for n := 1; n <= 24; n++ {
				r.restart(&crashing{left: n, after: after})
				if err := r.load(20); !errors.Is(err, errKilled) {
					t.Fatalf("write %d: error %v", n, err)
				}
				if r.wantEpochs(1, 0); t.Failed() {
					t.Fatalf("killed at write %d, after it: %v", n-1, after)
				}
			}
		}
		r.restart(nil)
		check(t, r.load(3))
		r.wantEpochs(1, 0)
	})
}

// Each case lost data within a minute, or can't rule that out.
func TestWatcher_RestartAfterRewind_BeginsEpoch(t *testing.T) {
	for name, rewind := range map[string]func(r *restartFixture){
		"another server": func(r *restartFixture) { r.wallet.beacon.Server = "another" },
		"an older mark": func(r *restartFixture) {
			_, err := r.direct.Exec("UPDATE leases SET marked_at = marked_at - 2000")
			check(r.t, err)
		},
		"an older epoch":    func(r *restartFixture) { r.wallet.beacon.Epoch-- },
		"an unknown wallet": func(r *restartFixture) { r.wallet.beacon = settle.Beacon{} },
		"a program's backup": func(r *restartFixture) {
			check(r.t, r.store.MarkRestored(r.t.Context(), time.Now().Add(time.Second)))
		},
		"a longer pause": func(r *restartFixture) {
			_, err := r.direct.Exec(fmt.Sprintf("UPDATE leases SET marked_at = marked_at - %d", 2*time.Minute.Milliseconds()))
			check(r.t, err)
			r.wallet.beacon = aged(r.wallet.beacon, 2*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachRestart(t, func(t *testing.T, r *restartFixture) {
				rewind(r)
				r.restart(nil)
				r.sell(3, r.sold)
				r.wantEpochs(2, 1)
			})
		})
	}
}

// SQLite's file may have been replaced together with the wallet's file. The
// data of a server that has run since can't have been.
func TestWatcher_RestartWithWallet_ContinuesEpochOfServer(t *testing.T) {
	onEachRestart(t, func(t *testing.T, r *restartFixture) {
		r.wallet.beacon = r.wallet.kept
		r.restart(nil)
		r.sell(3, r.sold)
		if r.store.SingleWriter() {
			r.wantEpochs(2, 1)
		} else {
			r.wantEpochs(1, 0)
		}
	})
}
