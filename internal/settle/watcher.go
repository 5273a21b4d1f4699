// Package settle follows a chain: it makes the stored transfers equal to those
// on the chain, and assesses the cards they pay for.
//
// It may import packages card, failpoint, panics and trace. It has no durable
// state: the cursor moves in the transaction that applies the transfers, so
// that after a crash the next Tick resumes at the cursor.
package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/trace"
)

// checkPoolEvery is the time between two comparisons of wallet and address
// pool. A comparison is valid for one minute.
const checkPoolEvery = 15 * time.Second

// Config configures a watcher.
type Config struct {
	// Reread is the number of newest applied blocks that are reread. A deeper
	// reorganization goes unnoticed, so it must be much larger than the number
	// of confirmations. Defaults to the coin's reorg horizon.
	Reread int64
	// CompareEvery is the time between two slices of rereading. A slice is a
	// twelfth of the Reread blocks, and ten older blocks with locked transfers,
	// in turn. A transfer that a wallet forgot is noticed within about
	// 12*CompareEvery. The first pass of a process rereads everything; later
	// passes read only new blocks and slices. Defaults to 5 s; if negative,
	// each pass rereads everything.
	CompareEvery time.Duration
	// PoolSize is the number of free addresses in the address pool. Defaults to
	// 200.
	PoolSize int
	// FillBatch is the maximum number of addresses made per pass. Defaults to
	// 64.
	FillBatch int
	// AddressRate limits the long-term rate of handing out addresses, per
	// second. An epoch skips as many as can have been handed out in the time
	// that the database may have lost. 0 means no limit and no skipping, for a
	// wallet that never makes an address twice.
	AddressRate float64
	// Beacon enables the wallet's beacon, so that two databases with the same
	// wallet detect each other.
	Beacon bool
	// Quiet is the pause of issuing after an epoch began, if there is a beacon.
	// It must be longer than two passes.
	Quiet time.Duration
	// LeaseTTL is how long the lease of a dead watcher lasts until another
	// replica takes over. Defaults to 3 s.
	LeaseTTL time.Duration
	// Replica is the name of this process, unique among all replicas. Defaults
	// to a random name.
	Replica string
	// Observe is called after each Tick. It must return quickly. Defaults to a
	// no-op.
	Observe func(Report)
	// Tracer starts a span for each pass that changes something, and for each
	// payment that becomes confirmed. Defaults to none.
	Tracer *trace.Tracer
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *Config) Validate() error {
	if c.PoolSize == 0 {
		c.PoolSize = 200
	}
	if c.FillBatch == 0 {
		c.FillBatch = 64
	}
	if c.CompareEvery == 0 {
		c.CompareEvery = 5 * time.Second
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 3 * time.Second
	}
	if c.Replica == "" {
		c.Replica = uuid.NewString()
	}
	if c.Observe == nil {
		c.Observe = func(Report) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.PoolSize < 1:
		return errors.New("the address pool must hold at least 1 address")
	case c.AddressRate < 0 || c.AddressRate > 1000:
		return errors.New("the rate of addresses must be between 0 and 1000 a second")
	case c.Reread < 0 || c.FillBatch < 1 || c.LeaseTTL < 0:
		return errors.New("blocks, addresses and times must be positive")
	}
	return nil
}

// Wake starts the next round of other loops. All fields are required.
type Wake struct {
	Pass   func() // this watcher, for another pass
	Orders func() // new addresses are available
	Issuer func() // cards must be issued
	Sender func() // events must be sent
}

// Watcher watches one chain. Every replica may run one; only the holder of the
// chain's lease works.
type Watcher struct {
	store    Store
	rates    Rates
	chain    Chain
	coin     card.Currency
	currency string // its code
	wake     Wake
	log      *slog.Logger
	cfg      Config

	mu       sync.Mutex // serializes Tick
	lease    *Lease
	leasedAt time.Time
	wonAt    time.Time // when the lease was acquired, by the database's clock
	began    time.Time // start of the last Tick
	// failingSince is the start of the current run of failed Ticks; zero if the
	// last one succeeded.
	failingSince time.Time
	failedAt     time.Time // last failed pass of this process; zero if the last one succeeded
	yieldedAt    time.Time // when this process last released the lease for a waiting one
	awaitedAt    time.Time // when this process last recorded that it waits for the lease
	pace         pace
	beacon       Beacon        // as read by this pass
	pending      *pendingEpoch // nil unless an epoch is about to begin
	runwayAt     int64         // newest address for which the wallet has its runway
	poolAt       time.Time     // last comparison of wallet and address pool
	known        []card.Tip    // applied tips that are still in the chain, newest first
	round        round
	seen         Report // of the current pass, or the last one
	// recoveredAt is the time of the last rescan, while its reason may persist.
	// The next automatic one waits for recoverEvery.
	recoveredAt time.Time

	health struct { // with its own mutex, so that Health responds while a Tick hangs
		sync.Mutex
		err error
		at  time.Time // end of the last Tick
	}
}

// New returns a watcher of chain. It returns an error if cfg is not valid.
func New(store Store, rates Rates, chain Chain, wake Wake, log *slog.Logger, cfg Config) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	coin := chain.Currency()
	if cfg.Reread == 0 {
		cfg.Reread = coin.ReorgHorizonBlocks()
	}
	w := &Watcher{store: store, rates: rates, chain: chain, coin: coin, currency: coin.Code, wake: wake, log: log,
		cfg:  cfg,
		pace: pace{cfg.AddressRate, cfg.FillBatch}, runwayAt: NoPosition}
	w.setHealth(errors.New("no pass has ended yet"))
	return w, nil
}

// Tick makes one pass over the chain: it reads the chain and applies the
// changes. If another replica holds the lease, it does nothing. Concurrent
// Ticks run one after the other.
func (w *Watcher) Tick(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	started := w.cfg.Now()
	w.seen, w.began = Report{}, time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a pass that panics may hold the lease
	standby, err := w.leadOrStandBy(ctx)
	if err == nil && !standby {
		err = panics.Call(func() error { return w.pass(ctx) })
	}
	if standby || errors.Is(err, card.ErrFenced) {
		w.dropLease(ctx)
	}
	if err != nil {
		err = w.handleError(ctx, err)
	}
	w.yieldLease(ctx, err)
	if cause := causeOf(err); cause != "" {
		err = cause.Wrap(err)
		w.seen.Cause = string(cause)
	}
	w.setHealth(err)
	w.seen.Err, w.seen.Leads, w.seen.Took = err, w.lease != nil, w.cfg.Now().Sub(started)
	w.cfg.Observe(w.seen)
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.currency, err)
	}
	return nil
}

// Mark renews the lease between two Ticks, and tries to acquire it while
// another replica has it. Call it every second. It does nothing while a Tick
// runs.
func (w *Watcher) Mark(ctx context.Context) error {
	if !w.mu.TryLock() {
		return nil
	}
	defer w.mu.Unlock()
	stoodBy := w.lease == nil
	if w.yielded() {
		return nil
	}
	err := w.keepLease(ctx)
	switch {
	case errors.Is(err, card.ErrFenced):
		w.dropLease(ctx)
		return nil
	case err == nil && stoodBy:
		w.wake.Pass()
	}
	return err
}

// handleError reacts to an error, and returns it.
func (w *Watcher) handleError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, card.ErrWrongChain):
		// Hand out no address until the right wallet is back.
		w.poolAt = time.Time{}
		return errors.Join(err, w.store.DistrustPool(ctx, w.currency))
	case errors.Is(err, card.ErrWalletLost):
		w.poolAt = time.Time{}
		if !w.recoveredAt.IsZero() {
			return errors.Join(err, w.store.NoteRescan(ctx, w.currency,
				"a rescan did not help: "+err.Error()+
					"; was the wallet restored from too late a height? If the money never came, or the wallet is right now: cardmint wallet rescan --believe"))
		}
		return errors.Join(err, w.store.RequestRescan(ctx, w.currency, err.Error()))
	}
	return err
}

// leadOrStandBy acquires or renews the lease. It reports whether this process
// stands by because another one has it.
func (w *Watcher) leadOrStandBy(ctx context.Context) (standby bool, err error) {
	if w.yielded() {
		return true, nil
	}
	err = w.keepLease(ctx)
	if !errors.Is(err, card.ErrFenced) {
		return false, err
	}
	now := w.cfg.Now()
	// A process whose own passes failed waits before it asks again. Otherwise
	// two processes that cannot reach their nodes would constantly take the
	// lease from each other.
	failed := !w.failedAt.IsZero() && now.Sub(w.failedAt) < retryAfterFailure
	if !failed && now.Sub(w.awaitedAt) >= w.cfg.LeaseTTL {
		if err := w.store.AwaitLease(ctx, LeaseName(w.currency), w.cfg.Replica, 3*w.cfg.LeaseTTL+awaitMargin); err != nil {
			w.log.WarnContext(ctx, "lease request not recorded", "error", err)
		}
		w.awaitedAt = now
	}
	return true, nil
}

// yieldFor is how long a process that yielded the lease does not acquire it:
// several times the interval of Mark.
const yieldFor = 3 * time.Second

// retryAfterFailure is how long a process whose passes failed does not ask for
// a lease that another process has.
const retryAfterFailure = time.Minute

// awaitMargin covers the longest pause between two Ticks of a standby.
const awaitMargin = 10 * time.Second

// yielded reports whether this process just yielded the lease to another one,
// which may not have acquired it yet.
func (w *Watcher) yielded() bool {
	return w.lease == nil && !w.yieldedAt.IsZero() && w.cfg.Now().Sub(w.yieldedAt) < yieldFor
}

// yieldLease releases the lease once passes have failed for LeaseTTL, if
// another process waits for it: it may reach the node, or have the right
// wallet.
func (w *Watcher) yieldLease(ctx context.Context, err error) {
	now := w.cfg.Now()
	if err == nil {
		w.failingSince = time.Time{}
		if w.lease != nil {
			w.failedAt = time.Time{}
		}
		return
	}
	if w.lease != nil {
		w.failedAt = now
	}
	if w.failingSince.IsZero() {
		w.failingSince = now
	}
	if w.lease == nil || now.Sub(w.failingSince) < w.cfg.LeaseTTL {
		return
	}
	awaited, err := w.store.LeaseAwaited(ctx, *w.lease)
	switch {
	case err != nil: // without the database, the lease has expired
		w.dropLease(ctx)
		return
	case !awaited:
		return
	}
	w.log.WarnContext(ctx, "lease yielded to a waiting worker: passes of this one fail", "currency", w.currency)
	if err := w.store.ReleaseLease(ctx, *w.lease); err != nil {
		w.log.WarnContext(ctx, "lease not released", "error", err)
	}
	w.dropLease(ctx)
	w.yieldedAt = now
}

// setHealth records the result of a Tick for Health.
func (w *Watcher) setHealth(err error) {
	w.health.Lock()
	defer w.health.Unlock()
	w.health.err, w.health.at = err, w.cfg.Now()
}

// Health returns an error if the chain is not being watched: the last Tick
// failed, or none has ended for a minute. The error is a card.Unready.
func (w *Watcher) Health() error {
	w.health.Lock()
	defer w.health.Unlock()
	since := w.cfg.Now().Sub(w.health.at)
	switch err := w.health.err; {
	case err == nil && since > time.Minute:
		return card.Unready("no pass has ended for " + since.Round(time.Second).String())
	case err == nil:
		return nil
	}
	why := cmp.Or(causeOf(w.health.err), "the last pass failed")
	return fmt.Errorf("%w: %w", why, w.health.err)
}

// causeOf returns why a pass failed, in public words from a fixed set; "" if
// unknown.
func causeOf(err error) card.Unready {
	reported, _ := errors.AsType[card.Unready](err)
	switch {
	case errors.Is(err, card.ErrWalletShared):
		return "another database uses the wallet: nothing is sold or issued until 'cardmint wallet claim' gives it to one of them"
	case errors.Is(err, card.ErrWrongChain):
		return "node or wallet is not the one that this database belongs to"
	case errors.Is(err, card.ErrWalletLost):
		return "the wallet lost data and must rescan the whole chain"
	case reported != "":
		return reported
	case errors.Is(err, card.ErrWrongAnswer):
		return "node or wallet gave an answer that cannot be right"
	case errors.Is(err, card.ErrImpossible):
		return "node or wallet shows more coins than there are"
	case errors.Is(err, card.ErrChainNotReady):
		return "node or wallet is not ready"
	case errors.Is(err, card.ErrUnavailable):
		return "the database can't be reached"
	}
	return ""
}

// Close releases the lease, so that another replica can take over immediately.
func (w *Watcher) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease == nil {
		return nil
	}
	l := *w.lease
	w.refreshBeaconAtExit(ctx)
	w.lease = nil
	w.log.InfoContext(ctx, "lease released", "currency", w.currency, "fence", l.Fence)
	return w.store.ReleaseLease(ctx, l)
}
