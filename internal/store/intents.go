package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// insertIntents has cards issued. A card that has an intent keeps it.
func (t *tx) insertIntents(ctx context.Context, cards []uuid.UUID) error {
	return insertAll(ctx, t, "insert intents", "intents (card_uuid, due_at)", "(CAST(? AS "+t.s.dialect.uuidType+"), 0)", "ON CONFLICT (card_uuid) DO NOTHING",
		cards, func(id uuid.UUID) []any { return []any{id} })
}

// ClaimIntents implements issue.Store. Each claim raises the fence; one whose reply is lost ends with its ttl.
func (s *Store) ClaimIntents(ctx context.Context, n int, ttl time.Duration) ([]issue.Intent, error) {
	ctx, cancel := context.WithTimeout(ctx, longestClaim)
	defer cancel()
	var found []struct {
		CardUUID uuid.UUID `db:"card_uuid"`
		Attempts int       `db:"attempts"`
		Fence    int64     `db:"fence"`
	}
	now := "(SELECT " + s.dialect.now + ")" // once for the statement, so that an index can be searched by it
	err := s.list(ctx, s.w, &found, "claim intents", `UPDATE intents SET fence = fence + 1, attempts = attempts + 1, due_at = `+now+` + ?
		WHERE card_uuid IN (SELECT q.card_uuid FROM intents q JOIN cards c ON c.uuid = q.card_uuid
			WHERE q.state = 'open' AND q.due_at <= `+now+` AND c.payment_state = 'paid' ORDER BY q.due_at, q.card_uuid LIMIT ?`+s.dialect.skipLocked+`)
		RETURNING card_uuid, attempts, fence`, ttl.Milliseconds(), n)
	intents := make([]issue.Intent, len(found))
	for i, f := range found {
		intents[i] = issue.Intent{CardUUID: f.CardUUID, Attempts: f.Attempts, Fence: f.Fence}
	}
	return intents, err
}

// DeferIntent implements issue.Store.
func (s *Store) DeferIntent(ctx context.Context, i issue.Intent, wait time.Duration, reason string) error {
	return s.settleIntent(ctx, s.w, i, "defer intent", "due_at = "+s.dialect.now+" + ?, reason = ?", wait.Milliseconds(), reason)
}

// ParkIntent implements issue.Store.
func (s *Store) ParkIntent(ctx context.Context, i issue.Intent, reason string) error {
	return s.settleIntent(ctx, s.w, i, "park intent", "state = 'parked', reason = ?", reason)
}

// SaveIssued implements issue.Tx.
func (t *tx) SaveIssued(ctx context.Context, made []issue.Issued) error {
	finished := int64(0)
	err := inBatches(made, func(some []issue.Issued) error {
		values := make([][]any, len(some))
		for i, m := range some {
			values[i] = []any{m.Intent.CardUUID, m.Intent.Fence, m.NumberHash}
		}
		table, args := t.s.dialect.table(values, t.s.dialect.uuidType, "BIGINT", t.s.dialect.bytes)
		n, err := t.s.exec(ctx, t.t, "finish intents", `UPDATE intents SET state = 'done', reason = NULL, card_number_hash = v.column3
			FROM `+table+` WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND intents.state = 'open'`, args...)
		finished += n
		return err
	})
	if err != nil {
		return err
	}
	if finished != int64(len(made)) {
		return card.ErrFenced
	}
	err = insertAll(ctx, t, "insert credentials", "credentials (card_uuid, card_number, expiration_date, security_code, url, url_password)",
		"(?, ?, ?, ?, ?, ?)", "", made, func(m issue.Issued) []any {
			return []any{m.Intent.CardUUID, m.Sealed.CardNumber, m.Sealed.ExpirationDate, m.Sealed.SecurityCode, m.Sealed.URL, m.Sealed.URLPassword}
		})
	if err != nil {
		return err
	}
	return inBatches(made, func(some []issue.Issued) error {
		ids := make([]uuid.UUID, len(some))
		for i, m := range some {
			ids[i] = m.Intent.CardUUID
		}
		query, args, err := sqlx.In("UPDATE cards SET status = ? WHERE uuid IN (?)", card.Generated, ids)
		if err != nil {
			return err
		}
		_, err = t.s.exec(ctx, t.t, "update cards", query, args...)
		return err
	})
}

// ReopenIntent implements operator.Tx.
func (t *tx) ReopenIntent(ctx context.Context, id uuid.UUID) error {
	_, err := t.s.exec(ctx, t.t, "reopen intent", "UPDATE intents SET state = 'open', due_at = 0 WHERE card_uuid = ? AND state = 'parked'", id)
	return err
}

// settleIntent writes to an intent only as long as the claim is the newest.
func (s *Store) settleIntent(ctx context.Context, on runner, i issue.Intent, operation, set string, args ...any) error {
	n, err := s.exec(ctx, on, operation, "UPDATE intents SET "+set+" WHERE card_uuid = ? AND fence = ? AND state = 'open'", append(args, i.CardUUID, i.Fence)...)
	if err == nil && n == 0 {
		return card.ErrFenced
	}
	return err
}
