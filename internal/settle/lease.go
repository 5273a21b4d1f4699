package settle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

func (w *Watcher) keepLease(ctx context.Context) error {
	now := w.cfg.Now()
	if w.lease != nil && now.Sub(w.leasedAt) < w.cfg.LeaseTTL/3 {
		return nil
	}
	l, err := w.store.AcquireLease(ctx, "watch "+w.currency, w.cfg.Replica, w.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	if w.lease != nil && w.lease.Fence != l.Fence {
		w.lease = nil // another had it in between: what was read before is not to be applied
		return card.ErrFenced
	}
	w.lease, w.leasedAt = &l, now
	return nil
}

// hold prolongs the lease while the chain is asked: however long a wallet takes, no other process begins the same anew and has what it
// found discarded. The chain is to be asked with held, which is cancelled if another process has the lease all the same. release must be
// called with the chain's error; it returns that error, or card.ErrFenced if the lease was lost.
//
// What is asked must have time limits of its own, or a chain that hangs would be kept from the others for ever. The database has none: a
// process whose connection to it hangs must lose the chain. So no lease is prolonged while a transaction checks it.
func (w *Watcher) hold(ctx context.Context) (held context.Context, release func(error) error) {
	name, fence := w.lease.Name, w.lease.Fence
	held, cancel := context.WithCancelCause(ctx)
	var prolonging sync.WaitGroup
	prolonging.Go(func() {
		again := time.NewTicker(w.cfg.LeaseTTL / 4)
		defer again.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-again.C:
			}
			l, err := w.store.AcquireLease(held, name, w.cfg.Replica, w.cfg.LeaseTTL)
			switch {
			case errors.Is(err, card.ErrFenced), err == nil && l.Fence != fence:
				cancel(card.ErrFenced)
			case err != nil && held.Err() == nil:
				w.log.WarnContext(ctx, "prolong lease", "error", err)
			}
		}
	})
	return held, func(err error) error {
		cancel(nil) // does nothing if the lease was lost
		prolonging.Wait()
		if errors.Is(context.Cause(held), card.ErrFenced) {
			return card.ErrFenced
		}
		return err
	}
}
