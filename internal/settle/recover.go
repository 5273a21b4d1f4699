package settle

import (
	"context"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Asked is the reason for a rescan that an operator asks for. The next pass
// does it, however recently the wallet rescanned: the operator may have mended
// the wallet since.
const Asked = "an operator asked for it"

// recoverEvery is the shortest time between two rescans if the first did not
// help and nobody asks.
const recoverEvery = time.Hour

// rescanWallet has the wallet rescan its chain if a rescan was requested, and keeps the
// lease meanwhile. The pass then applies what the wallet shows.
func (w *Watcher) rescanWallet(ctx context.Context, cursor Cursor) error {
	if cursor.Rescan == "" {
		w.recoveredAt = time.Time{} // the last rescan helped: the next one need not wait
		return nil
	}
	asked := cursor.Rescan == Asked && !cursor.Believe // to believe the wallet, one that was in vain is enough
	if !asked && !w.recoveredAt.IsZero() && w.cfg.Now().Sub(w.recoveredAt) < recoverEvery {
		return nil // the wallet may show enough by now
	}
	w.recoveredAt = time.Time{}
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	started := w.cfg.Now()
	w.log.WarnContext(ctx, "wallet rescans its chain", "currency", w.currency, "reason", cursor.Rescan)
	record := func(text string) {
		if err := w.store.NoteRescan(ctx, w.currency, text); err != nil {
			w.log.WarnContext(ctx, "record rescan progress", "error", err)
		}
	}
	progress := func(text string) {
		w.log.InfoContext(ctx, "wallet is recovering", "currency", w.currency, "progress", text)
		w.setHealth(fmt.Errorf("%w: it has been recovering since %s: %s", card.ErrWalletLost, started.UTC().Format(time.RFC3339),
			text))
		record(text)
	}
	if asked {
		record("a worker has begun") // what was asked for is done once
	}
	// If another process gets the lease, this call is cancelled. The wallet
	// itself carries on, whether or not anybody waits for it.
	held, release := w.holdLease(ctx)
	if err := release(w.chain.Recover(held, cursor.Fingerprint, pool.Newest, progress)); err != nil {
		return err
	}
	w.recoveredAt = w.cfg.Now()
	w.log.InfoContext(ctx, "wallet has recovered", "currency", w.currency, "took",
		w.recoveredAt.Sub(started).Round(time.Second))
	return nil
}
