package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

type deliveryRow struct {
	eventRow
	Delivery string `db:"delivery_state"`
	DueAt    *int64 `db:"due_at"`
	Tries    int64  `db:"tries"`
	Attempts string `db:"attempts"`
}

// storedAttempt is the JSON of a webhook.Attempt in the column attempts.
type storedAttempt struct {
	At     int64  `json:"at"`   // Unix milliseconds
	Took   int64  `json:"took"` // milliseconds
	Status int    `json:"status,omitempty"`
	Answer string `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
}

var (
	errAttempts = errors.New("its attempts are not valid JSON and are ignored")
	errTries    = errors.New("its number of attempts is out of range and counts as 0")
	errDue      = errors.New("the time of its next attempt is out of range")
)

// checkDelivery returns an error if a number of a delivery is out of range.
func checkDelivery(dueAt *int64, tries int64) error {
	switch {
	case tries < 0 || tries > mostTries:
		return errTries
	case dueAt != nil && (*dueAt < 0 || *dueAt > maxMillis):
		return errDue
	}
	return nil
}

// mostTries is far above the number of attempts of any delivery.
const mostTries = 1000

// delivery decodes a row. If its attempts or their number are corrupt, it has
// none: the event is sent regardless of earlier attempts.
func (s *Store) delivery(ctx context.Context, r *deliveryRow) webhook.Delivery {
	stored, err := storedAttempts(r.Attempts)
	if err != nil {
		s.ReportCorrupt(ctx, "event", r.ID, errAttempts)
	}
	if err := checkDelivery(r.DueAt, r.Tries); err != nil {
		s.ReportCorrupt(ctx, "event", r.ID, err)
		if errors.Is(err, errTries) {
			r.Tries = 0
		}
	}
	d := webhook.Delivery{Event: r.event(), State: webhook.DeliveryState(r.Delivery), Tries: int(r.Tries),
		Attempts: make([]webhook.Attempt, len(stored))}
	for i, a := range stored {
		d.Attempts[i] = webhook.Attempt{At: fromMillis(a.At), Took: time.Duration(a.Took) * time.Millisecond,
			Status: a.Status, Answer: a.Answer, Error: a.Error}
	}
	if r.DueAt != nil {
		d.DueAt = fromMillis(*r.DueAt)
	}
	return d
}

func storedAttempts(text string) (stored []storedAttempt, err error) {
	if text == "[]" { // a shortcut: most due deliveries have no attempts yet
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	return stored, nil
}

func attemptsText(as []webhook.Attempt) (string, error) {
	stored := make([]storedAttempt, len(as))
	for i, a := range as {
		// PostgreSQL rejects NUL in a text.
		stored[i] = storedAttempt{a.At.UnixMilli(), a.Took.Milliseconds(), a.Status,
			strings.ReplaceAll(a.Answer, "\x00", ""), a.Error}
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escaping would make each bracket of a web page six times as long
	err := encoder.Encode(stored)
	return text.String(), err
}

// selectDeliveries returns a statement for the deliveries to a webhook that
// match where, with their events, in the given order. LIMIT is inside the
// subquery: the planner then looks up only the events of the deliveries found,
// however many it expects.
func selectDeliveries(where, order string) string {
	return "SELECT " + eventColumns + `,
		d.state AS delivery_state, d.due_at, d.tries, d.attempts
		FROM (SELECT d.* FROM deliveries d WHERE d.webhook_id = ? ` + where + " ORDER BY " + order + ` LIMIT ?) AS d
		JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq ORDER BY ` + order
}

func (s *Store) deliveries(ctx context.Context, found []deliveryRow, err error) ([]webhook.Delivery, error) {
	if err != nil {
		return nil, err
	}
	all := make([]webhook.Delivery, len(found))
	for i := range found {
		all[i] = s.delivery(ctx, &found[i])
	}
	return all, nil
}

// DueDeliveries implements webhook.Outbox.
func (s *Store) DueDeliveries(ctx context.Context, webhook uuid.UUID, now time.Time, n int) ([]webhook.Delivery,
	error) {
	found, err := selectMany[deliveryRow](ctx, s, prepared{s.r}, n, "select due deliveries",
		selectDeliveries("AND d.due_at <= ?", "d.due_at, d.seq"), webhook, now.UnixMilli(), n)
	return s.deliveries(ctx, found, err)
}

// DueRetries implements webhook.Outbox.
func (s *Store) DueRetries(ctx context.Context, webhook uuid.UUID, now time.Time, n int) ([]webhook.Delivery, error) {
	var found []deliveryRow
	err := s.list(ctx, s.r, &found, "select due retries", selectDeliveries("AND d.due_at > 0 AND d.due_at <= ?", "d.seq"),
		webhook, now.UnixMilli(), n)
	return s.deliveries(ctx, found, err)
}

// Deliveries implements webhook.Store.
func (s *Store) Deliveries(ctx context.Context, id uuid.UUID, filter webhook.DeliveryFilter) ([]webhook.Delivery,
	error) {
	where, args := "", []any{id}
	switch filter.State { // in the terms of the partial indexes
	case webhook.DeliveryPending:
		where = "AND d.due_at >= 0 " // with IS NOT NULL, SQLite would read all deliveries in order
	case webhook.DeliveryFailed:
		where = "AND d.state = 'failed' "
	case webhook.DeliveryDelivered:
		where = "AND d.state = 'delivered' "
	}
	if filter.Before > 0 {
		where, args = where+"AND d.seq < ? ", append(args, filter.Before)
	}
	var found []deliveryRow
	err := s.list(ctx, s.r, &found, "select deliveries", selectDeliveries(where, "d.seq DESC"),
		append(args, filter.Limit)...)
	all, err := s.deliveries(ctx, found, err)
	for i := range all {
		if errors.Is(checkDelivery(found[i].DueAt, 0), errDue) {
			all[i].DueAt = webhook.Immediately() // a time out of range can't be encoded for clients
		}
	}
	return all, err
}

// SaveDeliveries implements webhook.Tx. Most deliveries succeed at once: the
// values that they share are sent only once.
func (t *tx) SaveDeliveries(ctx context.Context, id uuid.UUID, before, after []webhook.Delivery) error {
	var atOnce, others [][]any
	for i, d := range after {
		attempts, err := attemptsText(d.Attempts)
		if err != nil {
			return fmt.Errorf("update deliveries: %w", err)
		}
		row := []any{d.Event.Seq, before[i].DueAt.UnixMilli(), attempts}
		if d.State == webhook.DeliveryDelivered && d.Tries == 1 {
			atOnce = append(atOnce, row)
		} else {
			others = append(others, append(row, d.State, d.Tries, orNoTime(d.DueAt)))
		}
	}
	if err := t.saveDeliveries(ctx, id, "'delivered', 1, CAST(NULL AS BIGINT)", atOnce, "BIGINT", "BIGINT",
		"TEXT"); err != nil {
		return err
	}
	return t.saveDeliveries(ctx, id, "v.column4, v.column5, v.column6", others, "BIGINT", "BIGINT", "TEXT", "TEXT",
		"INTEGER", "BIGINT")
}

// saveDeliveries updates deliveries from values, which begin with the columns
// seq, the previous due_at, and attempts. now is the new state, tries and
// due_at. It skips a delivery whose due_at has changed: another transaction
// updated it.
func (t *tx) saveDeliveries(ctx context.Context, webhook uuid.UUID, now string, values [][]any, types ...string) error {
	return inChunks(values, func(some [][]any) error {
		table, args := t.s.dialect.table(some, types...)
		_, err := t.s.exec(ctx, t.t, "update deliveries",
			`UPDATE deliveries SET attempts = v.column3, (state, tries, due_at) = (`+now+`) FROM `+table+
				` WHERE deliveries.seq = v.column1 AND deliveries.due_at = v.column2 AND deliveries.webhook_id = ?`,
			append(args, webhook)...)
		return err
	})
}

// Redeliver implements webhook.Tx.
func (t *tx) Redeliver(ctx context.Context, account, webhook, event uuid.UUID, now time.Time) error {
	n, err := t.s.exec(ctx, t.t, "redeliver", `UPDATE deliveries SET state = 'pending', due_at = ?, tries = 0
		WHERE webhook_id = ? AND account_id = ? AND seq = (SELECT seq FROM events WHERE id = ? AND account_id = ?)`,
		now.UnixMilli(), webhook, account, event, account)
	if err == nil && n == 0 {
		return card.ErrNoRow
	}
	return err
}

// RecoverDeliveries implements webhook.Tx.
func (t *tx) RecoverDeliveries(ctx context.Context, account, webhook uuid.UUID, since time.Time, after int64, n int,
	now time.Time) (due, last int64, err error) {
	err = t.s.get(ctx, t.t, &last, "select events", `SELECT COALESCE(MAX(seq), ?) FROM (SELECT seq FROM events
		WHERE account_id = ? AND seq > ? AND created_at >= ? ORDER BY seq LIMIT ?) AS page`, after, account, after, since.UnixMilli(), n)
	if err != nil || last == after {
		return 0, after, err
	}
	due, err = t.s.exec(ctx, t.t, "recover deliveries", `INSERT INTO deliveries (webhook_id, account_id, seq, state, due_at)
		SELECT w.id, e.account_id, e.seq, 'pending', CAST(? AS BIGINT) FROM webhooks w JOIN events e ON e.account_id = w.account_id
		WHERE w.id = ? AND w.enabled AND e.seq > ? AND e.seq <= ? AND e.created_at >= ? AND `+wanted+t.s.dialect.forShare+`
		ON CONFLICT (webhook_id, seq) DO UPDATE SET state = 'pending', due_at = excluded.due_at, tries = 0
		WHERE deliveries.state = 'failed' OR deliveries.due_at > excluded.due_at`,
		now.UnixMilli(), webhook, after, last, since.UnixMilli())
	return due, last, err
}

// DeleteDeliveries implements webhook.Store.
func (s *Store) DeleteDeliveries(ctx context.Context, webhook uuid.UUID, n int) (int64, error) {
	return s.exec(ctx, s.w, "delete deliveries", `DELETE FROM deliveries WHERE webhook_id = ? AND seq IN
		(SELECT seq FROM deliveries WHERE webhook_id = ? LIMIT ?)`, webhook, webhook, n)
}

// PruneDeliveries implements webhook.Outbox. A delivery is as old as its event,
// so its row needs no time.
func (s *Store) PruneDeliveries(ctx context.Context, before time.Time, n int) (int64, error) {
	var old []struct {
		Webhook uuid.UUID `db:"id"`
		Newest  int64     `db:"newest"`
	}
	err := s.list(ctx, s.w, &old, "select old deliveries", `SELECT id, newest FROM (SELECT w.id,
		(SELECT MIN(d.seq) FROM deliveries d WHERE d.webhook_id = w.id) AS oldest,
		(SELECT e.seq FROM events e WHERE e.account_id = w.account_id AND e.created_at < ? ORDER BY e.created_at DESC, e.seq DESC LIMIT 1) AS newest
		FROM webhooks w) AS q WHERE oldest <= newest`, before.UnixMilli())
	if err != nil {
		return 0, err
	}
	var all int64
	for _, w := range old {
		deleted, err := s.exec(ctx, s.w, "prune deliveries", `DELETE FROM deliveries WHERE webhook_id = ? AND seq IN
			(SELECT seq FROM deliveries WHERE webhook_id = ? AND seq <= ? AND due_at IS NULL LIMIT ?)`, w.Webhook, w.Webhook, w.Newest, int64(n)-all)
		all += deleted
		if err != nil || all == int64(n) {
			return all, err
		}
	}
	return all, nil
}
