// Package watcher follows a chain and has the stored facts made equal to it.
//
// It may import package card only. It keeps nothing: after a crash the next Tick reads the chain again from where the cursor,
// which moves in the transaction that applies the facts, was left.
package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Chain is what the watcher asks of the node and wallet of one coin.
type Chain interface {
	Currency() string
	// Scan returns the chain's tip, and every incoming transfer above the height since and in the mempool. known are the tips of views
	// before, newest first: View.Kept is the height of the first that is still part of the chain, 0 if none is.
	// No transfer (transaction and output) is there twice. It returns card.ErrChainNotReady if the chain can't be trusted at the moment.
	Scan(ctx context.Context, known []card.Tip, since int64) (card.View, error)
	// NewAddresses makes n addresses, in ascending positions that it never returns again.
	NewAddresses(ctx context.Context, n int) ([]card.Address, error)
	// Ahead reports whether the wallet has made addresses after newest. It returns card.ErrWalletLost if the wallet does not
	// have newest itself: then it would not see payments to its own addresses.
	Ahead(ctx context.Context, newest card.Address) (bool, error)
	// Recover has a wallet that lost what it knew make its addresses up to newest again, if there are any, and look through the whole
	// chain again. It can take hours; progress is told what goes on, in words for an operator. Repeating it is harmless.
	// It is card.ErrWrongChain, and nothing is done, if the fingerprint of node and wallet is not the one given, unless that is "".
	Recover(ctx context.Context, fingerprint string, newest *card.Address, progress func(string)) error
}

// checkPoolEvery is well below the minute for which a comparison of wallet and pool is believed.
const checkPoolEvery = 15 * time.Second

// recoverEvery is how long a wallet that looked through its whole chain in vain is not made to do it again.
const recoverEvery = time.Hour

// Config is how a watcher works.
type Config struct {
	// Reread is how many blocks below the applied tip are read again in every pass. A reorganisation that is deeper than this is
	// not noticed, so it must exceed the deepest confirmations by far. Defaults to 120.
	Reread int64
	// FillBatch is how many addresses are made in one pass at most. Defaults to 64.
	FillBatch int
	// LeaseTTL is how long another replica waits before it takes over a chain whose watcher died. Defaults to 30 s.
	LeaseTTL time.Duration
	// Wake is called when a pass made all the addresses that it may: the pool may want more, and the next pass should follow at once. It
	// reads the chain first, as every pass does. Defaults to nothing.
	Wake func()
	Now  func() time.Time // Defaults to time.Now.
}

// Watcher watches one chain. Of all replicas that have one, one works at a time.
type Watcher struct {
	service *card.Service
	chain   Chain
	cfg     Config

	mu       sync.Mutex // one Tick at a time
	lease    *card.Lease
	leasedAt time.Time
	// failingSince is when the first pass failed since one went well or another replica had the chain.
	failingSince time.Time
	poolAt       time.Time  // of the last comparison of wallet and pool
	known        []card.Tip // that were applied and are part of the chain, newest first
	// recoveredAt is when the wallet last looked through its whole chain. It is not made to do that again within recoverEvery:
	// if it did not help, an operator is needed.
	recoveredAt time.Time

	health struct { // apart, so that it can be asked while a Tick hangs
		sync.Mutex
		err error
		at  time.Time // of the end of the last Tick
	}
}

// New returns a watcher of chain.
func New(service *card.Service, chain Chain, cfg Config) *Watcher {
	if cfg.Reread == 0 {
		cfg.Reread = 120
	}
	if cfg.FillBatch == 0 {
		cfg.FillBatch = 64
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = 30 * time.Second
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	w := &Watcher{service: service, chain: chain, cfg: cfg}
	w.report(errors.New("has not looked yet"))
	return w
}

// Tick reads the chain once and applies what it shows. If another replica watches the chain, it does nothing.
func (w *Watcher) Tick(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.keepLease(ctx)
	standby := errors.Is(err, card.ErrFenced)
	switch {
	case standby:
		err = nil
	case err == nil:
		err = w.pass(ctx)
	}
	if standby || errors.Is(err, card.ErrFenced) {
		w.lease = nil
	}
	if err != nil && !standby {
		err = w.react(ctx, err)
	}
	w.makeRoom(ctx, err)
	w.report(err)
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.chain.Currency(), err)
	}
	return nil
}

// react does what an error calls for, and returns it.
func (w *Watcher) react(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, card.ErrWrongChain):
		// Whatever is there: an address that is handed out now might not be ours.
		w.poolAt = time.Time{}
		return errors.Join(err, w.service.DistrustPool(ctx, w.chain.Currency()))
	case errors.Is(err, card.ErrWalletLost):
		w.poolAt = time.Time{}
		if !w.recoveredAt.IsZero() {
			return errors.Join(err, w.service.NoteRescan(ctx, w.chain.Currency(),
				"the wallet looked through the whole chain, and still: "+err.Error()+"; is the height too late from which it was restored? If the money never came: cardmint wallet rescan --believe"))
		}
		return errors.Join(err, w.service.RequestRescan(ctx, w.chain.Currency(), err.Error(), false))
	}
	return err
}

// makeRoom lets go of the chain once passes have failed for as long as a lease lasts: another replica, if there is one, looks again
// before this one does, and perhaps it reaches the node, or has the right wallet.
func (w *Watcher) makeRoom(ctx context.Context, err error) {
	now := w.cfg.Now()
	switch {
	case err == nil:
		w.failingSince = time.Time{}
	case w.failingSince.IsZero():
		w.failingSince = now
	case w.lease != nil && now.Sub(w.failingSince) >= w.cfg.LeaseTTL:
		if err := w.service.ReleaseLease(ctx, *w.lease); err != nil {
			slog.WarnContext(ctx, "release lease", "error", err)
		}
		w.lease = nil
	}
}

// pass reads the chain once and applies what it shows. It has the lease.
func (w *Watcher) pass(ctx context.Context) error {
	currency := w.chain.Currency()
	cursor, err := w.service.Cursor(ctx, currency)
	if err != nil {
		return err
	}
	if cursor.Rescan == "" {
		w.recoveredAt = time.Time{} // the last one helped: the next need not wait
	} else if err := w.recover(ctx, cursor); err != nil {
		return err
	}
	if cursor.Tip.Hash != "" && (len(w.known) == 0 || w.known[0].Hash != cursor.Tip.Hash) {
		w.known = []card.Tip{cursor.Tip} // another process has worked meanwhile
		if cursor.Deep.Hash != "" {
			w.known = append(w.known, cursor.Deep)
		}
	}
	var view card.View
	err = w.holding(ctx, func(ctx context.Context) (err error) {
		view, err = w.chain.Scan(ctx, w.known, w.since(cursor))
		return err
	})
	if err != nil {
		return err
	}
	if cursor.Deep.Hash != "" && view.Kept < cursor.Deep.Height && cursor.Rescan == "" {
		return fmt.Errorf("%w: the chain is another from below block %d on, and the wallet can't have followed", card.ErrWalletLost, cursor.Deep.Height)
	}
	// Before anything is applied: a wallet that lost addresses shows a chain without their payments. One that is not ours at all has
	// other addresses, and is refused for that.
	comparing, ahead := w.cfg.Now().Sub(w.poolAt) >= checkPoolEvery, false
	if ours := cursor.Fingerprint == "" || cursor.Fingerprint == view.Fingerprint; comparing && ours {
		if ahead, err = w.service.ComparePool(ctx, currency, w.ahead); err != nil {
			return err
		}
	}
	if err := w.keepLease(ctx); err != nil { // it is not kept where the database is asked
		return err
	}
	applied, err := w.service.ApplyView(ctx, *w.lease, currency, cursor, view)
	if err != nil {
		return err
	}
	w.remember(view)
	w.log(ctx, view, applied)
	if comparing {
		if err := w.service.TrustPool(ctx, *w.lease, currency, ahead); err != nil {
			return err
		}
		w.poolAt = w.cfg.Now()
	}
	made, err := w.service.FillAddresses(ctx, *w.lease, currency, w.cfg.FillBatch, w.newAddresses)
	if made == w.cfg.FillBatch {
		w.cfg.Wake()
	}
	return err
}

// ahead asks the chain while the lease is kept.
func (w *Watcher) ahead(ctx context.Context, newest card.Address) (ahead bool, err error) {
	err = w.holding(ctx, func(ctx context.Context) (err error) {
		ahead, err = w.chain.Ahead(ctx, newest)
		return err
	})
	return ahead, err
}

// newAddresses has the chain make them while the lease is kept.
func (w *Watcher) newAddresses(ctx context.Context, n int) (made []card.Address, err error) {
	err = w.holding(ctx, func(ctx context.Context) (err error) {
		made, err = w.chain.NewAddresses(ctx, n)
		return err
	})
	return made, err
}

// remember keeps the newest tips that are part of the chain, as many as are read again: they tell how deep it is reorganised.
func (w *Watcher) remember(v card.View) {
	if len(w.known) > 0 && w.known[0].Hash == v.Tip.Hash {
		return
	}
	known := []card.Tip{v.Tip}
	for _, k := range w.known {
		if k.Height <= v.Kept && k.Height > v.Tip.Height-w.cfg.Reread {
			known = append(known, k)
		}
	}
	if v.Deep.Hash != "" {
		known = append(known, v.Deep)
		slices.SortStableFunc(known, func(a, b card.Tip) int { return cmp.Compare(b.Height, a.Height) })
	}
	w.known = known
}

// since returns the height above which the chain is read.
func (w *Watcher) since(cursor card.Cursor) int64 {
	if cursor.Rescan != "" {
		return 0
	}
	since := cursor.Tip.Height - w.cfg.Reread
	if cursor.LowestLocked > 0 { // until it is unlocked it must be seen again
		since = min(since, cursor.LowestLocked-1)
	}
	return max(0, since)
}

// recover has the wallet look through the whole chain again, and keeps the lease meanwhile. What it then shows is applied by the pass.
func (w *Watcher) recover(ctx context.Context, cursor card.Cursor) error {
	if !w.recoveredAt.IsZero() && w.cfg.Now().Sub(w.recoveredAt) < recoverEvery {
		return nil // what the wallet shows by now may do
	}
	w.recoveredAt = time.Time{}
	currency := w.chain.Currency()
	newest, err := w.service.NewestAddress(ctx, currency)
	if err != nil {
		return err
	}
	started := w.cfg.Now()
	slog.WarnContext(ctx, "wallet looks through its whole chain again", "currency", currency, "reason", cursor.Rescan)
	progress := func(text string) {
		slog.InfoContext(ctx, "wallet recovers", "currency", currency, "progress", text)
		w.report(fmt.Errorf("%w: it recovers since %s: %s", card.ErrWalletLost, started.UTC().Format(time.RFC3339), text))
		if err := w.service.NoteRescan(ctx, currency, text); err != nil {
			slog.WarnContext(ctx, "note progress", "error", err)
		}
	}
	// If another process has the chain now this is cancelled, though the wallet goes on whether or not somebody waits for it.
	err = w.holding(ctx, func(ctx context.Context) error {
		return w.chain.Recover(ctx, cursor.Fingerprint, newest, progress)
	})
	if err != nil {
		return err
	}
	w.recoveredAt = w.cfg.Now()
	slog.InfoContext(ctx, "wallet has recovered", "currency", currency, "took", w.recoveredAt.Sub(started).Round(time.Second))
	return nil
}

func (w *Watcher) log(ctx context.Context, view card.View, applied card.Applied) {
	if applied.Transfers > 0 || applied.Paid > 0 {
		slog.InfoContext(ctx, "applied chain", "currency", w.chain.Currency(), "height", view.Tip.Height, "transfers", applied.Transfers,
			"unattributed", applied.Unattributed, "cards", applied.Cards, "paid", applied.Paid)
	}
	if applied.Unattributed > 0 {
		slog.WarnContext(ctx, "money came to addresses of no card", "currency", w.chain.Currency(), "transfers", applied.Unattributed)
	}
	for _, a := range applied.Alarms {
		slog.ErrorContext(ctx, "payment needs an operator", "card", a.CardUUID, "state", a.State)
	}
}

func (w *Watcher) keepLease(ctx context.Context) error {
	now := w.cfg.Now()
	if w.lease != nil && now.Sub(w.leasedAt) < w.cfg.LeaseTTL/3 {
		return nil
	}
	l, err := w.service.AcquireLease(ctx, "watch "+w.chain.Currency(), w.cfg.LeaseTTL)
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

// holding runs f, which asks the chain, and prolongs the lease meanwhile: however long a wallet takes, no other process begins the same
// anew and has what f found discarded. If another has the chain all the same, f is cancelled, and the error is card.ErrFenced.
//
// What f asks must have time limits of its own, or a chain that hangs would be kept from the others for ever. The database has none: a
// process whose connection to it hangs must lose the chain. So only f is covered, and no lease is prolonged while a transaction checks it.
func (w *Watcher) holding(ctx context.Context, f func(context.Context) error) error {
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
			l, err := w.service.AcquireLease(held, name, w.cfg.LeaseTTL)
			switch {
			case errors.Is(err, card.ErrFenced), err == nil && l.Fence != fence:
				cancel(card.ErrFenced)
			case err != nil && held.Err() == nil:
				slog.WarnContext(ctx, "prolong lease", "error", err)
			}
		}
	})
	err := f(held)
	cancel(nil) // does nothing if the lease was lost
	prolonging.Wait()
	if errors.Is(context.Cause(held), card.ErrFenced) {
		return card.ErrFenced
	}
	return err
}

func (w *Watcher) report(err error) {
	w.health.Lock()
	defer w.health.Unlock()
	w.health.err, w.health.at = err, w.cfg.Now()
}

// Health returns why the chain is not being watched, or nil: the last Tick failed, or none has ended for a minute. It is a card.Unready.
func (w *Watcher) Health() error {
	w.health.Lock()
	defer w.health.Unlock()
	since := w.cfg.Now().Sub(w.health.at)
	why := card.Unready("the last pass failed")
	switch err := w.health.err; {
	case err == nil && since > time.Minute:
		return card.Unready("no pass has ended for " + since.Round(time.Second).String())
	case err == nil:
		return nil
	case errors.Is(err, card.ErrWrongChain):
		why = "node or wallet is not the one that this database belongs to"
	case errors.Is(err, card.ErrWalletLost):
		why = "the wallet lost what it knew, and is to look through the whole chain again"
	case errors.Is(err, card.ErrChainNotReady):
		why = "node or wallet is not ready"
	}
	return fmt.Errorf("%w: %w", why, w.health.err)
}

// Close gives up the chain, so that another replica can go on at once.
func (w *Watcher) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease == nil {
		return nil
	}
	l := *w.lease
	w.lease = nil
	return w.service.ReleaseLease(ctx, l)
}
