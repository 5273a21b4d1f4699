package settle

import (
	"context"
	"fmt"

	"github.com/cardmint/cardmint/internal/card"
)

// comparePool compares the wallet with the address pool. It reports whether the wallet has made addresses that are not stored. The error
// is card.ErrWalletLost if the wallet does not have the newest stored one.
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

// trustPool records that the wallet was compared with the address pool and that the pass then succeeded. Addresses are handed out only
// if that happened within the last minute.
//
// If the last comparison is older and the wallet is ahead, the store was restored from a backup: addresses that it calls free may have
// been handed out since the backup. All of them are abandoned. That wastes some, but no address is ever handed out twice.
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

// fillPool makes new addresses until enough are free, at most one batch per pass. After a full batch it requests the next pass at once;
// that reads the chain before it makes more.
//
// It returns card.ErrWalletLost if a new address is not newer than all stored ones: the wallet has forgotten those. This is the last
// chance to notice, because the wallet now has addresses in those positions again.
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
