package settle

import (
	"context"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Asked is the reason for an operator's rescan. The next pass starts it,
// however recent the last rescan: the operator may have repaired the wallet
// since.
const Asked = "an operator asked for it"

// recoverEvery is the shortest time between two automatic rescans if the first
// did not help.
const recoverEvery = time.Hour

// rescanWallet rescans the wallet if a rescan was requested, and holds the
// lease during the rescan. The pass then applies the wallet's view.
func (w *Watcher) rescanWallet(ctx context.Context, cursor Cursor) error {
	if cursor.Rescan == "" {
		w.recoveredAt = time.Time{} // the last rescan helped: the next one may start immediately
		return nil
	}
	asked := cursor.Rescan == Asked && !cursor.Believe // to believe the wallet, one rescan without success is enough
	if !asked && !w.recoveredAt.IsZero() && w.cfg.Now().Sub(w.recoveredAt) < recoverEvery {
		return nil // the wallet may show enough by now
	}
	w.recoveredAt = time.Time{}
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	started := w.cfg.Now()
	w.log.WarnContext(ctx, "wallet rescan started", "currency", w.currency, "reason", cursor.Rescan)
	record := func(text string) {
		if err := w.store.NoteRescan(ctx, w.currency, text); err != nil {
			w.log.WarnContext(ctx, "rescan progress not recorded", "error", err)
		}
	}
	progress := func(text string) {
		w.log.InfoContext(ctx, "wallet rescan in progress", "currency", w.currency, "progress", text)
		w.setHealth(fmt.Errorf("%w: it has been recovering since %s: %s", card.ErrWalletLost, started.UTC().Format(time.RFC3339),
			text))
		record(text)
	}
	if asked {
		record("a worker has started it") // clears the request, so that it runs once
	}
	// If another process acquires the lease, this call is canceled. The wallet
	// itself continues the rescan regardless.
	held, release := w.holdLease(ctx)
	if err := release(w.chain.Recover(held, cursor.Fingerprint, pool.Newest, progress)); err != nil {
		return err
	}
	w.recoveredAt = w.cfg.Now()
	w.log.InfoContext(ctx, "wallet rescan finished", "currency", w.currency, "took",
		w.recoveredAt.Sub(started).Round(time.Second))
	return nil
}
