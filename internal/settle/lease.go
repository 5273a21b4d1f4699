package settle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
)

// minMarkInterval is the shortest time between two marks. A mark renews the lease and
// attests that the database has not gone back.
const minMarkInterval = 700 * time.Millisecond

// keepLease acquires the lease, or renews it after minMarkInterval. It returns
// card.ErrFenced if another process has the lease, or had it in between.
func (w *Watcher) keepLease(ctx context.Context) error {
	now := w.cfg.Now()
	if w.lease != nil && now.Sub(w.leasedAt) < minMarkInterval {
		return nil
	}
	l, err := w.store.AcquireLease(ctx, LeaseName(w.currency), w.cfg.Replica, w.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	if w.lease != nil && w.lease.Fence != l.Fence {
		w.dropLease(ctx) // another process had it in between: do not apply older reads
		return card.ErrFenced
	}
	if w.lease == nil {
		w.log.InfoContext(ctx, "lease acquired: this process watches the chain", "currency", w.currency, "fence", l.Fence)
		w.wonAt = l.Now
	}
	w.lease, w.leasedAt = &l, now
	return nil
}

// holdLease renews the lease in the background until release is called, so that
// a slow wallet does not cost the process its lease. held is the context for
// calls to the wallet; it is canceled if the lease is lost. Callers pass the
// wallet's error to release, which returns that error, or card.ErrFenced if the
// lease was lost.
//
// Calls with held must have their own deadlines: a wallet that hangs would
// otherwise keep the lease from the other replicas forever. Database calls have
// no deadlines, so they must not use held: a process whose connection hangs
// must lose the lease.
func (w *Watcher) holdLease(ctx context.Context) (held context.Context, release func(error) error) {
	name, fence := w.lease.Name, w.lease.Fence
	held, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticker := time.NewTicker(min(time.Second, w.cfg.LeaseTTL/4))
		defer ticker.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-ticker.C:
			}
			var l Lease
			err := panics.Call(func() (err error) {
				l, err = w.store.AcquireLease(held, name, w.cfg.Replica, w.cfg.LeaseTTL)
				return err
			})
			switch {
			case errors.Is(err, card.ErrFenced), err == nil && l.Fence != fence:
				cancel(card.ErrFenced)
			case err != nil && held.Err() == nil:
				w.log.WarnContext(ctx, "lease not renewed", "error", err, panics.Stack(err))
			}
		}
	})
	return held, func(err error) error {
		cancel(nil) // a no-op if the lease was lost
		renewing.Wait()
		if errors.Is(context.Cause(held), card.ErrFenced) {
			return card.ErrFenced
		}
		return err
	}
}

// dropLease forgets the lease, and the state that only its holder has.
func (w *Watcher) dropLease(ctx context.Context) {
	if w.lease != nil {
		w.log.WarnContext(ctx, "lease lost: this process no longer watches the chain", "currency", w.currency, "fence",
			w.lease.Fence)
	}
	w.lease, w.pending = nil, nil
}
