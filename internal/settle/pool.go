package settle

import (
	"context"
	"fmt"

	"github.com/cardmint/cardmint/internal/card"
)

// comparePool compares the wallet with the stored addresses. It reports whether the wallet has made others since, or an error if the
// wallet does not have the newest of them.
func (w *Watcher) comparePool(ctx context.Context) (ahead bool, err error) {
	_, newest, err := w.store.AddressPool(ctx, w.currency)
	if err != nil || newest == nil {
		return false, err
	}
	held, release := w.hold(ctx)
	ahead, err = w.chain.Ahead(held, *newest)
	if err := release(err); err != nil {
		return false, fmt.Errorf("check address pool: %w", err)
	}
	return ahead, nil
}

// trustPool notes that a pass went well after the wallet was compared with the pool. Until that was done within the last minute no address
// is handed out.
//
// A wallet that is ahead of a store that was not compared for longer means that the store was restored from a backup: what it
// thinks free may have been handed out since. All of it is skipped, at the price of some addresses, and none is ever used twice.
func (w *Watcher) trustPool(ctx context.Context, ahead bool) error {
	err := w.store.SettleTx(ctx, func(tx Tx) error {
		if err := tx.CheckLease(ctx, *w.lease); err != nil {
			return err
		}
		return tx.CheckedPool(ctx, w.currency, ahead)
	})
	if err == nil {
		w.poolAt = w.cfg.Now()
	}
	return err
}

// fillPool makes addresses until enough are free, up to a batch in each pass: if the pool may want more, the next pass follows at once, and
// reads the chain first.
//
// Addresses that are not newer than all that are stored mean that the wallet has forgotten those: that is card.ErrWalletLost, for now that
// it has some of them again nothing else would tell.
func (w *Watcher) fillPool(ctx context.Context) error {
	free, newest, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	n := min(w.cfg.PoolSize-free, w.cfg.FillBatch)
	if n <= 0 {
		return nil
	}
	after := NoPosition
	if newest != nil {
		after = newest.Position
	}
	held, release := w.hold(ctx)
	fresh, err := w.chain.NewAddresses(held, after, n)
	if err := release(err); err != nil {
		return fmt.Errorf("make addresses: %w", err)
	}
	for _, a := range fresh {
		if a.Position <= after {
			return fmt.Errorf("%w: it made number %d anew, but %d was stored", card.ErrWalletLost, a.Position, after)
		}
	}
	err = w.store.SettleTx(ctx, func(tx Tx) error {
		if err := tx.CheckLease(ctx, *w.lease); err != nil {
			return err
		}
		return tx.InsertAddresses(ctx, fresh)
	})
	if err != nil {
		return fmt.Errorf("store addresses: %w", err)
	}
	if len(fresh) == w.cfg.FillBatch {
		w.wake.Pass()
	}
	return nil
}
