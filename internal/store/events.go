package store

import (
	"bytes"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// InsertEvents implements card.Tx. The account's row is locked from here to the end of the transaction, which is what makes
// seq gap-free in the order of commits; accounts are taken in the order of their ids.
func (t *tx) InsertEvents(ctx context.Context, es []card.Event) error {
	es = slices.Clone(es)
	slices.SortStableFunc(es, func(a, b card.Event) int { return bytes.Compare(a.AccountID[:], b.AccountID[:]) })
	for start := 0; start < len(es); {
		end := start + 1
		for end < len(es) && es[end].AccountID == es[start].AccountID {
			end++
		}
		if err := t.insertEventsOf(ctx, es[start].AccountID, es[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func (t *tx) insertEventsOf(ctx context.Context, account uuid.UUID, es []card.Event) error {
	var seq int64
	err := t.s.get(ctx, t.t, &seq, "next event", "UPDATE accounts SET last_seq = last_seq + ? WHERE id = ? RETURNING last_seq", len(es), account)
	if err != nil {
		return err
	}
	seq -= int64(len(es))
	return insertAll(ctx, t, "insert events", "events (account_id, seq, id, type, card_uuid, status, payment_state, created_at)",
		"(?, ?, ?, ?, ?, ?, ?, ?)", "", es, func(e card.Event) []any {
			seq++
			return []any{e.AccountID, seq, e.ID, e.Type, e.CardUUID, e.Status, e.State, e.CreatedAt.UnixMilli()}
		})
}
