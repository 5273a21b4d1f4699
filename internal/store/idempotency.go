package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/webhook"
)

// The primary key of idempotency_keys gives each key of an account to one card
// or one reply. A trigger stores the keys of cards.

const byKey = " WHERE account_id = ? AND idempotency_key = ?"

// CardOfKey implements order.Store.
func (s *Store) CardOfKey(ctx context.Context, account uuid.UUID, key string) (uuid.UUID, error) {
	var id uuid.NullUUID
	err := s.get(ctx, s.r, &id, "select idempotency key", "SELECT card_uuid FROM idempotency_keys"+byKey, account, key)
	return id.UUID, err
}

// Reply implements webhook.Tx.
func (t *tx) Reply(ctx context.Context, account uuid.UUID, key string) (webhook.Reply, error) {
	var row struct {
		ID          uuid.NullUUID `db:"id"`
		RequestHash []byte        `db:"request_hash"`
		Reply       []byte        `db:"reply"`
		CreatedAt   int64         `db:"created_at"`
	}
	err := t.s.get(ctx, t.t, &row, "select reply",
		"SELECT id, request_hash, reply, COALESCE(created_at, 0) AS created_at FROM idempotency_keys"+byKey, account, key)
	return webhook.Reply{ID: row.ID.UUID, AccountID: account, Key: key, RequestHash: row.RequestHash, Sealed: row.Reply,
		CreatedAt: fromMillis(row.CreatedAt)}, err
}

// InsertReply implements webhook.Tx.
func (t *tx) InsertReply(ctx context.Context, r webhook.Reply) error {
	_, err := t.s.exec(ctx, t.t, "insert reply",
		"INSERT INTO idempotency_keys (account_id, idempotency_key, id, request_hash, reply, created_at) VALUES (?, ?, ?, ?, ?, ?)",
		r.AccountID, r.Key, r.ID, r.RequestHash, r.Sealed, r.CreatedAt.UnixMilli())
	return err
}

// PruneReplies implements webhook.Outbox.
func (s *Store) PruneReplies(ctx context.Context, before time.Time, n int) (int64, error) {
	return s.exec(ctx, s.w, "prune replies", `DELETE FROM idempotency_keys WHERE (account_id, idempotency_key) IN (
		SELECT account_id, idempotency_key FROM idempotency_keys WHERE reply IS NOT NULL AND created_at < ? ORDER BY created_at LIMIT ?)`,
		before.UnixMilli(), n)
}
