package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// compareWallet returns card.ErrWalletLost if the wallet lacks the newest
// stored address.
func (w *Watcher) compareWallet(ctx context.Context) error {
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil || pool.Newest == nil {
		return err
	}
	held, release := w.holdLease(ctx)
	err = release(w.chain.Holds(held, *pool.Newest))
	if errors.Is(err, card.ErrWalletLost) {
		w.recoveredAt = time.Time{} // the rescan made the addresses again, so this loss is newer
	}
	if err != nil {
		return fmt.Errorf("check address pool: %w", err)
	}
	return nil
}

// trustPool records a pass that compared the wallet with the address pool and
// succeeded. Addresses are handed out only within a minute after that.
func (w *Watcher) trustPool(ctx context.Context) error {
	err := w.store.SettleTx(ctx, func(tx Tx) error {
		if err := tx.CheckLease(ctx, *w.lease); err != nil {
			return err
		}
		return tx.CheckedPool(ctx, w.currency)
	})
	if err == nil {
		w.poolAt = w.cfg.Now()
	}
	return err
}

// fillPool makes new addresses until enough are free: at most one batch per
// pass, within the address rate. After a full batch it requests the next pass,
// which reads the chain first.
//
// It returns card.ErrWalletLost if a new address is not newer than all stored
// ones: the wallet has forgotten those. This is the last chance to notice,
// because the wallet now has addresses in those positions again.
func (w *Watcher) fillPool(ctx context.Context) error {
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	now := w.dbNow()
	n := min(w.cfg.PoolSize-pool.Free, w.cfg.FillBatch, w.pace.allows(pool.PacedUntil, now))
	if n <= 0 {
		return w.makeRunway(ctx, pool)
	}
	after := pool.last()
	held, release := w.holdLease(ctx)
	fresh, err := w.chain.NewAddresses(held, after, n)
	if err := release(err); err != nil {
		return fmt.Errorf("make addresses: %w", err)
	}
	for _, a := range fresh {
		if a.Position <= after {
			return fmt.Errorf("%w: it made address %d again, but %d was stored", card.ErrWalletLost, a.Position, after)
		}
	}
	pool.PacedUntil = w.pace.after(pool.PacedUntil, now, n)
	if err := w.publishBeacon(ctx, pool, fresh[n-1].Position); err != nil {
		return err
	}
	err = w.store.SettleTx(ctx, func(tx Tx) error {
		if err := tx.CheckLease(ctx, *w.lease); err != nil {
			return err
		}
		return tx.InsertAddresses(ctx, fresh, pool.PacedUntil)
	})
	if err != nil {
		return fmt.Errorf("store addresses: %w", err)
	}
	w.wake.Orders()
	if n == w.cfg.FillBatch {
		w.wake.Pass()
		return nil
	}
	pool.Newest = &fresh[n-1] // under constant load the pool is never full
	return w.makeRunway(ctx, pool)
}

// reserve makes up to n of the wallet's addresses up to upTo, and reports
// whether the wallet has the last one.
func (w *Watcher) reserve(ctx context.Context, upTo int64, n int) (bool, error) {
	held, release := w.holdLease(ctx)
	reached, err := w.chain.Reserve(held, upTo, n)
	return reached, release(err)
}

// Limits of makeRunway in one pass.
const (
	runwayBatches = 8
	runwayTime    = time.Second
)

// makeRunway makes more addresses in the wallet than are stored. The wallet
// then sees payments to addresses that were handed out in a lost period, and an
// epoch that skips them begins immediately.
func (w *Watcher) makeRunway(ctx context.Context, pool Pool) error {
	if w.pace.perSecond == 0 || w.runwayAt == pool.last() {
		return nil
	}
	started := time.Now()
	for n := 0; n < runwayBatches && time.Since(started) < runwayTime; n++ {
		reached, err := w.reserve(ctx, pool.last()+w.pace.runway(), w.cfg.FillBatch)
		if err != nil {
			return fmt.Errorf("make addresses ahead: %w", err)
		}
		if reached {
			w.runwayAt = pool.last()
			break
		}
	}
	return nil
}

// last returns the position of the newest address that may have been handed
// out; NoPosition if there is none.
func (p Pool) last() int64 {
	last := p.Next - 1
	if p.Newest != nil {
		last = max(last, p.Newest.Position)
	}
	return last
}

// pace limits the rate of new addresses, so that the number made in a lost
// period is bounded. It is the generic cell rate algorithm (ITU-T I.371) with
// Pool.PacedUntil as its only state.
type pace struct {
	perSecond float64 // 0 for no limit
	burst     int
}

// interval is the time per address at the highest rate.
func (p pace) interval() time.Duration { return time.Duration(float64(time.Second) / p.perSecond) }

// from returns PacedUntil, but no earlier than the start of an unused burst.
func (p pace) from(until, now time.Time) time.Time {
	full := now.Add(-time.Duration(p.burst) * p.interval())
	if used := until.Add(-time.Duration(p.burst) * p.interval()); used.After(full) {
		return used
	}
	return full
}

// allows returns the number of addresses that may be made now.
func (p pace) allows(until, now time.Time) int {
	if p.perSecond == 0 {
		return 1 << 30
	}
	return max(0, int(now.Sub(p.from(until, now))/p.interval()))
}

// spent returns PacedUntil for a used-up burst.
func (p pace) spent(now time.Time) time.Time { return now.Add(time.Duration(p.burst) * p.interval()) }

// after returns PacedUntil after n more addresses.
func (p pace) after(until, now time.Time, n int) time.Time {
	if p.perSecond == 0 {
		return until
	}
	return p.from(until, now).Add(time.Duration(n+p.burst) * p.interval())
}

// since returns how many addresses can have been made from then, when
// PacedUntil was until, to now.
func (p pace) since(until, then, now time.Time) int64 {
	if p.perSecond == 0 {
		return 0
	}
	return int64(max(0, now.Sub(p.from(until, then)))/p.interval()) + 1
}

// runwaySeconds is the lost time that a runway covers.
const runwaySeconds = 600

// runway returns the number of addresses that a wallet has beyond the stored
// ones.
func (p pace) runway() int64 { return int64(p.perSecond*runwaySeconds) + int64(p.burst) }
