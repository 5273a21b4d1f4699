package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/webhook"
)

// Reply implements webhook.Tx. The primary key of idempotency_keys gives each
// key to one reply or one card.
func (t *tx) Reply(ctx context.Context, account uuid.UUID, key string) (webhook.Reply, error) {
	var row struct {
		ID          uuid.UUID `db:"id"`
		RequestHash []byte    `db:"request_hash"`
		Reply       []byte    `db:"reply"`
		CreatedAt   int64     `db:"created_at"`
	}
	err := t.s.get(ctx, t.t, &row, "select reply", `SELECT id, request_hash, reply, created_at FROM replies WHERE account_id = ? AND idempotency_key = ?
		UNION ALL SELECT uuid, request_hash, NULL, created_at FROM cards WHERE account_id = ? AND idempotency_key = ? LIMIT 1`, account, key, account, key)
	return webhook.Reply{ID: row.ID, AccountID: account, Key: key, RequestHash: row.RequestHash, Sealed: row.Reply,
		CreatedAt: fromMillis(row.CreatedAt)}, err
}

// InsertReply implements webhook.Tx.
func (t *tx) InsertReply(ctx context.Context, r webhook.Reply) error {
	_, err := t.s.exec(ctx, t.t, "insert reply",
		"INSERT INTO replies (id, account_id, idempotency_key, request_hash, reply, created_at) VALUES (?, ?, ?, ?, ?, ?)",
		r.ID, r.AccountID, r.Key, r.RequestHash, r.Sealed, r.CreatedAt.UnixMilli())
	return err
}

// KeyUsed implements order.Store.
func (s *Store) KeyUsed(ctx context.Context, account uuid.UUID, key string) (used bool, err error) {
	err = s.get(ctx, s.r, &used, "look for reply",
		"SELECT EXISTS (SELECT 1 FROM replies WHERE account_id = ? AND idempotency_key = ?)", account, key)
	return used, err
}

// PruneReplies implements webhook.Outbox.
func (s *Store) PruneReplies(ctx context.Context, before time.Time, n int) (int64, error) {
	return s.exec(ctx, s.w, "prune replies",
		"DELETE FROM replies WHERE id IN (SELECT id FROM replies WHERE created_at < ? ORDER BY created_at LIMIT ?)",
		before.UnixMilli(), n)
}
