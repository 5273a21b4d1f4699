package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// A database can be rolled back: a backup is restored, a virtual machine is
// reset, a lagging standby is promoted. Customers then hold addresses that the
// database does not know. So the holder of a chain's lease attests with every
// mark that the database is unchanged. If it cannot know, as after a start, it
// begins an epoch: addresses that may have been handed out before stay watched,
// and are never handed out again.

// longestPause is the longest time between a worker's last mark and the start
// of the next worker that may continue the epoch.
const longestPause = time.Minute

// provesContinuity reports whether the holder of a new lease l may continue the
// last epoch: the database has lost nothing since a worker attested to it.
// pause is the time between the last mark and the acquisition of the lease.
// Marks alone prove nothing, because orders are committed between two marks,
// and for seconds after the last one. Each way to lose data fails one of the
// conditions:
//
//   - A restored dump, a replaced data directory, a promoted standby and a
//     second database are on another server, on this one after a restart, or in
//     another file: the previous worker recorded the server in the wallet,
//     outside of the database. So two databases never continue the same epoch.
//   - SQLite has no server that prevents the replacement of its file. There the
//     wallet must have run since the beacon was set, so that a restore of both
//     files shows. If the worker was killed while the wallet wrote its file,
//     the two cases look the same, and an epoch begins.
//   - If only the content of the tables was replaced, the wallet knows a later
//     mark, unless the backup is of the last pass.
//   - The snapshot of a machine with its memory is more than a minute old when
//     it resumes, by the database's clock.
//
// A worker killed between two writes leaves a beacon that is ahead of the
// database by the addresses of one batch, or behind it by the marks of one
// pass. Neither requires a new epoch. No address depends on this proof: an
// epoch that continues also skips every address that may have been handed out.
func (b Beacon) provesContinuity(pool Pool, l Lease, pause time.Duration) bool {
	return b.Epoch > 0 && b.Epoch == pool.LastEpoch &&
		l.Server != "" && b.Server == l.Server && (l.Serving || !b.Stored) &&
		!b.MarkedAt.After(l.MarkedAt) && pause <= longestPause
}

// pendingEpoch is an epoch that begins once the wallet has made the addresses
// it skips.
type pendingEpoch struct {
	target    int64         // newest address that may have been handed out
	from      int64         // newest known address
	back      bool          // the database was rolled back
	reset     bool          // it was, or may have been: event numbers must jump ahead
	continued bool          // it was not: the last epoch continues
	stale     bool          // it was, or another database has the newest state
	lacked    bool          // the wallet lacked the target address at first
	lost      time.Duration // upper limit of the time since the newest mark
	since     time.Time     // of the last mark; zero without one
	reason    string
	loggedAt  time.Time
}

// dbNow returns the time by the database's clock.
func (w *Watcher) dbNow() time.Time { return w.lease.Now.Add(w.cfg.Now().Sub(w.leasedAt)) }

// shared returns card.ErrWalletShared for a conflict that no operator has
// settled, and nil otherwise.
func (c Cursor) shared() error {
	if c.Conflict == "" || c.Conflict == Claimed {
		return nil
	}
	return fmt.Errorf("%w: %s", card.ErrWalletShared, c.Conflict)
}

// checkBeacon reads the beacon. The error is card.ErrWalletShared if another
// database uses the wallet, and card.ErrFenced if another replica holds the
// lease.
func (w *Watcher) checkBeacon(ctx context.Context, cursor Cursor) error {
	if w.cfg.Beacon {
		held, release := w.holdLease(ctx)
		b, err := w.chain.Beacon(held)
		if err := release(err); err != nil {
			return fmt.Errorf("read beacon: %w", err)
		}
		w.beacon = b
	}
	b, mine := w.beacon, w.lease.Epoch
	switch {
	case cursor.Conflict == Claimed: // the pass ends with a new epoch
		return nil
	case cursor.Conflict != "":
		return errors.Join(cursor.shared(), w.publishConflict(ctx))
	case mine == 0 && !b.Conflict, mine > 0 && b.Epoch <= mine && !b.Conflict:
		return nil
	}
	w.leasedAt = time.Time{}
	if err := w.keepLease(ctx); err != nil { // another process of this database has taken over
		return err
	}
	if err := w.publishConflict(ctx); err != nil {
		return err
	}
	why := fmt.Sprintf("the wallet carries epoch %d of another database; this one is in %d", b.Epoch, mine)
	if b.Epoch == mine {
		why = "another database uses the wallet, and has seen that this one does"
	}
	if err := w.store.NoteConflict(ctx, w.currency, why); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", card.ErrWalletShared, why)
}

// publishConflict sets the beacon's conflict flag while the beacon has the
// epoch of another database that may not know of the conflict. Every pass
// repeats it, because the other database may overwrite the beacon.
func (w *Watcher) publishConflict(ctx context.Context) error {
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	b := w.beacon
	if b.Epoch <= max(w.lease.Epoch, pool.LastEpoch) || b.Claimed || b.Conflict {
		return nil
	}
	b.Conflict = true
	return w.setBeacon(ctx, b, true)
}

// publishBeacon stores epoch, mark and the newest address that may be handed
// out in the wallet, durably.
func (w *Watcher) publishBeacon(ctx context.Context, pool Pool, last int64) error {
	if !w.cfg.Beacon {
		return nil
	}
	b := Beacon{Epoch: w.lease.Epoch, Position: last, PacedUntil: pool.PacedUntil, MarkedAt: w.lease.MarkedAt,
		Server: w.lease.Server}
	return w.setBeacon(ctx, b, true)
}

func (w *Watcher) setBeacon(ctx context.Context, b Beacon, durable bool) error {
	held, release := w.holdLease(ctx)
	b.Claimed = b.Claimed || w.beacon.Claimed && w.beacon.Epoch == b.Epoch
	if err := release(w.chain.SetBeacon(held, b, durable)); err != nil {
		return fmt.Errorf("set beacon: %w", err)
	}
	w.beacon = b
	return nil
}

// refreshBeacon updates the beacon's mark. The wallet may forget it when it
// restarts.
func (w *Watcher) refreshBeacon(ctx context.Context) error {
	if !w.cfg.Beacon {
		return nil
	}
	b, durable := w.beacon, false
	if b.Epoch != w.lease.Epoch { // the wallet was restored, or made again
		pool, err := w.store.AddressPool(ctx, w.currency)
		if err != nil {
			return err
		}
		b, durable = Beacon{Epoch: w.lease.Epoch, Position: pool.last(), PacedUntil: pool.PacedUntil}, true
	}
	b.MarkedAt, b.Server = w.lease.MarkedAt, w.lease.Server
	return w.setBeacon(ctx, b, durable)
}

// refreshBeaconAtExit stores the last mark in the wallet before the lease is
// released, if the next worker depends on it. The pass may have been canceled
// after the wallet wrote its file.
func (w *Watcher) refreshBeaconAtExit(ctx context.Context) {
	l := w.lease
	if !w.cfg.Beacon || l.Epoch == 0 || l.Serving {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	b, err := w.chain.Beacon(ctx)
	if err == nil && b.Epoch == l.Epoch && !b.Conflict {
		b.MarkedAt, b.Server = l.MarkedAt, l.Server
		err = w.chain.SetBeacon(ctx, b, false)
	}
	if err != nil {
		w.log.WarnContext(ctx, "beacon not refreshed at exit", "currency", w.currency, "error", err)
	}
}

// resetFeeds plans the pending epoch, if any, and advances the event numbers if
// the database may have gone back.
func (w *Watcher) resetFeeds(ctx context.Context, cursor Cursor) error {
	if w.lease.Epoch != 0 && cursor.Conflict != Claimed {
		return nil
	}
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	if p := w.pending; p == nil || p.continued && !w.continues(pool, cursor) {
		w.pending = w.planEpoch(pool, cursor)
	}
	if p := w.pending; p.reset && !p.since.IsZero() {
		if err := w.store.ResetFeeds(ctx, *w.lease, p.since); err != nil {
			return fmt.Errorf("reset feeds: %w", err)
		}
		p.reset = false
	}
	return nil
}

// beginEpoch begins the pending epoch. If the wallet still lacks addresses that
// the epoch skips, it makes some instead, and requests the next pass.
func (w *Watcher) beginEpoch(ctx context.Context, cursor Cursor) error {
	pool, err := w.store.AddressPool(ctx, w.currency)
	if err != nil {
		return err
	}
	p := w.pending
	if p == nil { // the lease was lost and acquired again during the pass
		w.wake.Pass()
		return nil
	}
	if p.target > p.from && !p.lacked {
		has, err := w.reserve(ctx, p.target, 0)
		if err != nil {
			return fmt.Errorf("skip addresses: %w", err)
		}
		p.lacked = !has
	}
	reached, err := w.skipAddresses(ctx, p)
	if err != nil || !reached {
		return err
	}
	e, b := w.newEpoch(p, pool)
	b.Claimed = cursor.Conflict == Claimed
	if w.cfg.Beacon {
		if err := w.setBeacon(ctx, b, true); err != nil {
			return err
		}
	}
	l, err := w.store.BeginEpoch(ctx, *w.lease, e)
	if err != nil {
		return fmt.Errorf("begin epoch: %w", err)
	}
	w.logEpoch(ctx, e, p)
	w.lease, w.leasedAt, w.pending = &l, w.cfg.Now(), nil
	if err := w.requestRescan(ctx, p); err != nil {
		return err
	}
	return w.fillPool(ctx)
}

// newEpoch returns the pending epoch, and its beacon.
func (w *Watcher) newEpoch(p *pendingEpoch, pool Pool) (Epoch, Beacon) {
	now := w.dbNow()
	number, markedAt := max(now.UnixMilli(), pool.LastEpoch+1, w.beacon.Epoch+1), now
	if p.continued {
		number, markedAt = pool.LastEpoch, w.lease.MarkedAt // no later than the database's, should this process end now
	}
	paced := pool.PacedUntil
	if p.target > p.from {
		paced = w.pace.spent(now) // as if the lost time had used the whole rate
	}
	e := Epoch{Currency: w.currency, Number: number, First: p.target + 1, PacedUntil: paced, Stale: p.stale,
		Reason: p.reason, Continued: p.continued}
	if w.cfg.Beacon {
		e.Quiet = w.cfg.Quiet
	}
	return e, Beacon{Epoch: number, Position: p.target, PacedUntil: paced, MarkedAt: markedAt, Server: w.lease.Server}
}

func (w *Watcher) logEpoch(ctx context.Context, e Epoch, p *pendingEpoch) {
	event := "epoch began"
	if e.Continued {
		event = "epoch continued"
	}
	w.log.InfoContext(ctx, event, "currency", w.currency, "epoch", e.Number, "reason", e.Reason,
		"skipped", p.target-p.from)
	if e.Stale {
		w.log.WarnContext(ctx, "cards in stock held until 'cardmint stock release': "+
			"the database may not know of all that were given out", "currency", w.currency, "reason", e.Reason)
	}
}

// requestRescan requests a rescan if the wallet may have scanned blocks before
// it recreated the addresses that they pay to, which happens if it was restored
// together with the database. There may be no evidence of that. But a wallet
// that ran until some minutes ago has the addresses of the next ten minutes,
// unless it was about to make them; after a longer time without a worker, any
// wallet lacks addresses.
func (w *Watcher) requestRescan(ctx context.Context, p *pendingEpoch) error {
	switch {
	case !p.lacked:
		return nil
	case p.back:
		return w.store.RequestRescan(ctx, w.currency,
			"the wallet went back with the database, and may have missed payments to addresses that it made again")
	case p.lost < runwaySeconds*time.Second:
		return w.store.RequestRescan(ctx, w.currency,
			"the wallet lacked addresses of the last minutes; if it was restored, it may have missed payments to them")
	}
	w.log.WarnContext(ctx,
		"wallet made addresses that it may have made before; if it was restored, it may have missed payments to them: "+
			"run 'cardmint wallet rescan'", "currency", w.currency, "after", p.from, "up_to", p.target)
	return nil
}

// continues reports whether the last epoch continues.
func (w *Watcher) continues(pool Pool, cursor Cursor) bool {
	return w.cfg.Beacon && cursor.Conflict == "" && !cursor.Restored && !w.lease.WentBack &&
		w.beacon.provesContinuity(pool, *w.lease, w.wonAt.Sub(w.lease.MarkedAt))
}

// planEpoch decides which addresses an epoch skips, and whether the database
// was rolled back.
func (w *Watcher) planEpoch(pool Pool, cursor Cursor) *pendingEpoch {
	b, l := w.beacon, w.lease
	p := &pendingEpoch{from: max(pool.last(), b.Position), since: l.MarkedAt,
		reason: "the watcher started, or the one before it ended"}
	if b.Epoch == 0 {
		p.from = pool.last()
	}
	if pool.LastEpoch == 0 && b.Epoch == 0 {
		p.reason = "the first one"
	}
	then, paced := l.MarkedAt, pool.PacedUntil
	if b.MarkedAt.After(then) {
		then, paced = b.MarkedAt, b.PacedUntil
	}
	p.target = p.from
	if p.from != NoPosition && !then.IsZero() {
		p.target += w.pace.since(paced, then, w.dbNow())
		p.lost = w.dbNow().Sub(then)
	}
	switch {
	case cursor.Conflict == Claimed:
		p.reason = "an operator claimed the wallet"
		p.reset, p.stale = true, true
	case l.WentBack:
		p.reason, p.reset, p.back, p.stale = "the database went back, or another one took its place", true, true, true
	case w.continues(pool, cursor):
		p.reason, p.continued = "the worker started, and nothing was lost since the one before it ended", true
	case b.Epoch > pool.LastEpoch, b.Epoch == pool.LastEpoch && b.Epoch > 0 &&
		(b.MarkedAt.After(l.MarkedAt) || b.Position > pool.last()):
		p.reason, p.reset, p.stale = "the wallet knows a later time than the database", true, true
	case cursor.Restored:
		p.reason, p.reset, p.back, p.stale = "the database was restored", true, true, true
	case w.cfg.Beacon && !l.MarkedAt.IsZero():
		p.reason, p.reset = "nothing proves that database and wallet are as they were", true
	}
	return p
}

// skipAddresses makes the wallet's addresses up to the target, a batch per
// pass. It reports whether the wallet has them all.
func (w *Watcher) skipAddresses(ctx context.Context, p *pendingEpoch) (bool, error) {
	if p.target == p.from {
		return true, nil
	}
	reached, err := w.reserve(ctx, p.target, w.cfg.FillBatch)
	if err != nil {
		return false, fmt.Errorf("skip addresses: %w", err)
	}
	if reached {
		return true, nil
	}
	if now := w.cfg.Now(); now.Sub(p.loggedAt) > 10*time.Second {
		p.loggedAt = now
		w.log.InfoContext(ctx,
			"wallet is making addresses that may have been handed out before; no cards are sold until then", "currency",
			w.currency,
			"up_to", p.target)
	}
	w.wake.Pass()
	return false, nil
}
