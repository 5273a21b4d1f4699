package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// InsertIntents implements card.Tx. A card that has an intent keeps it.
func (t *tx) InsertIntents(ctx context.Context, cards []uuid.UUID) error {
	return insertAll(ctx, t, "insert intents", "intents (card_uuid, due_at)", "("+t.s.dialect.uuid+", 0)", "ON CONFLICT (card_uuid) DO NOTHING",
		cards, func(id uuid.UUID) []any { return []any{id} })
}

// ClaimIntents implements card.Store. Each claim raises the fence; one whose reply is lost ends with its ttl.
func (s *Store) ClaimIntents(ctx context.Context, n int, ttl time.Duration) ([]card.Intent, error) {
	var found []struct {
		CardUUID uuid.UUID `db:"card_uuid"`
		Attempts int       `db:"attempts"`
		Fence    int64     `db:"fence"`
	}
	now := s.dialect.now
	err := s.list(ctx, s.w, &found, "claim intents", `UPDATE intents SET fence = fence + 1, attempts = attempts + 1, due_at = `+now+` + ?
		WHERE card_uuid IN (SELECT q.card_uuid FROM intents q JOIN cards c ON c.uuid = q.card_uuid
			WHERE q.state = 'open' AND q.due_at <= `+now+` AND c.payment_state = 'paid' ORDER BY q.due_at, q.card_uuid LIMIT ?`+s.dialect.skipLocked+`)
		RETURNING card_uuid, attempts, fence`, ttl.Milliseconds(), n)
	intents := make([]card.Intent, len(found))
	for i, f := range found {
		intents[i] = card.Intent{CardUUID: f.CardUUID, Attempts: f.Attempts, Fence: f.Fence}
	}
	return intents, err
}

// DeferIntent implements card.Store.
func (s *Store) DeferIntent(ctx context.Context, i card.Intent, wait time.Duration, reason string) error {
	return s.settleIntent(ctx, s.w, i, "defer intent", "due_at = "+s.dialect.now+" + ?, reason = ?", wait.Milliseconds(), reason)
}

// ParkIntent implements card.Store.
func (s *Store) ParkIntent(ctx context.Context, i card.Intent, reason string) error {
	return s.settleIntent(ctx, s.w, i, "park intent", "state = 'parked', reason = ?", reason)
}

// FinishIntent implements card.Tx.
func (t *tx) FinishIntent(ctx context.Context, i card.Intent, cardNumberHash []byte) error {
	return t.s.settleIntent(ctx, t.t, i, "finish intent", "state = 'done', reason = NULL, card_number_hash = ?", cardNumberHash)
}

// settleIntent writes to an intent only as long as the claim is the newest.
func (s *Store) settleIntent(ctx context.Context, on runner, i card.Intent, operation, set string, args ...any) error {
	n, err := s.exec(ctx, on, operation, "UPDATE intents SET "+set+" WHERE card_uuid = ? AND fence = ? AND state = 'open'", append(args, i.CardUUID, i.Fence)...)
	if err == nil && n == 0 {
		return card.ErrFenced
	}
	return err
}
