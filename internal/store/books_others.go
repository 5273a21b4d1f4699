package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// doubtOthers looks for what is doubted apart from days and single cards.
func (r *reading) doubtOthers(ctx context.Context) error {
	days := r.doubts.others
	r.doubts.others = nil
	if err := r.doubtIntents(ctx); err != nil {
		return err
	}
	if err := r.doubtFeeds(ctx); err != nil {
		return err
	}
	if err := r.doubtDeliveries(ctx); err != nil {
		return err
	}
	r.doubts.others = append(r.doubts.others, days[:min(len(days), someDoubts)]...)
	return nil
}

// doubtIntents looks for paid cards whose next attempt is due later than any
// back-off allows.
func (r *reading) doubtIntents(ctx context.Context) error {
	var ids []uuid.UUID
	err := r.list(ctx, &ids, "look for impossible intents", `SELECT c.uuid FROM intents i JOIN cards c ON c.uuid = i.card_uuid
		WHERE i.state IN ('open', 'pending') AND i.due_at > (SELECT `+r.t.s.dialect.now+`) + ? AND c.payment_state = 'paid'
		ORDER BY i.due_at, i.card_uuid LIMIT ?`, mostDueMillis, someDoubts)
	for _, id := range ids {
		r.doubts.others = append(r.doubts.others, operator.Doubt{ID: id,
			Text: "it is paid, but the next attempt to issue it is due in more than an hour: its intent's due_at is impossible"})
	}
	return err
}

// feed is the events of an account.
type feed struct {
	AccountID uuid.UUID `db:"id"`
	LastSeq   int64     `db:"last_seq"`
	Newest    int64     `db:"newest"`
	Checked   int64     `db:"checked"` // up to which there is no gap
}

// doubtFeeds looks for gaps in the events that no reading has seen to have
// none.
func (r *reading) doubtFeeds(ctx context.Context) error {
	doubted := 0
	for after := uuid.Nil; ; {
		var found []feed
		err := r.list(ctx, &found, "select feeds", `SELECT a.id, a.last_seq, (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.account_id = a.id) AS newest,
			COALESCE((SELECT f.seq FROM books_feeds f WHERE f.account_id = a.id), 0) AS checked FROM accounts a WHERE a.id > ? ORDER BY a.id LIMIT ?`, after, booksPage)
		if err != nil {
			return err
		}
		for _, f := range found {
			after = f.AccountID
			was := f.Checked
			if r.full || r.notes.accounts[f.AccountID] {
				f.Checked = 0
			}
			gap, err := r.gap(ctx, &f)
			if err != nil {
				return err
			}
			if f.Checked != was {
				r.feeds = append(r.feeds, f)
			}
			if (gap || f.LastSeq != f.Newest) && doubted < someDoubts {
				doubted++
				r.doubts.others = append(r.doubts.others, operator.Doubt{ID: f.AccountID, Text: "the account's events have gaps"})
			}
		}
		if len(found) < booksPage {
			return nil
		}
	}
}

// gap looks for a gap after what was checked, piece by piece, and moves that
// forward.
func (r *reading) gap(ctx context.Context, f *feed) (bool, error) {
	for f.Checked < f.Newest {
		var piece struct {
			Newest int64 `db:"newest"`
			Gaps   int64 `db:"gaps"`
		}
		err := r.get(ctx, &piece, "look for gaps", `SELECT COALESCE(MAX(x.seq), 0) AS newest,
			COUNT(CASE WHEN x.type <> 'feed.reset' AND x.seq <> x.previous + 1 THEN 1 END) AS gaps
			FROM (SELECT e.seq, e.type, LAG(e.seq, 1, CAST(? AS BIGINT)) OVER (ORDER BY e.seq) AS previous
				FROM (SELECT seq, type FROM events WHERE account_id = ? AND seq > ? ORDER BY seq LIMIT ?) e) x`, f.Checked, f.AccountID, f.Checked, booksPage)
		if err != nil || piece.Gaps > 0 {
			return piece.Gaps > 0, err
		}
		f.Checked = piece.Newest
	}
	return false, nil
}

// doubtDeliveries looks for attempts that can't be decoded: of deliveries that
// are still to be made, as many as a piece has, or of all. PostgreSQL has no
// function that says whether a text is JSON before version 16.
func (r *reading) doubtDeliveries(ctx context.Context) error {
	where, order := "d.due_at IS NOT NULL", "d.webhook_id, d.due_at, d.seq"
	if r.full {
		where, order = "(d.webhook_id, d.seq) > (?, ?)", "d.webhook_id, d.seq"
	}
	doubted := 0
	for webhook, seq := uuid.Nil, int64(math.MinInt64); ; {
		var found []struct {
			WebhookID uuid.UUID     `db:"webhook_id"`
			Seq       int64         `db:"seq"`
			DueAt     *int64        `db:"due_at"`
			Tries     int64         `db:"tries"`
			Attempts  string        `db:"attempts"`
			EventID   uuid.NullUUID `db:"event_id"`
		}
		args := []any{mostTries, mostMillis, booksPage}
		if r.full {
			args = []any{mostTries, mostMillis, webhook, seq, booksPage}
		}
		err := r.list(ctx, &found, "look for damaged deliveries", `SELECT d.webhook_id, d.seq, d.due_at, d.tries, d.attempts,
			CASE WHEN d.attempts <> '[]' OR d.tries NOT BETWEEN 0 AND ? OR d.due_at NOT BETWEEN 0 AND ? THEN (SELECT e.id FROM events e WHERE e.account_id = d.account_id AND e.seq = d.seq) END AS event_id
			FROM deliveries d WHERE `+where+" ORDER BY "+order+" LIMIT ?", args...)
		if err != nil {
			return err
		}
		for _, f := range found {
			webhook, seq = f.WebhookID, f.Seq
			_, err := storedAttempts(f.Attempts)
			if err == nil {
				err = checkDelivery(f.DueAt, f.Tries)
			}
			if err != nil && doubted < someDoubts {
				doubted++
				r.doubts.others = append(r.doubts.others,
					operator.Doubt{ID: f.WebhookID,
						Text: fmt.Sprintf("the attempts to deliver its event %s can't be decoded", f.EventID.UUID)})
			}
		}
		if !r.full || len(found) < booksPage {
			return nil
		}
	}
}

// waitingQuery selects cards that wait for an operator: their uuid, currency,
// the amount that waits, and since when.
type waitingQuery struct {
	kind  operator.WaitingKind
	query string
	args  []any
}

// waitingCards returns the queries of the cards that wait. Each reads an index
// that contains only such cards.
func waitingCards(now time.Time) []waitingQuery {
	const ofIntents = `SELECT i.card_uuid AS uuid, c.currency, c.credit_paid AS amount, i.decided_at AS since FROM intents i JOIN cards c ON c.uuid = i.card_uuid
		WHERE c.payment_state = 'paid' AND `
	return []waitingQuery{
		{operator.WaitingLate, `SELECT x.uuid, x.currency, x.amount, x.since FROM (SELECT c.uuid, c.currency, c.credit_held AS amount,
			(SELECT MAX(e.created_at) FROM events e WHERE e.card_uuid = c.uuid AND e.type = 'payment.late') AS since FROM cards c WHERE c.payment_state = 'late') x
			WHERE x.since IS NULL OR x.since <= ?`, []any{now.Add(-operator.LateLasts).UnixMilli()}},
		{operator.WaitingUnissued,
			ofIntents + "i.state IN ('open', 'pending') AND (i.attempts >= ? OR i.decided_at IS NULL OR i.decided_at <= ?)",
			[]any{operator.ManyAttempts, now.Add(-operator.UnissuedLasts).UnixMilli()}},
		{operator.WaitingParked, ofIntents + "i.state IN ('parked', 'refund_due') AND i.state = 'parked'", nil},
		{operator.WaitingRefundDue, ofIntents + "i.state IN ('parked', 'refund_due') AND i.state = 'refund_due'", nil},
		{operator.WaitingReversed, `SELECT c.uuid, c.currency, c.credit_lost - c.credit_written_off AS amount,
			(SELECT MAX(e.created_at) FROM events e WHERE e.card_uuid = c.uuid AND e.type = 'payment.reversed') AS since FROM cards c WHERE ` + isLost +
			// others are damaged, and doubted
			" AND c.credit_lost <= ? AND c.credit_written_off >= 0", []any{int64(card.Currency{}.Most())}},
	}
}

// readWaiting lists what waits for an operator.
func (r *reading) readWaiting(ctx context.Context) error {
	strays, err := r.t.transfers(ctx,
		selectTransfers+" t WHERE t.counted AND NOT t.attributed AND "+isStray+" AND NOT "+isAttributed+lastSeen+" LIMIT ?",
		someDoubts)
	if err != nil {
		return err
	}
	for _, x := range strays {
		r.waiting = append(r.waiting,
			operator.Waiting{Kind: operator.WaitingUnattributed, Currency: x.Currency, TxID: x.TxID, Output: x.Output,
				Amount: x.Amount, Since: x.FirstSeenAt})
	}
	for _, q := range waitingCards(r.now) {
		var found []struct {
			UUID     uuid.UUID     `db:"uuid"`
			Currency string        `db:"currency"`
			Amount   int64         `db:"amount"`
			Since    sql.NullInt64 `db:"since"`
		}
		if err := r.list(ctx, &found, "select what waits", q.query+" ORDER BY uuid LIMIT ?",
			append(q.args, someDoubts)...); err != nil {
			return err
		}
		for _, f := range found {
			w := operator.Waiting{Kind: q.kind, Currency: f.Currency, Amount: card.Amount(f.Amount), CardUUID: f.UUID}
			if f.Since.Valid {
				w.Since = fromMillis(f.Since.Int64)
			}
			r.waiting = append(r.waiting, w)
		}
	}
	return nil
}

// readUnconfirmed adds up the transfers in the mempool. Their blocks are not
// noted when a day is kept, so that they are read each time.
func (r *reading) readUnconfirmed(ctx context.Context) error {
	r.unconfirmed = map[string]card.Total{}
	for code := range r.t.s.coins {
		var sums string
		if err := r.get(ctx, &sums, "add up mempool",
			"SELECT "+sumOf("t.amount", "TRUE")+" FROM transfers t WHERE t.currency = ? AND t.counted AND t.height = 0",
			code); err != nil {
			return err
		}
		all, err := totals(sums)
		if err != nil {
			return fmt.Errorf("add up mempool: %w", err)
		}
		r.unconfirmed[code] = all[0]
	}
	return nil
}
