// Package settle is what a chain does to cards: it follows the chain, makes the stored facts equal to it, and assesses the cards.
//
// It may import package card only. It keeps nothing: after a crash the next Tick reads the chain again from where the cursor,
// which moves in the transaction that applies the facts, was left.
package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// checkPoolEvery is well below the minute for which a comparison of wallet and pool is believed.
const checkPoolEvery = 15 * time.Second

// Config is how a watcher works.
type Config struct {
	// Reread is how many blocks below the applied tip are read again in every pass. A reorganisation that is deeper than this is
	// not noticed, so it must exceed the deepest confirmations by far. Defaults to the coin's reorg horizon.
	Reread int64
	// PoolSize is how many free addresses are kept ahead. Defaults to 1000.
	PoolSize int
	// FillBatch is how many addresses are made in one pass at most. Defaults to 64.
	FillBatch int
	// LeaseTTL is how long another replica waits before it takes over a chain whose watcher died. Defaults to 30 s.
	LeaseTTL time.Duration
	// Replica names this process among all; it must be unique. Defaults to a random name.
	Replica string
	Now     func() time.Time // Defaults to time.Now.
}

// Validate reports what is wrong, and fills in the defaults.
func (c *Config) Validate() error {
	if c.PoolSize == 0 {
		c.PoolSize = 1000
	}
	if c.FillBatch == 0 {
		c.FillBatch = 64
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 30 * time.Second
	}
	if c.Replica == "" {
		c.Replica = uuid.NewString()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.PoolSize < 1:
		return errors.New("the address pool must hold at least 1 address")
	case c.Reread < 0 || c.FillBatch < 1 || c.LeaseTTL < 0:
		return errors.New("blocks, addresses and times must be positive")
	}
	return nil
}

// Wake tells other loops that there is work for them. Every field must be set.
type Wake struct {
	Pass   func() // this watcher: the next pass should follow at once
	Issuer func() // cards are to be issued
	Sender func() // events are to be sent
}

// Watcher watches one chain. Of all replicas that have one, one works at a time.
type Watcher struct {
	store    Store
	rates    Rates
	chain    Chain
	coin     card.Currency
	currency string // its code
	wake     Wake
	log      *slog.Logger
	cfg      Config

	mu       sync.Mutex // one Tick at a time
	lease    *Lease
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
func New(store Store, rates Rates, chain Chain, wake Wake, log *slog.Logger, cfg Config) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	coin := chain.Currency()
	if cfg.Reread == 0 {
		cfg.Reread = coin.ReorgHorizonBlocks()
	}
	w := &Watcher{store: store, rates: rates, chain: chain, coin: coin, currency: coin.Code, wake: wake, log: log, cfg: cfg}
	w.note(errors.New("has not looked yet"))
	return w, nil
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
	w.note(err)
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.currency, err)
	}
	return nil
}

// react does what an error calls for, and returns it.
func (w *Watcher) react(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, card.ErrWrongChain):
		// Whatever is there: an address that is handed out now might not be ours.
		w.poolAt = time.Time{}
		return errors.Join(err, w.store.DistrustPool(ctx, w.currency))
	case errors.Is(err, card.ErrWalletLost):
		w.poolAt = time.Time{}
		if !w.recoveredAt.IsZero() {
			return errors.Join(err, w.store.NoteRescan(ctx, w.currency,
				"the wallet looked through the whole chain, and still: "+err.Error()+"; is the height too late from which it was restored? If the money never came: cardmint wallet rescan --believe"))
		}
		return errors.Join(err, w.store.RequestRescan(ctx, w.currency, err.Error(), false))
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
		if err := w.store.ReleaseLease(ctx, *w.lease); err != nil {
			w.log.WarnContext(ctx, "release lease", "error", err)
		}
		w.lease = nil
	}
}

func (w *Watcher) note(err error) {
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
	return w.store.ReleaseLease(ctx, l)
}
