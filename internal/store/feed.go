package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// CardEvents implements webhook.Feed. COALESCE keeps the databases from walking
// through the account's events: a card has a few.
func (s *Store) CardEvents(ctx context.Context, account, id uuid.UUID, after int64, limit int) ([]card.Event, error) {
	return s.events(ctx, s.r, "select events of card",
		"WHERE card_uuid = ? AND COALESCE(account_id, account_id) = ? AND seq > ? ORDER BY seq LIMIT ?",
		id, account, after, limit)
}

// LastSeqs implements webhook.Feed. It is one round trip for up to batch
// accounts.
func (s *Store) LastSeqs(ctx context.Context, accounts []uuid.UUID) (map[uuid.UUID]int64, error) {
	newest := make(map[uuid.UUID]int64, len(accounts))
	err := inBatches(accounts, func(some []uuid.UUID) error {
		query, args, err := sqlx.In("SELECT id, last_seq FROM accounts WHERE id IN (?)", some)
		if err != nil {
			return err
		}
		var found []struct {
			ID      uuid.UUID `db:"id"`
			LastSeq int64     `db:"last_seq"`
		}
		err = s.list(ctx, s.r, &found, "select newest events", query, args...)
		for _, row := range found {
			newest[row.ID] = row.LastSeq
		}
		return err
	})
	return newest, err
}

// LastSeqsOfCards implements webhook.Feed. It is one round trip for up to batch
// cards.
func (s *Store) LastSeqsOfCards(ctx context.Context, cards []uuid.UUID) (map[webhook.Topic]int64, error) {
	newest := make(map[webhook.Topic]int64, len(cards))
	err := inBatches(cards, func(some []uuid.UUID) error {
		query, args, err := sqlx.In(
			"SELECT account_id, card_uuid, MAX(seq) AS seq FROM events WHERE card_uuid IN (?) GROUP BY account_id, card_uuid",
			some)
		if err != nil {
			return err
		}
		var found []struct {
			AccountID uuid.UUID `db:"account_id"`
			CardUUID  uuid.UUID `db:"card_uuid"`
			Seq       int64     `db:"seq"`
		}
		err = s.list(ctx, s.r, &found, "select newest events of cards", query, args...)
		for _, row := range found {
			newest[webhook.Topic{AccountID: row.AccountID, CardUUID: row.CardUUID}] = row.Seq
		}
		return err
	})
	return newest, err
}
