package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// isLost is the condition that a card's money left the chain after the card was
// issued or the money refunded.
const isLost = "c.credit_lost > c.credit_written_off"

// inSnapshot runs f in a transaction that reads one snapshot. f must not write.
func (s *Store) inSnapshot(ctx context.Context, f func(*tx) error) error {
	t, err := s.r.BeginTxx(ctx, &sql.TxOptions{Isolation: s.dialect.snapshot, ReadOnly: true})
	if err != nil {
		return s.fail("begin", err)
	}
	defer func() { _ = t.Rollback() }()
	return f(&tx{s: s, t: t})
}

// CardDetail returns everything about a card except its credentials, from one
// snapshot. The error is card.ErrNoRow if there is no such card.
func (s *Store) CardDetail(ctx context.Context, id uuid.UUID) (operator.CardDetail, error) {
	var r operator.CardDetail
	err := s.inSnapshot(ctx, func(t *tx) error {
		cards, corrupt, err := s.cardsByUUID(ctx, t.t, []uuid.UUID{id})
		if err != nil {
			return err
		}
		if len(corrupt) > 0 {
			return corrupt[0]
		}
		if len(cards) == 0 {
			return card.ErrNoRow
		}
		r = operator.CardDetail{Card: cards[0], Credentials: cards[0].Sealed != nil}
		r.Card.Sealed = nil
		if err := s.get(ctx, t.t, &r.Account, "select account", "SELECT name FROM accounts WHERE id = ?",
			r.Card.AccountID); err != nil {
			return err
		}
		r.Transfers, err = s.transfers(ctx, t.t,
			selectTransfers+" t WHERE t.currency = ? AND t.address = ? AND "+notAttributed+
				" UNION ALL SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted, t.first_seen_at FROM transfers t JOIN "+
				attributionOf+" WHERE a.card_uuid = ? ORDER BY first_seen_at, txid", r.Card.Coin.Code, r.Card.Address, id)
		if err != nil {
			return err
		}
		if r.Intent, err = t.Intent(ctx, id); err != nil {
			return err
		}
		if r.Resolutions, err = t.Resolutions(ctx, id); err != nil {
			return err
		}
		r.Events, err = t.events(ctx, id)
		return err
	})
	return r, err
}

// Intent implements operator.Tx.
func (t *tx) Intent(ctx context.Context, id uuid.UUID) (*operator.IntentRecord, error) {
	var found []struct {
		State        string `db:"state"`
		Supplier     string `db:"supplier"`
		Reference    string `db:"reference"`
		FirstAskedAt *int64 `db:"first_asked_at"`
		Answer       string `db:"answer"`
		Attempts     int    `db:"attempts"`
		DueAt        int64  `db:"due_at"`
		Reason       string `db:"reason"`
		OpenedAt     *int64 `db:"opened_at"`
		Refusals     string `db:"refusals"`
		Declines     int    `db:"declines"`
	}
	err := t.s.list(ctx, t.t, &found, "select intent", `SELECT state, COALESCE(supplier, '') AS supplier, COALESCE(reference, '') AS reference,
		first_asked_at, COALESCE(answer, '') AS answer, attempts, due_at, COALESCE(reason, '') AS reason,
		opened_at, COALESCE(refusals, '') AS refusals, declines FROM intents WHERE card_uuid = ?`, id)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	f := found[0]
	r := &operator.IntentRecord{State: f.State, Supplier: f.Supplier, Reference: f.Reference, Answer: f.Answer,
		Attempts: f.Attempts,
		DueAt:    fromMillis(f.DueAt), Reason: f.Reason, Declines: f.Declines}
	if f.FirstAskedAt != nil {
		at := fromMillis(*f.FirstAskedAt)
		r.FirstAskedAt = &at
	}
	if f.OpenedAt != nil {
		at := fromMillis(*f.OpenedAt)
		r.OpenedAt = &at
	}
	if f.Refusals != "" && json.Unmarshal([]byte(f.Refusals), &r.Refusals) != nil {
		r.Refusals = nil // they only explain the state
	}
	return r, nil
}

// Resolutions implements operator.Tx.
func (t *tx) Resolutions(ctx context.Context, id uuid.UUID) ([]operator.Resolution, error) {
	var found []struct {
		ID        uuid.UUID               `db:"id"`
		Kind      operator.ResolutionKind `db:"kind"`
		Amount    int64                   `db:"amount"`
		TxID      string                  `db:"txid"`
		Note      string                  `db:"note"`
		Operator  string                  `db:"operator"`
		CreatedAt int64                   `db:"created_at"`
	}
	err := t.s.list(ctx, t.t, &found, "select resolutions", `SELECT id, kind, amount, COALESCE(txid, '') AS txid, note, operator, created_at FROM resolutions WHERE card_uuid = ?
		UNION ALL SELECT id, CAST(? AS TEXT), amount, '', note, operator, created_at FROM attributions WHERE card_uuid = ?
		UNION ALL SELECT id, CAST(? AS TEXT), 0, '', note, operator, created_at FROM purges WHERE card_uuid = ? ORDER BY id`,
		id, operator.Attribute, id, operator.Purge, id)
	all := make([]operator.Resolution, len(found))
	for i, f := range found {
		all[i] = operator.Resolution{ID: f.ID, CardUUID: id, Kind: f.Kind, Amount: card.Amount(f.Amount), TxID: f.TxID,
			Note: f.Note, Operator: f.Operator, CreatedAt: fromMillis(f.CreatedAt)}
	}
	return all, err
}

func (t *tx) events(ctx context.Context, id uuid.UUID) ([]card.Event, error) {
	return t.s.events(ctx, t.t, "select events of card", "WHERE card_uuid = ? ORDER BY seq", id)
}

// HasEvent implements operator.Tx.
func (t *tx) HasEvent(ctx context.Context, id uuid.UUID, kind card.EventType) (told bool, err error) {
	err = t.s.get(ctx, t.t, &told, "look for event",
		"SELECT EXISTS (SELECT 1 FROM events WHERE card_uuid = ? AND type = ?)", id, kind)
	return told, err
}

// InsertResolution implements operator.Tx.
func (t *tx) InsertResolution(ctx context.Context, r operator.Resolution, c *card.Card) error {
	_, err := t.s.exec(ctx, t.t, "insert resolution",
		"INSERT INTO resolutions (id, card_uuid, kind, amount, txid, note, operator, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		r.ID, r.CardUUID, r.Kind, int64(r.Amount), nullString(r.TxID), r.Note, r.Operator, r.CreatedAt.UnixMilli())
	if err != nil {
		return err
	}
	_, err = t.s.exec(ctx, t.t, "update card",
		"UPDATE cards SET accepted = ?, refunded = ?, written_off = ?, settled = ? WHERE uuid = ?",
		int64(c.Accepted), int64(c.Refunded), int64(c.WrittenOff), int64(c.Settled), c.UUID)
	return err
}

// SealedCards implements operator.Store.
func (s *Store) SealedCards(ctx context.Context, from uuid.UUID, n int) ([]operator.SealedCard, error) {
	// Without the first condition, PostgreSQL would read all credentials before
	// those.
	return s.sealedCards(ctx, "AND s.card_uuid >= ?", "c.uuid >= ?", "LIMIT ?", from, from, n)
}

// SealedCardsOf implements operator.Store.
func (s *Store) SealedCardsOf(ctx context.Context, ids []uuid.UUID) (all []operator.SealedCard, err error) {
	err = inChunks(ids, func(some []uuid.UUID) error {
		found, err := s.sealedCards(ctx, "", "c.uuid IN ("+rows("?", len(some))+")", "", anyOf(some)...)
		all = append(all, found...)
		return err
	})
	return all, err
}

func (s *Store) sealedCards(ctx context.Context, on, where, limit string, args ...any) ([]operator.SealedCard, error) {
	var found []cardRow
	err := s.list(ctx, s.r, &found, "select sealed cards", `SELECT c.uuid, c.account_id, c.refund_address, s.card_number, s.expiration_date, s.security_code,
		s.url, s.url_password FROM cards c LEFT JOIN credentials s ON s.card_uuid = c.uuid `+on+`
		WHERE `+where+" AND (s.card_uuid IS NOT NULL OR c.refund_address IS NOT NULL) ORDER BY c.uuid "+limit, args...)
	cards := make([]operator.SealedCard, len(found))
	for i := range found {
		cards[i] = operator.SealedCard{UUID: found[i].UUID, AccountID: found[i].AccountID,
			RefundAddress: found[i].RefundAddress}
		if found[i].CardNumber != nil {
			cards[i].Sealed = found[i].sealed()
		}
	}
	return cards, err
}
