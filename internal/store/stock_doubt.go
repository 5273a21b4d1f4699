package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
)

// neverReceived is 1 for an item q that was issued to a card which does not
// have its credentials, and nobody is about to give them to it.
const neverReceived = `CASE WHEN q.state = 'issued' AND q.card_number IS NOT NULL THEN COALESCE((SELECT CASE WHEN i.state IN ('open', 'pending')
	OR i.state = 'done' AND i.card_number_hash = q.number_hash THEN 0 ELSE 1 END FROM intents i WHERE i.card_uuid = q.card_uuid), 1) ELSE 0 END`

// DoubtfulStock returns the items of all stocks that an operator has to look
// into: those that are held, and those that were issued to a card which never
// got them. They are sorted by supplier, amount and expiry.
func (s *Store) DoubtfulStock(ctx context.Context) ([]card.DoubtfulItem, error) {
	var found []struct {
		stockRow
		CardUUID uuid.NullUUID `db:"card_uuid"`
	}
	err := s.list(ctx, s.r, &found, "look for doubtful stock",
		"SELECT "+stockColumns+", card_uuid FROM stock q WHERE q.state = 'held' OR "+neverReceived+
			" = 1 ORDER BY supplier, usd_cents, expires_at, id")
	items := make([]card.DoubtfulItem, len(found))
	for i := range found {
		items[i] = card.DoubtfulItem{StockItem: found[i].item(), CardUUID: found[i].CardUUID.UUID}
	}
	return items, err
}

// ReleaseStock has the items of a supplier given out that are held, but for
// some, and returns how many.
func (s *Store) ReleaseStock(ctx context.Context, supplier string, except []uuid.UUID) (int64, error) {
	query, args := `UPDATE stock SET state = CASE WHEN card_uuid IS NULL THEN 'free' ELSE 'reserved' END WHERE supplier = ? AND state = 'held'`, []any{supplier}
	if len(except) > 0 {
		var err error
		if query, args, err = sqlx.In(query+" AND id NOT IN (?)", supplier, except); err != nil {
			return 0, err
		}
	}
	return s.exec(ctx, s.w, "release stock", query, args...)
}
