package settle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
)

// markEvery is the shortest time between two marks: the holder of a lease
// prolongs it, and attests that the database has not gone back.
const markEvery = 700 * time.Millisecond

// keepLease acquires the lease, or prolongs it if that was not done within
// markEvery. It returns card.ErrFenced if another process has it, or had it
// since.
func (w *Watcher) keepLease(ctx context.Context) error {
	now := w.cfg.Now()
	if w.lease != nil && now.Sub(w.leasedAt) < markEvery {
		return nil
	}
	l, err := w.store.AcquireLease(ctx, LeaseName(w.currency), w.cfg.Replica, w.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	if w.lease != nil && w.lease.Fence != l.Fence {
		w.dropLease(ctx) // another process had it in between: what this one read before must not be applied
		return card.ErrFenced
	}
	if w.lease == nil {
		w.log.InfoContext(ctx, "lease won: this process watches the chain", "currency", w.currency, "fence", l.Fence)
		w.wonAt = l.Now
	}
	w.lease, w.leasedAt = &l, now
	return nil
}

// holdLease prolongs the lease while the chain is being read. However long a wallet
// takes, no other process takes over, starts again and makes the answer
// worthless. Callers read the chain with held, which is cancelled if another
// process gets the lease all the same. They must call release with the chain's
// error; it returns that error, or card.ErrFenced if the lease was lost.
//
// Whatever is called with held must have time limits of its own, or a hanging
// chain would keep the lease from the others for ever. Calls to the database
// have none: a process whose connection hangs must lose the lease. So a lease
// is not prolonged during transactions.
func (w *Watcher) holdLease(ctx context.Context) (held context.Context, release func(error) error) {
	name, fence := w.lease.Name, w.lease.Fence
	held, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		again := time.NewTicker(min(time.Second, w.cfg.LeaseTTL/4))
		defer again.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-again.C:
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
				w.log.WarnContext(ctx, "prolong lease", "error", err, panics.Stack(err))
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

// dropLease forgets the lease, and what only its holder knows.
func (w *Watcher) dropLease(ctx context.Context) {
	if w.lease != nil {
		w.log.WarnContext(ctx, "lease lost: this process no longer watches the chain", "currency", w.currency, "fence",
			w.lease.Fence)
	}
	w.lease, w.pending = nil, nil
}
