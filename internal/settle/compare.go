package settle

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	slicesPerRound = 12 // in which the newest applied blocks are compared
	lockedPerSlice = 10 // older blocks with locked transfers, beside each slice
)

// round is how far what was applied has been compared with the chain. It is of
// no use to another process, whose first pass compares everything.
type round struct {
	at     time.Time // when a pass last compared; zero if none has
	blocks int64     // the newest blocks are compared up to this height
	locked int64     // and the older ones with locked transfers up to this
}

// nextQuery returns what a pass asks the chain, and the round once that is applied.
// A pass reads what may have changed since the last one; what a wallet forgot
// below that, and that a lock ended, is found by comparing.
func (w *Watcher) nextQuery(ctx context.Context, cursor Cursor) (Query, round, error) {
	if cursor.Tip.Hash != "" && (len(w.known) == 0 || w.known[0].Hash != cursor.Tip.Hash) {
		w.known = []card.Tip{cursor.Tip} // another process has moved the cursor
		if cursor.Deep.Hash != "" {
			w.known = append(w.known, cursor.Deep)
		}
	}
	now, tip := w.cfg.Now(), cursor.Tip.Height
	q := Query{Known: w.known, Since: tip, Newest: cursor.Newest}
	everything := round{at: now, blocks: tip}
	switch {
	case cursor.Rescan != "":
		q.Since = 0
		return q, everything, nil
	case w.cfg.CompareEvery < 0, w.round.at.IsZero():
		q.Since = w.lowestReread(cursor)
		return q, everything, nil
	case now.Sub(w.round.at) < w.cfg.CompareEvery:
		return q, w.round, nil
	}
	next, err := w.nextSlice(ctx, cursor, &q)
	next.at = now
	return q, next, err
}

// lowestReread returns the height above which everything is that is compared.
func (w *Watcher) lowestReread(cursor Cursor) int64 {
	since := cursor.Tip.Height - w.cfg.Reread
	if cursor.LowestLocked > 0 { // a locked transfer must be read again until it is unlocked
		since = min(since, cursor.LowestLocked-1)
	}
	return max(0, since)
}

// nextSlice adds the blocks whose turn it is to a query, and returns the round once
// they are compared. Another process may have moved the cursor since this one
// compared, by any number of blocks.
func (w *Watcher) nextSlice(ctx context.Context, cursor Cursor, q *Query) (round, error) {
	tip := cursor.Tip.Height
	below := max(0, tip-w.cfg.Reread)
	from := max(w.round.blocks, below)
	if from >= tip {
		from = below
	}
	newest := Blocks{from + 1, min(tip, from+(w.cfg.Reread+slicesPerRound-1)/slicesPerRound)}
	older := Blocks{max(w.round.locked, tip-w.coin.LockHorizonBlocks()) + 1, below}
	heights, err := w.store.LockedBlocks(ctx, w.currency, older, lockedPerSlice)
	if err != nil {
		return round{}, err
	}
	next := round{blocks: newest.Last}
	if len(heights) == lockedPerSlice {
		next.locked = heights[lockedPerSlice-1]
	}
	for _, h := range heights {
		if n := len(q.Again); n > 0 && q.Again[n-1].Last == h-1 {
			q.Again[n-1].Last = h
		} else {
			q.Again = append(q.Again, Blocks{h, h})
		}
	}
	q.Again = append(q.Again, newest)
	return next, nil
}
