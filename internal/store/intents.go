package store

import (
	"context"
	"database/sql"
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
func (s *Store) ClaimIntents(ctx context.Context, supplier string, n int, ttl time.Duration) ([]issue.Intent, error) {
	ctx, cancel := context.WithTimeout(ctx, longestClaim)
	defer cancel()
	var found []struct {
		CardUUID     uuid.UUID      `db:"card_uuid"`
		State        issue.State    `db:"state"`
		Supplier     string         `db:"supplier"`
		Key          string         `db:"key"`
		Reference    string         `db:"reference"`
		FirstAskedAt int64          `db:"first_asked_at"`
		DueAt        int64          `db:"due_at"`
		Answer       sql.NullString `db:"answer"`
		Attempts     int            `db:"attempts"`
		Fence        int64          `db:"fence"`
	}
	attested := "TRUE"
	if s.insist.Load() {
		var err error
		if attested, err = s.attested(ctx); err != nil {
			return nil, err
		}
	}
	now := "(SELECT " + s.dialect.now + ")" // once for the statement, so that an index can be searched by it
	// What an earlier claim left without an answer was cut off: its answer is unknown.
	err := s.list(ctx, s.w, &found, "claim intents", `UPDATE intents SET fence = fence + 1, attempts = attempts + 1, due_at = `+now+` + ?,
		supplier = CASE WHEN supplier IS NULL OR first_asked_at IS NULL AND answer IS NULL THEN CAST(? AS TEXT) ELSE supplier END,
		key = COALESCE(key, CAST(card_uuid AS TEXT)), first_asked_at = COALESCE(first_asked_at, `+now+`),
		answer = CASE WHEN first_asked_at IS NULL THEN answer ELSE COALESCE(answer, 'unknown') END
		WHERE card_uuid IN (SELECT q.card_uuid FROM intents q JOIN cards c ON c.uuid = q.card_uuid
			WHERE q.state IN ('open', 'pending') AND q.due_at <= `+now+` AND c.payment_state = 'paid' AND `+attested+`
				AND NOT EXISTS (SELECT 1 FROM address_pools p WHERE p.currency = c.currency AND (p.conflict IS NOT NULL OR p.issue_after > `+now+`)) ORDER BY q.due_at, q.card_uuid LIMIT ?`+s.dialect.skipLocked+`)
		RETURNING card_uuid, state, supplier, key, COALESCE(reference, '') AS reference, first_asked_at, due_at, answer, attempts, fence`,
		ttl.Milliseconds(), supplier, n)
	intents := make([]issue.Intent, len(found))
	for i, f := range found {
		intents[i] = issue.Intent{CardUUID: f.CardUUID, State: f.State, Supplier: f.Supplier, Key: f.Key, Reference: f.Reference,
			FirstAskedAt: fromMillis(f.FirstAskedAt), ClaimedAt: fromMillis(f.DueAt - ttl.Milliseconds()),
			Asked: f.Answer.Valid, Answer: outcome(f.Answer.String), Attempts: f.Attempts, Fence: f.Fence}
	}
	return intents, err
}

// ProlongIntents implements issue.Store.
func (s *Store) ProlongIntents(ctx context.Context, intents []issue.Intent, ttl time.Duration) error {
	return inBatches(intents, func(some []issue.Intent) error {
		values := make([][]any, len(some))
		for i, n := range some {
			values[i] = []any{n.CardUUID, n.Fence}
		}
		table, args := s.dialect.table(values, s.dialect.uuidType, "BIGINT")
		_, err := s.exec(ctx, s.w, "prolong claims", "UPDATE intents SET due_at = "+s.dialect.now+" + ? FROM "+table+
			" WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND intents.state IN ('open', 'pending')", append([]any{ttl.Milliseconds()}, args...)...)
		return err
	})
}

// outcome returns the outcome that is stored as a text.
func outcome(text string) issue.Outcome {
	for _, o := range []issue.Outcome{issue.Issued, issue.Pending, issue.Declined} {
		if text == o.String() {
			return o
		}
	}
	return issue.Unknown
}

// SaveIntents implements issue.Store.
func (s *Store) SaveIntents(ctx context.Context, intents []issue.Intent) error {
	return inBatches(intents, func(some []issue.Intent) error {
		values := make([][]any, len(some))
		for i, n := range some {
			asked, answer := any(nil), any(nil)
			if !n.FirstAskedAt.IsZero() {
				asked = n.FirstAskedAt.UnixMilli()
			}
			if n.Asked {
				answer = n.Answer.String()
			}
			values[i] = []any{n.CardUUID, n.Fence, string(n.State), orNull(n.Reference), asked, answer, orNull(n.Reason), n.Wait.Milliseconds()}
		}
		table, args := s.dialect.table(values, s.dialect.uuidType, "BIGINT", "TEXT", "TEXT", "BIGINT", "TEXT", "TEXT", "BIGINT")
		_, err := s.exec(ctx, s.w, "save intents", `UPDATE intents SET state = v.column3, reference = v.column4, first_asked_at = v.column5,
			answer = v.column6, reason = v.column7, due_at = `+s.dialect.now+` + v.column8
			FROM `+table+` WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2 AND intents.state IN ('open', 'pending')`, args...)
		return err
	})
}

// orNull returns nil for an empty text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// SaveIssued implements issue.Tx.
func (t *tx) SaveIssued(ctx context.Context, cards []issue.IssuedCard) error {
	finished := int64(0)
	err := inBatches(cards, func(some []issue.IssuedCard) error {
		values := make([][]any, len(some))
		for i, c := range some {
			values[i] = []any{c.Intent.CardUUID, c.Intent.Fence, c.NumberHash, orNull(c.Intent.Reference)}
		}
		table, args := t.s.dialect.table(values, t.s.dialect.uuidType, "BIGINT", t.s.dialect.bytes, "TEXT")
		n, err := t.s.exec(ctx, t.t, "finish intents", `UPDATE intents SET state = 'done', answer = 'issued', reason = NULL, card_number_hash = v.column3,
			reference = v.column4 FROM `+table+` WHERE intents.card_uuid = v.column1 AND intents.fence = v.column2
			AND intents.state IN ('open', 'pending')`, args...)
		finished += n
		return err
	})
	if err != nil {
		return err
	}
	if finished != int64(len(cards)) {
		return card.ErrFenced
	}
	err = insertAll(ctx, t, "insert credentials", "credentials (card_uuid, card_number, expiration_date, security_code, url, url_password)",
		"(?, ?, ?, ?, ?, ?)", "", cards, func(c issue.IssuedCard) []any {
			return []any{c.Intent.CardUUID, c.Sealed.CardNumber, c.Sealed.ExpirationDate, c.Sealed.SecurityCode, c.Sealed.URL, c.Sealed.URLPassword}
		})
	if err != nil {
		return err
	}
	return inBatches(cards, func(some []issue.IssuedCard) error {
		ids := make([]uuid.UUID, len(some))
		for i, c := range some {
			ids[i] = c.Intent.CardUUID
		}
		query, args, err := sqlx.In("UPDATE cards SET status = ? WHERE uuid IN (?)", card.Generated, ids)
		if err != nil {
			return err
		}
		_, err = t.s.exec(ctx, t.t, "update cards", query, args...)
		return err
	})
}

// ReopenIntent implements operator.Tx. The next attempt looks up before it submits, as every attempt after the first. It may submit
// again, for as long as the supplier keeps the key from now on: the operator has seen what happened, and the last answer stays known,
// so that a request which the supplier declined is submitted again. What was declined may be asked of another supplier.
func (t *tx) ReopenIntent(ctx context.Context, id uuid.UUID) error {
	_, err := t.s.exec(ctx, t.t, "reopen intent", `UPDATE intents SET state = 'open', due_at = 0, first_asked_at = NULL,
		supplier = CASE state WHEN 'refund_due' THEN NULL ELSE supplier END, reference = CASE state WHEN 'refund_due' THEN NULL ELSE reference END
		WHERE card_uuid = ? AND state IN ('parked', 'refund_due')`, id)
	return err
}
