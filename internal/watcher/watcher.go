// Package watcher follows a chain and has the stored facts made equal to it.
//
// It may import package card only. It keeps nothing: after a crash the next Tick reads the chain again from where the cursor,
// which moves in the transaction that applies the facts, was left.
package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Chain is what the watcher asks of the node and wallet of one coin.
type Chain interface {
	Currency() string
	// Scan returns the chain's tip, and every incoming transfer above the height since and in the mempool.
	// No transfer (transaction and output) is there twice. It returns card.ErrChainNotReady if the chain can't be trusted at the moment.
	Scan(ctx context.Context, since int64) (card.View, error)
	// NewAddresses makes n addresses, in ascending positions that it never returns again.
	NewAddresses(ctx context.Context, n int) ([]card.Address, error)
	// Ahead reports whether the wallet has made addresses after newest. It returns card.ErrChainNotReady if the wallet does not
	// have newest itself: then it would not see payments to its own addresses.
	Ahead(ctx context.Context, newest card.Address) (bool, error)
}

// longestLock is for how many blocks a locked transfer is read again and again. One that is locked for longer is not waited for.
const longestLock = 5000

// checkPoolEvery is well below the minute for which a comparison of wallet and pool is believed.
const checkPoolEvery = 15 * time.Second

// Config is how a watcher works.
type Config struct {
	// Reread is how many blocks below the applied tip are read again in every pass. A reorganisation that is deeper than this is
	// not noticed, so it must exceed the deepest confirmations by far. Defaults to 120.
	Reread int64
	// FillBatch is how many addresses are made in one pass at most. Defaults to 64.
	FillBatch int
	// LeaseTTL is how long another replica waits before it takes over a chain whose watcher died. Defaults to 30 s.
	LeaseTTL time.Duration
	Now      func() time.Time // Defaults to time.Now.
}

// Watcher watches one chain. Of all replicas that have one, one works at a time.
type Watcher struct {
	service *card.Service
	chain   Chain
	cfg     Config

	mu       sync.Mutex // one Tick at a time
	lease    *card.Lease
	leasedAt time.Time
	poolAt   time.Time // of the last comparison of wallet and pool

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
	w.report(err)
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.chain.Currency(), err)
	}
	return nil
}

// pass reads the chain once and applies what it shows. It has the lease.
func (w *Watcher) pass(ctx context.Context) error {
	currency := w.chain.Currency()
	if w.cfg.Now().Sub(w.poolAt) >= checkPoolEvery {
		// First of all: a wallet that lost addresses shows a chain without their payments.
		if err := w.service.CheckPool(ctx, *w.lease, currency, w.chain.Ahead); err != nil {
			return err
		}
		w.poolAt = w.cfg.Now()
	}
	cursor, err := w.service.Cursor(ctx, currency)
	if err != nil {
		return err
	}
	since := cursor.Tip.Height - w.cfg.Reread
	if cursor.LowestLocked > 0 { // until it is unlocked it must be seen again
		since = min(since, max(cursor.LowestLocked-1, cursor.Tip.Height-longestLock))
	}
	view, err := w.chain.Scan(ctx, max(0, since))
	if err != nil {
		return err
	}
	if err := w.keepLease(ctx); err != nil { // reading may have taken longer than the lease
		return err
	}
	applied, err := w.service.ApplyView(ctx, *w.lease, currency, cursor, view)
	if err != nil {
		return err
	}
	w.log(ctx, view, applied)
	_, err = w.service.FillAddresses(ctx, *w.lease, currency, w.cfg.FillBatch, w.chain.NewAddresses)
	return err
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

func (w *Watcher) report(err error) {
	w.health.Lock()
	defer w.health.Unlock()
	w.health.err, w.health.at = err, w.cfg.Now()
}

// Health returns why the chain is not being watched, or nil: the last Tick failed, or none has ended for a minute.
func (w *Watcher) Health() error {
	w.health.Lock()
	defer w.health.Unlock()
	if since := w.cfg.Now().Sub(w.health.at); w.health.err == nil && since > time.Minute {
		return fmt.Errorf("no pass has ended for %s", since.Round(time.Second))
	}
	return w.health.err
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
