package settle

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	slicesPerRound = 12 // for the newest applied blocks
	lockedPerSlice = 10 // older blocks with locked transfers, per slice
)

// round is the progress of rereading applied blocks. Another process does not
// need it: its first pass rereads everything.
type round struct {
	at     time.Time // of the last reread; zero before the first
	blocks int64     // the newest blocks were reread up to this height
	locked int64     // and the older ones with locked transfers up to this one
}

// nextQuery returns the query of a pass, and the round once its view is
// applied. A pass reads the blocks that may have changed. Rereading older
// blocks finds transfers that a wallet forgot, and locks that ended.
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

// lowestReread returns the height above which all blocks are reread.
func (w *Watcher) lowestReread(cursor Cursor) int64 {
	since := cursor.Tip.Height - w.cfg.Reread
	if cursor.LowestLocked > 0 { // a locked transfer must be reread until it is unlocked
		since = min(since, cursor.LowestLocked-1)
	}
	return max(0, since)
}

// nextSlice adds the next slice of old blocks to a query, and returns the round
// after it. Another process may have moved the cursor by any number of blocks
// in between.
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
