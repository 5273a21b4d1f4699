package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// InsertEvents implements webhook.Tx. It locks the account's row until the
// transaction ends, so that seq has no gaps and follows the order of commits.
// It locks accounts in the order of their ids.
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
	attested := "TRUE"
	if t.requireAttestation {
		var err error
		if attested, err = t.s.attested(ctx); err != nil {
			return err
		}
	}
	var last int64
	err := t.s.get(ctx, t.t, &last, "next event",
		"UPDATE accounts SET last_seq = last_seq + ? WHERE id = ? AND "+attested+" RETURNING last_seq", len(es), account)
	if t.requireAttestation && errors.Is(err, card.ErrNoRow) {
		return card.ErrUnavailable.WithCause(errNotAttested)
	}
	if err != nil {
		return err
	}
	first := last - int64(len(es)) + 1
	seq := first
	id := t.s.dialect.uuidType
	err = insertAll(ctx, t, "insert events",
		"events (account_id, seq, id, type, card_uuid, status, payment_state, webhook_id, since, created_at)",
		[]string{id, "BIGINT", id, "TEXT", id, "TEXT", "TEXT", id, "BIGINT", "BIGINT"}, "", "", es, func(e card.Event) []any {
			defer func() { seq++ }()
			return []any{e.AccountID, seq, e.ID, e.Type, nullUUID(e.CardUUID), nullString(string(e.Status)),
				nullString(string(e.State)),
				nullUUID(e.WebhookID), orNoTime(e.Since), e.CreatedAt.UnixMilli()}
		})
	if err != nil {
		return err
	}
	// A separate statement, because it must see the webhooks as they are now
	// that the account is locked.
	_, err = t.s.exec(ctx, t.t, "insert deliveries", `INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at)
		SELECT w.id, e.account_id, e.seq, 'pending', 0 FROM webhooks w JOIN events e ON e.account_id = w.account_id
		WHERE w.account_id = ? AND w.enabled AND e.seq BETWEEN ? AND ? AND `+wanted+t.s.dialect.forShare, account, first, last)
	return err
}

// wanted is the condition that webhook w wants event e.
const wanted = "(w.types = '' OR ' ' || w.types || ' ' LIKE '% ' || e.type || ' %') AND (e.webhook_id IS NULL OR e.webhook_id <> w.id)"

func nullUUID(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// orNoTime returns NULL for the zero time.
func orNoTime(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMilli(), Valid: !t.IsZero()}
}

// eventColumns are the columns of an event e. Its card's reference never
// changes, so that it need not be stored with the event.
const eventColumns = `e.id, e.account_id, e.seq, e.type, e.card_uuid, e.status, e.payment_state, e.webhook_id, e.since, e.created_at,
	(SELECT c.reference FROM cards c WHERE c.uuid = e.card_uuid) AS reference`

type eventRow struct {
	ID        uuid.UUID      `db:"id"`
	AccountID uuid.UUID      `db:"account_id"`
	Seq       int64          `db:"seq"`
	Type      card.EventType `db:"type"`
	CardUUID  uuid.NullUUID  `db:"card_uuid"`
	Status    sql.NullString `db:"status"`
	State     sql.NullString `db:"payment_state"`
	WebhookID uuid.NullUUID  `db:"webhook_id"`
	Since     sql.NullInt64  `db:"since"`
	CreatedAt int64          `db:"created_at"`
	Reference sql.NullString `db:"reference"`
}

func (r *eventRow) event() card.Event {
	e := card.Event{ID: r.ID, AccountID: r.AccountID, Seq: r.Seq, Type: r.Type, CardUUID: r.CardUUID.UUID,
		Status: card.Status(r.Status.String),
		State:  card.PaymentState(r.State.String), Reference: card.Secret(r.Reference.String), WebhookID: r.WebhookID.UUID,
		CreatedAt: fromMillis(r.CreatedAt)}
	if r.Since.Valid {
		e.Since = fromMillis(r.Since.Int64)
	}
	return e
}

func (s *Store) events(ctx context.Context, on runner, operation, where string, args ...any) ([]card.Event, error) {
	var found []eventRow
	err := s.list(ctx, on, &found, operation, "SELECT "+eventColumns+" FROM events e "+where, args...)
	all := make([]card.Event, len(found))
	for i := range found {
		all[i] = found[i].event()
	}
	return all, err
}

// Events implements webhook.Store.
func (s *Store) Events(ctx context.Context, account uuid.UUID, after int64, limit int) ([]card.Event, error) {
	return s.events(ctx, s.r, "select events", "WHERE account_id = ? AND seq > ? ORDER BY seq LIMIT ?", account, after,
		limit)
}

// LastSeq implements webhook.Store.
func (s *Store) LastSeq(ctx context.Context, account uuid.UUID) (int64, error) {
	var last int64
	err := s.get(ctx, s.r, &last, "select newest event", "SELECT last_seq FROM accounts WHERE id = ?", account)
	return last, err
}

// SeqBefore implements webhook.Store.
func (s *Store) SeqBefore(ctx context.Context, account uuid.UUID, since time.Time) (int64, error) {
	var seq int64
	err := s.get(ctx, s.r, &seq, "select event before", `SELECT COALESCE((SELECT seq FROM events WHERE account_id = a.id AND created_at < ?
		ORDER BY created_at DESC, seq DESC LIMIT 1), 0) FROM accounts a WHERE a.id = ?`, since.UnixMilli(), account)
	return seq, err
}

// CardEvents implements webhook.Feed. COALESCE keeps the databases from walking
// through the account's events: a card has a few.
func (s *Store) CardEvents(ctx context.Context, account, id uuid.UUID, after int64, limit int) ([]card.Event, error) {
	return s.events(ctx, s.r, "select events of card",
		"WHERE card_uuid = ? AND COALESCE(account_id, account_id) = ? AND seq > ? ORDER BY seq LIMIT ?",
		id, account, after, limit)
}

// LastSeqs implements webhook.Feed. It is one round trip for up to maxRows
// accounts.
func (s *Store) LastSeqs(ctx context.Context, accounts []uuid.UUID) (map[uuid.UUID]int64, error) {
	newest := make(map[uuid.UUID]int64, len(accounts))
	err := inChunks(accounts, func(some []uuid.UUID) error {
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

// LastSeqsOfCards implements webhook.Feed. It is one round trip for up to maxRows
// cards.
func (s *Store) LastSeqsOfCards(ctx context.Context, cards []uuid.UUID) (map[webhook.Topic]int64, error) {
	newest := make(map[webhook.Topic]int64, len(cards))
	err := inChunks(cards, func(some []uuid.UUID) error {
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
