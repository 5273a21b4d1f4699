package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
)

// PurgeCredentials implements keys.Store. Programs of older versions do not
// store when they issued a card, so it takes the time from the event.
func (s *Store) PurgeCredentials(ctx context.Context, age time.Duration, n int) (purged, dated int64, err error) {
	now := s.dialect.now
	dated, err = s.exec(ctx, s.w, "date credentials", `UPDATE credentials SET issued_at = COALESCE((SELECT MIN(e.created_at) FROM events e
		WHERE e.card_uuid = credentials.card_uuid AND e.type = ?), `+now+`)
		WHERE card_uuid IN (SELECT card_uuid FROM credentials WHERE issued_at IS NULL ORDER BY issued_at, card_uuid LIMIT ?)`, card.EventGenerated, n)
	if err != nil {
		return 0, 0, err
	}
	err = s.inTx(ctx, func(t *tx) error {
		var ids []uuid.UUID
		err := s.list(ctx, t.t, &ids, "select old credentials",
			"SELECT card_uuid FROM credentials WHERE issued_at <= (SELECT "+now+") - ? ORDER BY issued_at, card_uuid LIMIT ?",
			age.Milliseconds(), n)
		if err != nil || len(ids) == 0 {
			return err
		}
		purged, err = t.purge(ctx, ids)
		return err
	})
	return purged, dated, err
}

// purge deletes the credentials of cards, including those left in the stock,
// and returns how many cards had some. A card without credentials stays
// unchanged: a loss must not look like a deliberate deletion. Cards are locked
// first, in the order of their uuids.
func (t *tx) purge(ctx context.Context, ids []uuid.UUID) (int64, error) {
	query, args, err := sqlx.In("SELECT uuid FROM cards WHERE uuid IN (?) AND status = ? ORDER BY uuid"+
		t.s.dialect.forUpdate, ids, card.Generated)
	if err != nil {
		return 0, err
	}
	var locked, purged []uuid.UUID
	if err := t.s.list(ctx, t.t, &locked, "lock cards", query, args...); err != nil || len(locked) == 0 {
		return 0, err
	}
	query, args, err = sqlx.In("DELETE FROM credentials WHERE card_uuid IN (?) RETURNING card_uuid", locked)
	if err != nil {
		return 0, err
	}
	if err := t.s.list(ctx, t.t, &purged, "purge credentials", query, args...); err != nil || len(purged) == 0 {
		return 0, err
	}
	for _, then := range []struct{ what, query string }{
		{"update cards",
			"UPDATE cards SET credentials_purged_at = " + t.s.dialect.now +
				" WHERE uuid IN (?) AND credentials_purged_at IS NULL"},
		{"wipe stock", wipeStock + " WHERE id IN (" + unwipedStock + " AND q.card_uuid IN (?))"},
	} {
		query, args, err := sqlx.In(then.query, purged)
		if err != nil {
			return 0, err
		}
		if _, err := t.s.exec(ctx, t.t, then.what, query, args...); err != nil {
			return 0, err
		}
	}
	return int64(len(purged)), nil
}

// PurgeCard implements keys.Store.
func (s *Store) PurgeCard(ctx context.Context, p keys.Purge) (purged bool, err error) {
	err = s.inTx(ctx, func(t *tx) error {
		var status card.Status
		if err := s.get(ctx, t.t, &status, "lock card", "SELECT status FROM cards WHERE uuid = ?"+s.dialect.forUpdate,
			p.CardUUID); err != nil {
			return err
		}
		if status != card.Generated {
			return keys.ErrNotIssued
		}
		n, err := t.purge(ctx, []uuid.UUID{p.CardUUID})
		if purged = n > 0; err != nil || !purged {
			return err
		}
		_, err = s.exec(ctx, t.t, "insert purge",
			"INSERT INTO purges (id, card_uuid, note, operator, created_at) VALUES (?, ?, ?, ?, "+s.dialect.now+")",
			p.ID, p.CardUUID, p.Note, p.Operator)
		return err
	})
	return purged, err
}
