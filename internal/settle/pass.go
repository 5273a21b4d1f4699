package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
	"github.com/cardmint/cardmint/internal/panics"
)

// pass makes one pass over the chain: it scans the chain, compares the wallet,
// applies the view in one transaction, and fills the address pool. The caller
// must hold the lease.
func (w *Watcher) pass(ctx context.Context) error {
	cursor, err := w.store.Cursor(ctx, w.coin)
	if err != nil {
		return err
	}
	view, round, err := w.scan(ctx, cursor)
	if err != nil {
		return errors.Join(cursor.shared(), err)
	}
	if err := w.checkBeacon(ctx, cursor); err != nil {
		return err
	}
	if err := w.resetFeeds(ctx, cursor); err != nil { // before apply numbers events
		return err
	}
	checkPool := w.cfg.Now().Sub(w.poolAt) >= checkPoolEvery
	// Compare before apply: the view of a wallet that lost addresses lacks the
	// payments to them. Do not compare a wrong wallet: apply rejects it.
	if rightWallet := cursor.Fingerprint == "" || cursor.Fingerprint == view.Fingerprint; checkPool && rightWallet {
		if err := w.compareWallet(ctx); err != nil {
			return err
		}
	}
	if err := w.keepLease(ctx); err != nil { // apply's transaction does not renew it
		return err
	}
	applied, err := w.apply(ctx, cursor, view)
	if err != nil {
		return fmt.Errorf("apply view: %w", err)
	}
	w.rememberTips(view)
	w.round = round
	w.seen.Applied, w.seen.Tip, w.seen.Transfers = true, view.Tip, applied.transfers
	if cursor.Fingerprint != "" {
		w.seen.Behind = view.Tip.Height - cursor.Tip.Height
	}
	w.report(ctx, view, applied)
	if checkPool {
		if err := w.trustPool(ctx); err != nil {
			return err
		}
	}
	if w.lease.Epoch == 0 || cursor.Conflict == Claimed {
		return w.beginEpoch(ctx, cursor)
	}
	if err := w.refreshBeacon(ctx); err != nil {
		return err
	}
	return w.fillPool(ctx)
}

// scan returns a view of the chain, and the round that is complete once the
// view is applied. If a rescan was requested, the wallet rescans first.
func (w *Watcher) scan(ctx context.Context, cursor Cursor) (View, round, error) {
	if err := w.rescanWallet(ctx, cursor); err != nil {
		return View{}, round{}, err
	}
	query, next, err := w.nextQuery(ctx, cursor)
	if err != nil {
		return View{}, round{}, err
	}
	view, err := w.readView(ctx, cursor, query)
	return view, next, err
}

// readView returns a view of the chain. The error is card.ErrWalletLost if a
// reorganization was too deep for the wallet.
func (w *Watcher) readView(ctx context.Context, cursor Cursor, query Query) (View, error) {
	held, release := w.holdLease(ctx)
	view, err := w.chain.Scan(held, query)
	if err := release(err); err != nil {
		return View{}, err
	}
	if cursor.Deep.Hash != "" && view.Kept < cursor.Deep.Height && cursor.Rescan == "" {
		return View{}, fmt.Errorf("%w: the chain reorganized below block %d, deeper than the wallet can follow",
			card.ErrWalletLost, cursor.Deep.Height)
	}
	return view, nil
}

// rememberTips keeps the applied tips among the last Reread blocks that are
// still in the chain. The next scan uses them to measure the depth of a
// reorganization.
func (w *Watcher) rememberTips(v View) {
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

// applied is the effect of a view.
type applied struct {
	transfers    int            // new, changed or removed
	unattributed int            // counted among these, but toward no card
	cards        int            // assessed
	paid         int            // to be issued
	transitions  []card.Verdict // of cards whose payment state changed, or that have an event
}

// apply makes the stored transfers equal to the view, assesses the affected
// cards, and moves the cursor, in one transaction. Its cost depends on the
// number of changes, not on the number of open cards.
//
// It changes nothing if it fails with
//   - card.ErrWrongChain: the view is of another network or wallet;
//   - card.ErrChainNotReady: the chain is shorter than the cursor;
//   - card.ErrWalletLost: a transfer is missing or different, although its
//     block is still in the chain;
//   - card.ErrImpossible: an address or a card received more coins than exist;
//   - card.ErrFenced: the lease was lost.
func (w *Watcher) apply(ctx context.Context, cursor Cursor, v View) (applied, error) {
	if cursor.Fingerprint != "" && cursor.Fingerprint != v.Fingerprint {
		return applied{}, fmt.Errorf("%w: %q, not %q", card.ErrWrongChain, v.Fingerprint, cursor.Fingerprint)
	}
	if v.Tip.Height < cursor.Tip.Height {
		return applied{}, fmt.Errorf("%w: its height is %d, but %d was applied", card.ErrChainNotReady, v.Tip.Height,
			cursor.Tip.Height)
	}
	if err := w.checkAmounts(v); err != nil {
		return applied{}, err
	}
	// A miner's clock may be ahead, which must not expire cards, or behind,
	// which must not reopen them.
	if now := w.cfg.Now(); v.Tip.Time.After(now) {
		v.Tip.Time = now
	}
	if v.Tip.Time.Before(cursor.Tip.Time) {
		v.Tip.Time = cursor.Tip.Time
	}
	var done applied
	err := w.store.SettleTx(ctx, func(tx Tx) error {
		done = applied{}
		if err := tx.CheckLease(ctx, *w.lease); err != nil {
			return err
		}
		changed, err := applyTransfers(ctx, tx, w.currency, cursor, v)
		if err != nil {
			return err
		}
		done.transfers = len(changed)
		if err := moveCursor(ctx, tx, w.currency, cursor, v); err != nil {
			return err
		}
		err = w.assess(ctx, tx, v.Tip, changed, &done)
		if done.paid > 0 {
			failpoint.Hit(failpoint.Applying)
		}
		return err
	})
	if err == nil && done.paid > 0 {
		failpoint.Hit(failpoint.Applied)
	}
	return done, err
}

// checkAmounts returns card.ErrImpossible if an address received more coins
// than exist. Nothing in such a view can be trusted.
func (w *Watcher) checkAmounts(v View) error {
	byAddress := make(map[string][]card.Transfer, len(v.Transfers))
	for _, t := range v.Transfers {
		t.Counted = true
		byAddress[t.Address] = append(byAddress[t.Address], t)
	}
	for address, ts := range byAddress {
		if err := w.coin.CheckTotal(ts); err != nil {
			return fmt.Errorf("%w: %s", err, address)
		}
	}
	return nil
}

type transferKey struct {
	txid   string
	output int64
}

func keyOf(t card.Transfer) transferKey { return transferKey{t.TxID, t.Output} }

// applyTransfers stores new and changed transfers, un-counts the missing ones,
// and returns all of them. A new transfer was first seen no earlier than the
// cursor's block: a miner may backdate a block by an hour or two.
func applyTransfers(ctx context.Context, tx Tx, currency string, cursor Cursor, v View) ([]card.Transfer, error) {
	read, unread, err := storedTransfers(ctx, tx, currency, v)
	if err != nil {
		return nil, err
	}
	var changed []card.Transfer
	seen := make(map[transferKey]bool, len(v.Transfers))
	for _, t := range v.Transfers {
		t.Counted = true
		if t.FirstSeenAt.Before(cursor.Tip.Time) {
			t.FirstSeenAt = cursor.Tip.Time
		}
		key := keyOf(t)
		if seen[key] {
			return nil, fmt.Errorf("transfer %s/%d appears twice in one view", t.TxID, t.Output)
		}
		seen[key] = true
		old, known := read[key]
		delete(read, key)
		if !known {
			if old, known = unread[key]; known && lingersInMempool(old, t) {
				continue
			}
		}
		if known && !cursor.Believe {
			if err := validateTransfer(old, t, cursor, v); err != nil {
				return nil, err
			}
		}
		same := known && old.Address == t.Address && old.Amount == t.Amount && old.Height == t.Height &&
			old.Locked == t.Locked
		if !same {
			changed = append(changed, t)
		}
	}
	for _, t := range read { // the rest is missing from the view
		if t.Height > 0 && t.Height <= v.Kept && !cursor.Believe {
			return nil, fmt.Errorf("%w: it no longer shows transaction %s of block %d, which is still in the chain",
				card.ErrWalletLost, t.TxID, t.Height)
		}
		t.Counted = false
		changed = append(changed, t)
	}
	return changed, tx.UpsertTransfers(ctx, changed)
}

// storedTransfers returns the stored transfers in the mempool and in the blocks
// that the view covers (read), and the view's transactions that are stored in
// other blocks (unread).
func storedTransfers(
	ctx context.Context, tx Tx, currency string, v View,
) (read, unread map[transferKey]card.Transfer, err error) {
	stored, err := tx.TransfersIn(ctx, currency, v.Since, v.Again)
	if err != nil {
		return nil, nil, err
	}
	read = make(map[transferKey]card.Transfer, len(stored))
	for _, t := range stored {
		read[keyOf(t)] = t
	}
	var others []string
	for _, t := range v.Transfers {
		if _, known := read[keyOf(t)]; !known {
			others = append(others, t.TxID)
		}
	}
	slices.Sort(others)
	if stored, err = tx.TransfersOf(ctx, currency, slices.Compact(others)); err != nil {
		return nil, nil, err
	}
	unread = make(map[transferKey]card.Transfer, len(stored))
	for _, t := range stored {
		unread[keyOf(t)] = t
	}
	return read, unread, nil
}

// moveCursor moves the cursor to the view's tip, and ends a rescan if the view
// covers the whole chain.
func moveCursor(ctx context.Context, tx Tx, currency string, cursor Cursor, v View) error {
	// Save a changed time, too: apply caps the time of a block from the future
	// at the present, and cards are assessed at the saved time between passes.
	if v.Tip.Hash != cursor.Tip.Hash || v.Tip.Time.UnixMilli() != cursor.Tip.Time.UnixMilli() {
		deep := v.Deep
		if deep.Hash == "" {
			deep = cursor.Deep
		}
		if err := tx.SaveCursor(ctx, currency, Cursor{Fingerprint: v.Fingerprint, Tip: v.Tip, Deep: deep}); err != nil {
			return err
		}
	}
	if cursor.Rescan != "" && v.Since == 0 {
		return tx.EndRescan(ctx, currency)
	}
	return nil
}

// assess assesses the cards that a changed transfer or the new tip affects, and
// stores the verdicts.
func (w *Watcher) assess(ctx context.Context, tx Tx, tip card.Tip, changed []card.Transfer, done *applied) error {
	touched := make([]string, len(changed))
	for i, t := range changed {
		touched[i] = t.Address
	}
	slices.Sort(touched)
	cards, err := tx.LockCards(ctx, w.currency, slices.Compact(touched), tip)
	if err != nil {
		return err
	}
	owned := make(map[string]bool, len(cards))
	addresses := make([]string, len(cards))
	for i, c := range cards {
		addresses[i], owned[c.Address] = c.Address, true
	}
	facts, err := tx.TransfersTo(ctx, w.currency, addresses)
	if err != nil {
		return err
	}
	byAddress := make(map[string][]card.Transfer, len(cards))
	credited := make(map[transferKey]bool, len(facts))
	for _, t := range facts {
		byAddress[t.Address] = append(byAddress[t.Address], t)
		credited[keyOf(t)] = true
	}
	for _, t := range changed {
		if t.Counted && !owned[t.Address] && !credited[keyOf(t)] {
			done.unattributed++
		}
	}
	today, _ := w.rates.Rate(w.currency) // without a rate, late money waits
	verdicts := make([]card.Verdict, len(cards))
	for i, c := range cards {
		if err := w.coin.CheckTotal(byAddress[c.Address]); err != nil { // including earlier views and attributions
			return fmt.Errorf("%w: card %s", err, c.UUID)
		}
		v := w.judge(ctx, c, byAddress[c.Address], tip, today)
		verdicts[i] = v
		if v.Issue {
			done.paid++
		}
		if v.Card.State != v.Assessment.State || v.Event != nil {
			done.transitions = append(done.transitions, v)
		}
	}
	done.cards = len(cards)
	return tx.SaveVerdicts(ctx, verdicts)
}

// judge returns the verdict on a card. After a panic the verdict changes
// nothing, and the card is assessed again with the next block.
func (w *Watcher) judge(ctx context.Context, c *card.Card, transfers []card.Transfer, tip card.Tip,
	today card.Rate) (v card.Verdict) {
	err := panics.Call(func() error {
		v = card.Judge(c, transfers, tip, today, uuid.Must(uuid.NewV7()))
		return nil
	})
	if err != nil {
		w.log.ErrorContext(ctx, "card assessment failed", "card", c.UUID, "error", err, panics.Stack(err))
		v = card.Verdict{Card: c,
			Assessment: card.Assessment{State: c.State, Received: c.Received, Settled: c.Settled, Height: c.Height,
				Credit: c.Credit, ReadyHeight: tip.Height + 1}}
	}
	return v
}

// report logs the effect of a view, and wakes the loops that have work now.
func (w *Watcher) report(ctx context.Context, view View, done applied) {
	if done.transfers > 0 || done.paid > 0 {
		w.log.InfoContext(ctx, "chain applied", "currency", w.currency, "height", view.Tip.Height, "transfers",
			done.transfers,
			"unattributed", done.unattributed, "cards", done.cards, "paid", done.paid)
	}
	if done.unattributed > 0 {
		w.log.WarnContext(ctx, "payments to addresses without a card", "currency", w.currency, "transfers", done.unattributed)
	}
	w.logTransitions(ctx, done)
	if done.cards > 0 {
		w.wake.Sender()
	}
	if done.paid > 0 {
		w.wake.Issuer()
	}
}
