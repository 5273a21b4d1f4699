package settle

import (
	"context"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// recoverEvery is how long a wallet that looked through its whole chain in vain is not made to do it again.
const recoverEvery = time.Hour

// mend has the wallet look through the whole chain again, if that is called for, and keeps the lease meanwhile. What it then shows is
// applied by the pass.
func (w *Watcher) mend(ctx context.Context, cursor Cursor) error {
	if cursor.Rescan == "" {
		w.recoveredAt = time.Time{} // the last one helped: the next need not wait
		return nil
	}
	if !w.recoveredAt.IsZero() && w.cfg.Now().Sub(w.recoveredAt) < recoverEvery {
		return nil // what the wallet shows by now may do
	}
	w.recoveredAt = time.Time{}
	_, newest, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	started := w.cfg.Now()
	w.log.WarnContext(ctx, "wallet looks through its whole chain again", "currency", w.currency, "reason", cursor.Rescan)
	progress := func(text string) {
		w.log.InfoContext(ctx, "wallet recovers", "currency", w.currency, "progress", text)
		w.note(fmt.Errorf("%w: it recovers since %s: %s", card.ErrWalletLost, started.UTC().Format(time.RFC3339), text))
		if err := w.store.NoteRescan(ctx, w.currency, text); err != nil {
			w.log.WarnContext(ctx, "note progress", "error", err)
		}
	}
	// If another process has the chain now this is cancelled, though the wallet goes on whether or not somebody waits for it.
	held, release := w.hold(ctx)
	if err := release(w.chain.Recover(held, cursor.Fingerprint, newest, progress)); err != nil {
		return err
	}
	w.recoveredAt = w.cfg.Now()
	w.log.InfoContext(ctx, "wallet has recovered", "currency", w.currency, "took", w.recoveredAt.Sub(started).Round(time.Second))
	return nil
}
