package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

const webhookColumns = `id, account_id, url, description, types, secret, old_secret, old_until, enabled, disabled_reason, disabled_at, created_at,
	failing_since, version`

type webhookRow struct {
	ID             uuid.UUID      `db:"id"`
	AccountID      uuid.UUID      `db:"account_id"`
	URL            string         `db:"url"`
	Description    string         `db:"description"`
	Types          string         `db:"types"`
	Secret         []byte         `db:"secret"`
	OldSecret      []byte         `db:"old_secret"`
	OldUntil       *int64         `db:"old_until"`
	Enabled        bool           `db:"enabled"`
	DisabledReason sql.NullString `db:"disabled_reason"`
	DisabledAt     *int64         `db:"disabled_at"`
	CreatedAt      int64          `db:"created_at"`
	FailingSince   *int64         `db:"failing_since"`
	Version        int64          `db:"version"`
}

func (r *webhookRow) webhook() *webhook.Webhook {
	w := &webhook.Webhook{ID: r.ID, AccountID: r.AccountID, URL: r.URL, Description: r.Description, Enabled: r.Enabled,
		DisabledReason: webhook.DisabledReason(r.DisabledReason.String), DisabledAt: fromNullMillis(r.DisabledAt),
		FailingSince: fromNullMillis(r.FailingSince),
		CreatedAt:    fromMillis(r.CreatedAt), Version: r.Version, Sealed: r.Secret, SealedOld: r.OldSecret,
		OldUntil: fromNullMillis(r.OldUntil)}
	for _, kind := range strings.Fields(r.Types) {
		w.Types = append(w.Types, card.EventType(kind))
	}
	return w
}

func joinTypes(types []card.EventType) string {
	texts := make([]string, len(types))
	for i, kind := range types {
		texts[i] = string(kind)
	}
	return strings.Join(texts, " ")
}

// LockAccount implements webhook.Tx.
func (t *tx) LockAccount(ctx context.Context, account uuid.UUID) error {
	var id uuid.UUID
	return t.s.get(ctx, t.t, &id, "lock account", "SELECT id FROM accounts WHERE id = ?"+t.s.dialect.forUpdate, account)
}

// CountWebhooks implements webhook.Tx.
func (t *tx) CountWebhooks(ctx context.Context, account uuid.UUID) (int, error) {
	var n int
	err := t.s.get(ctx, t.t, &n, "count webhooks", "SELECT COUNT(*) FROM webhooks WHERE account_id = ?", account)
	return n, err
}

// InsertWebhook implements webhook.Tx.
func (t *tx) InsertWebhook(ctx context.Context, w *webhook.Webhook) error {
	_, err := t.s.exec(ctx, t.t, "insert webhook", `INSERT INTO webhooks (id, account_id, url, description, types, secret, version, enabled, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, w.ID, w.AccountID, w.URL, w.Description, joinTypes(w.Types), w.Sealed, w.Version, w.Enabled, w.CreatedAt.UnixMilli())
	return err
}

// WebhookByID implements webhook.Store.
func (s *Store) WebhookByID(ctx context.Context, account, id uuid.UUID) (*webhook.Webhook, error) {
	return s.webhook(ctx, s.r, "", account, id)
}

// LockWebhook implements webhook.Tx.
func (t *tx) LockWebhook(ctx context.Context, account, id uuid.UUID) (*webhook.Webhook, error) {
	return t.s.webhook(ctx, t.t, t.s.dialect.forUpdate, account, id)
}

func (s *Store) webhook(ctx context.Context, on runner, lock string, account, id uuid.UUID) (*webhook.Webhook, error) {
	var row webhookRow
	if err := s.get(ctx, on, &row, "select webhook",
		"SELECT "+webhookColumns+" FROM webhooks WHERE account_id = ? AND id = ?"+lock, account, id); err != nil {
		return nil, err
	}
	return row.webhook(), nil
}

// Webhooks implements webhook.Store.
func (s *Store) Webhooks(ctx context.Context, account uuid.UUID) ([]*webhook.Webhook, error) {
	var found []webhookRow
	err := s.list(ctx, s.r, &found, "select webhooks",
		"SELECT "+webhookColumns+" FROM webhooks WHERE account_id = ? ORDER BY id", account)
	all := make([]*webhook.Webhook, len(found))
	for i := range found {
		all[i] = found[i].webhook()
	}
	return all, err
}

// SaveWebhook implements webhook.Tx.
func (t *tx) SaveWebhook(ctx context.Context, w *webhook.Webhook) error {
	_, err := t.s.exec(ctx, t.t, "update webhook", `UPDATE webhooks SET url = ?, description = ?, types = ?, secret = ?, old_secret = ?, old_until = ?,
		enabled = ?, disabled_reason = ?, disabled_at = ?, failing_since = ?, failures = CASE WHEN version = ? THEN failures ELSE 0 END,
		paused_until = CASE WHEN version = ? THEN paused_until ELSE 0 END, version = ? WHERE id = ?`,
		w.URL, w.Description, joinTypes(w.Types), w.Sealed, w.SealedOld, nullMillis(w.OldUntil), w.Enabled,
		nullString(string(w.DisabledReason)), nullMillis(w.DisabledAt), nullMillis(w.FailingSince), w.Version, w.Version,
		w.Version, w.ID)
	return err
}

// DeleteWebhook implements webhook.Store.
func (s *Store) DeleteWebhook(ctx context.Context, account, id uuid.UUID) error {
	_, err := s.exec(ctx, s.w, "delete webhook", "DELETE FROM webhooks WHERE account_id = ? AND id = ?", account, id)
	return err
}

// ClaimWebhooks implements webhook.Outbox. Each claim increments the fence. A
// claim whose reply is lost expires after its ttl. The condition that something
// is due uses no EXISTS: PostgreSQL may turn that into a join over all due
// deliveries if it expects few.
func (s *Store) ClaimWebhooks(ctx context.Context, now time.Time, n int, ttl time.Duration) ([]*webhook.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	var found []struct {
		webhookRow
		Failures int   `db:"failures"`
		Fence    int64 `db:"fence"`
	}
	clock := "(SELECT " + s.dialect.now + ")"
	err := s.list(ctx, s.w, &found, "claim webhooks", `UPDATE webhooks SET fence = fence + 1, claimed_until = `+clock+` + ?
		WHERE id IN (SELECT q.id FROM webhooks q WHERE q.enabled AND q.claimed_until <= `+clock+` AND q.paused_until <= ?
			AND (SELECT d.seq FROM deliveries d WHERE d.webhook_id = q.id AND d.due_at <= ? LIMIT 1) IS NOT NULL
			ORDER BY q.failures, q.claimed_until LIMIT ?`+s.dialect.skipLocked+`)
		RETURNING `+webhookColumns+`, failures, fence`, ttl.Milliseconds(), now.UnixMilli(), now.UnixMilli(), n)
	claims := make([]*webhook.Claim, len(found))
	for i := range found {
		claims[i] = &webhook.Claim{Webhook: found[i].webhook(), Failures: found[i].Failures, Fence: found[i].Fence}
	}
	return claims, err
}

// ReleaseWebhook implements webhook.Outbox. It sets claimed_until to the
// present: ClaimWebhooks orders by it, to serve the least recently served
// first.
func (s *Store) ReleaseWebhook(ctx context.Context, c *webhook.Claim) error {
	_, err := s.exec(ctx, s.w, "release webhook",
		"UPDATE webhooks SET claimed_until = "+s.dialect.now+" WHERE id = ? AND fence = ?", c.Webhook.ID, c.Fence)
	return err
}

// SaveWebhookState implements webhook.Tx.
func (t *tx) SaveWebhookState(ctx context.Context, c *webhook.Claim, state webhook.State, now time.Time,
	ttl time.Duration) error {
	set, args := "",
		[]any{state.Failures, nullMillis(state.FailingSince), state.PausedUntil.UnixMilli(), ttl.Milliseconds()}
	if state.DisabledReason != "" {
		set, args = ", enabled = FALSE, disabled_reason = ?, disabled_at = ?",
			append(args, state.DisabledReason, now.UnixMilli())
	}
	n, err := t.s.exec(ctx, t.t, "update webhook", `UPDATE webhooks SET failures = ?, failing_since = ?, paused_until = ?,
		claimed_until = `+t.s.dialect.now+` + ?`+set+` WHERE id = ? AND fence = ? AND version = ? AND enabled`, append(args, c.Webhook.ID, c.Fence, c.Webhook.Version)...)
	if err == nil && n == 0 {
		return card.ErrFenced
	}
	return err
}

// CheckClaim implements webhook.Tx.
func (t *tx) CheckClaim(ctx context.Context, c *webhook.Claim) error {
	var fence int64
	err := t.s.get(ctx, t.t, &fence, "check claim",
		"SELECT fence FROM webhooks WHERE id = ? AND fence = ?"+t.s.dialect.forUpdate, c.Webhook.ID, c.Fence)
	if errors.Is(err, card.ErrNoRow) {
		return card.ErrFenced
	}
	return err
}
