package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// retentionLease is the name of the lease for deleting old rows.
const retentionLease = "retention"

// AcquireRetention implements retention.Store.
func (s *Store) AcquireRetention(ctx context.Context, holder string, ttl time.Duration) (bool, error) {
	now := s.dialect.now
	n, err := s.exec(ctx, s.w, "acquire lease", `INSERT INTO leases (name, holder, fence, expires_at) VALUES (?, ?, 1, `+now+` + ?)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,
			fence = leases.fence + CASE WHEN leases.holder = excluded.holder THEN 0 ELSE 1 END
		WHERE leases.holder = excluded.holder OR leases.expires_at <= `+now, retentionLease, holder, ttl.Milliseconds())
	return n > 0, err
}

// ReleaseRetention implements retention.Store.
func (s *Store) ReleaseRetention(ctx context.Context, holder string) error {
	_, err := s.exec(ctx, s.w, "release lease", "UPDATE leases SET expires_at = 0 WHERE name = ? AND holder = ?",
		retentionLease, holder)
	return err
}

// AccountIDs implements retention.Store.
func (s *Store) AccountIDs(ctx context.Context) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	return ids, s.list(ctx, s.r, &ids, "select accounts", "SELECT id FROM accounts ORDER BY id")
}

// oldEvent is an event at the start of a feed.
type oldEvent struct {
	Seq  int64          `db:"seq"`
	Type card.EventType `db:"type"`
	Old  bool           `db:"old"`
}

// PruneEvents implements retention.Store.
func (s *Store) PruneEvents(ctx context.Context, account uuid.UUID, age time.Duration, n int) (int, error) {
	var oldest []oldEvent
	err := s.list(ctx, s.r, &oldest, "select oldest events",
		"SELECT seq, type, created_at <= (SELECT "+s.dialect.now+
			") - ? AS old FROM events WHERE account_id = ? ORDER BY seq LIMIT ?",
		age.Milliseconds(), account, n)
	if err != nil {
		return 0, err
	}
	old := 0
	for old < len(oldest) && oldest[old].Old {
		old++
	}
	if nothingToPrune(oldest[:old]) {
		return 0, nil
	}
	pruned := 0
	err = s.inTx(ctx, func(t *tx) (err error) {
		pruned, err = t.pruneEvents(ctx, account, oldest[:old])
		return err
	})
	return pruned, err
}

// nothingToPrune reports whether a feed starts with nothing but the feed.reset
// of an earlier pruning.
func nothingToPrune(es []oldEvent) bool {
	return len(es) == 0 || len(es) == 1 && es[0].Type == card.EventFeedReset
}

// pruneEvents deletes events from the start of a feed up to the first with a
// pending delivery.
func (t *tx) pruneEvents(ctx context.Context, account uuid.UUID, es []oldEvent) (int, error) {
	// A transaction that makes a delivery pending again holds the lock of its
	// webhook.
	var webhooks []uuid.UUID
	err := t.s.list(ctx, t.t, &webhooks, "lock webhooks",
		"SELECT id FROM webhooks WHERE account_id = ? ORDER BY id"+t.s.dialect.forUpdate, account)
	if err != nil {
		return 0, err
	}
	for _, w := range webhooks {
		var pending []int64
		err := t.s.list(ctx, t.t, &pending, "look for pending deliveries",
			"SELECT seq FROM deliveries WHERE webhook_id = ? AND seq <= ? AND due_at IS NOT NULL ORDER BY seq LIMIT 1", w,
			es[len(es)-1].Seq)
		if err != nil {
			return 0, err
		}
		for len(pending) > 0 && len(es) > 0 && es[len(es)-1].Seq >= pending[0] {
			es = es[:len(es)-1]
		}
		if nothingToPrune(es) {
			return 0, nil
		}
	}
	last := es[len(es)-1].Seq
	for _, w := range webhooks {
		if _, err := t.s.exec(ctx, t.t, "delete deliveries", "DELETE FROM deliveries WHERE webhook_id = ? AND seq <= ?", w,
			last); err != nil {
			return 0, err
		}
	}
	return len(es), t.unnoted(ctx, "account_id", []uuid.UUID{account}, func() error {
		_, err := t.s.exec(ctx, t.t, "delete events", "DELETE FROM events WHERE account_id = ? AND seq < ?", account, last)
		if err != nil {
			return err
		}
		_, err = t.s.exec(ctx, t.t, "reset feed", `UPDATE events SET id = ?, type = ?, card_uuid = NULL, status = NULL, payment_state = NULL, webhook_id = NULL,
			since = (SELECT a.created_at FROM accounts a WHERE a.id = events.account_id) WHERE account_id = ? AND seq = ?`,
			uuid.Must(uuid.NewV7()), card.EventFeedReset, account, last)
		return err
	})
}

// unnoted runs f, then deletes what the triggers of the books recorded about
// these ids. column names them. Notes of concurrent transactions stay: those
// cannot change the same rows before this one ends.
func (t *tx) unnoted(ctx context.Context, column string, ids []uuid.UUID, f func() error) error {
	var newest int64
	if err := t.s.get(ctx, t.t, &newest, "select newest note",
		"SELECT COALESCE(MAX(id), 0) FROM books_notes"); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return inChunks(ids, func(some []uuid.UUID) error {
		query, args, err := sqlx.In("DELETE FROM books_notes WHERE id > ? AND "+column+" IN (?)", newest, some)
		if err != nil {
			return err
		}
		_, err = t.s.exec(ctx, t.t, "delete notes", query, args...)
		return err
	})
}

// isOrderAlone is the condition that card c has nothing but its order. It uses
// scalar subqueries, as isStray does.
const isOrderAlone = `c.status = 'awaiting_payment' AND c.payment_state = 'expired' AND c.received = 0 AND c.settled = 0 AND c.accepted = 0 AND c.refunded = 0
	AND c.written_off = 0 AND c.credit_paid = 0 AND c.credit_held = 0 AND c.credit_surplus = 0 AND c.credit_refunded = 0 AND c.credit_lost = 0
	AND (SELECT t.txid FROM transfers t WHERE t.currency = c.currency AND t.address = c.address LIMIT 1) IS NULL
	AND (SELECT a.id FROM attributions a WHERE a.card_uuid = c.uuid LIMIT 1) IS NULL
	AND (SELECT r.id FROM resolutions r WHERE r.card_uuid = c.uuid LIMIT 1) IS NULL
	AND (SELECT i.state FROM intents i WHERE i.card_uuid = c.uuid) IS NULL
	AND (SELECT s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid) IS NULL
	AND (SELECT p.id FROM purges p WHERE p.card_uuid = c.uuid) IS NULL
	AND (SELECT e.seq FROM events e WHERE e.card_uuid = c.uuid LIMIT 1) IS NULL`

// RetireCards implements retention.Store.
func (s *Store) RetireCards(ctx context.Context, account uuid.UUID, currency string, age time.Duration,
	after uuid.UUID, n int) (int64, uuid.UUID, error) {
	var until int64
	err := s.get(ctx, s.r, &until, "select age",
		"SELECT CASE WHEN k.time < x.now THEN k.time ELSE x.now END - ? FROM chains k, (SELECT "+s.dialect.now+
			" AS now) x WHERE k.currency = ?",
		age.Milliseconds(), currency)
	if errors.Is(err, card.ErrNoRow) {
		return 0, uuid.Nil, nil // the chain was never watched
	}
	if err != nil {
		return 0, uuid.Nil, err
	}
	old, last, err := s.oldExpired(ctx, account, currency, until, after, n)
	if err != nil || len(old) == 0 {
		return 0, last, err
	}
	if old, err = s.neverReserved(ctx, old); err != nil || len(old) == 0 {
		return 0, last, err
	}
	var retired int64
	err = s.inTx(ctx, func(t *tx) (err error) {
		retired, err = t.retire(ctx, currency, old)
		return err
	})
	return retired, last, err
}

// oldExpired reads the next n expired cards. It returns the cards that can be
// retired, checked without a lock, and the last of the n cards; uuid.Nil if
// there are fewer.
func (s *Store) oldExpired(ctx context.Context, account uuid.UUID, currency string, until int64, after uuid.UUID,
	n int) (old []uuid.UUID, last uuid.UUID, err error) {
	var all []uuid.UUID
	if err := s.list(ctx, s.r, &all, "select expired cards",
		`SELECT uuid FROM cards WHERE account_id = ? AND payment_state = 'expired' AND status = 'awaiting_payment' AND currency = ?
			AND uuid > ? AND uuid < ? ORDER BY uuid NULLS FIRST LIMIT `+strconv.Itoa(n),
		account, currency, after, card.FirstUUID(fromMillis(until))); err != nil || len(all) == 0 {
		return nil, uuid.Nil, err
	}
	if len(all) == n {
		last = all[n-1]
	}
	err = inChunks(all, func(some []uuid.UUID) error {
		query, args, err := sqlx.In("SELECT c.uuid FROM cards c WHERE c.uuid IN (?) AND c.expires_at <= ? AND "+isOrderAlone+
			" ORDER BY c.uuid", some, until)
		if err != nil {
			return err
		}
		var found []uuid.UUID
		err = s.list(ctx, s.r, &found, "select unpaid cards", query, args...)
		old = append(old, found...)
		return err
	})
	return old, last, err
}

// neverReserved returns the cards without a reserved or held item. There are
// few suppliers, and an index has the cards of each.
func (s *Store) neverReserved(ctx context.Context, ids []uuid.UUID) (free []uuid.UUID, err error) {
	reserved := map[uuid.UUID]bool{}
	err = inChunks(ids, func(some []uuid.UUID) error {
		query, args, err := sqlx.In(`WITH RECURSIVE of (supplier) AS (SELECT MIN(supplier) FROM stock
			UNION ALL SELECT (SELECT MIN(q.supplier) FROM stock q WHERE q.supplier > of.supplier) FROM of WHERE of.supplier IS NOT NULL)
			SELECT q.card_uuid FROM of JOIN stock q ON q.supplier = of.supplier WHERE q.card_uuid IN (?)`, some)
		if err != nil {
			return err
		}
		var found []uuid.UUID
		err = s.list(ctx, s.r, &found, "select reserved stock", query, args...)
		for _, id := range found {
			reserved[id] = true
		}
		return err
	})
	for _, id := range ids {
		if !reserved[id] {
			free = append(free, id)
		}
	}
	return free, err
}

// retiredRow is a card that is deleted.
type retiredRow struct {
	UUID      uuid.UUID `db:"uuid"`
	AccountID uuid.UUID `db:"account_id"`
	Currency  string    `db:"currency"`
	Address   string    `db:"address"`
	USDCents  int64     `db:"usd_cents"`
	Amount    int64     `db:"amount"`
	ExpiresAt int64     `db:"expires_at"`
}

// retire deletes the cards if it still may, and keeps their addresses. Because
// it locks the chain, no pass can store a transfer to a card that is being
// deleted.
func (t *tx) retire(ctx context.Context, currency string, ids []uuid.UUID) (retired int64, err error) {
	if err := t.LockChain(ctx, currency); err != nil {
		return 0, err
	}
	// in the order that all transactions use
	query, args, err := sqlx.In("SELECT uuid FROM cards WHERE uuid IN (?) ORDER BY uuid"+t.s.dialect.forUpdate, ids)
	if err != nil {
		return 0, err
	}
	var locked []uuid.UUID
	if err := t.s.list(ctx, t.t, &locked, "lock cards", query, args...); err != nil {
		return 0, err
	}
	err = t.unnoted(ctx, "card_uuid", ids, func() error {
		return inChunks(ids, func(some []uuid.UUID) error {
			n, err := t.retireSome(ctx, some)
			retired += n
			return err
		})
	})
	if err != nil || retired == 0 {
		return 0, err
	}
	return retired, t.noteRetired(ctx, ids)
}

func (t *tx) retireSome(ctx context.Context, ids []uuid.UUID) (int64, error) {
	query, args, err := sqlx.In("DELETE FROM cards AS c WHERE c.uuid IN (?) AND "+isOrderAlone+
		" RETURNING uuid, account_id, currency, address, usd_cents, amount, expires_at", ids)
	if err != nil {
		return 0, err
	}
	var gone []retiredRow
	if err := t.s.list(ctx, t.t, &gone, "delete cards", query, args...); err != nil {
		return 0, err
	}
	err = insertAll(ctx, t, "insert retired addresses",
		"retired_addresses (currency, address, card_uuid, account_id, usd_cents, amount, expires_at, retired_at)",
		[]string{"TEXT", "TEXT", t.s.dialect.uuidType, t.s.dialect.uuidType, "BIGINT", "BIGINT", "BIGINT"},
		"v.*, "+t.s.dialect.now, "ON CONFLICT DO NOTHING", gone, func(r retiredRow) []any {
			return []any{r.Currency, r.Address, r.UUID, r.AccountID, r.USDCents, r.Amount, r.ExpiresAt}
		})
	return int64(len(gone)), err
}

// noteRetired makes the next reading of the books read the days of deleted
// cards again. It deletes the stored sums of a day without cards, which would
// look like a loss. A concurrent reading is not stored, because it would store
// the deleted cards.
func (t *tx) noteRetired(ctx context.Context, ids []uuid.UUID) error {
	days := map[int64]uuid.UUID{}
	for _, id := range ids {
		days[dayOfCard(id)] = id
	}
	for day, id := range days {
		if _, err := t.s.exec(ctx, t.t, "note deleted cards", "INSERT INTO books_notes (card_uuid) VALUES (?)",
			id); err != nil {
			return err
		}
		var left []uuid.UUID
		err := t.s.list(ctx, t.t, &left, "look for cards",
			"SELECT uuid FROM cards WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT 1", firstOf(day), firstOf(day+1))
		if err != nil {
			return err
		}
		if len(left) > 0 {
			continue
		}
		if _, err := t.s.exec(ctx, t.t, "outdate readings", "UPDATE books SET version = version + 1"); err != nil {
			return err
		}
		if _, err := t.s.exec(ctx, t.t, "forget kept day", "DELETE FROM books_days WHERE part = ? AND day = ?", ofCards,
			day); err != nil {
			return err
		}
	}
	return nil
}

// RetiredCards returns the deleted cards that transfers were sent to, by
// currency and address.
func (s *Store) RetiredCards(ctx context.Context, ts []card.Transfer) (map[[2]string]operator.RetiredCard, error) {
	all := map[[2]string]operator.RetiredCard{}
	return all, inChunks(ts, func(some []card.Transfer) error {
		values := make([][]any, len(some))
		for i, x := range some {
			values[i] = []any{x.Currency, x.Address}
		}
		table, args := s.dialect.table(values, "TEXT", "TEXT")
		var found []struct {
			retiredRow
			Account   string `db:"account"`
			RetiredAt int64  `db:"retired_at"`
		}
		err := s.list(ctx, s.r, &found, "select retired addresses", `SELECT r.card_uuid AS uuid, r.account_id, a.name AS account, r.currency, r.address, r.usd_cents, r.amount, r.expires_at, r.retired_at
			FROM `+table+` JOIN retired_addresses r ON r.currency = v.column1 AND r.address = v.column2 JOIN accounts a ON a.id = r.account_id`, args...)
		for _, f := range found {
			all[[2]string{f.Currency, f.Address}] = operator.RetiredCard{UUID: f.UUID, Account: f.Account,
				USD: card.USD(f.USDCents), Amount: card.Amount(f.Amount),
				ExpiredAt: fromMillis(f.ExpiresAt), DeletedAt: fromMillis(f.RetiredAt)}
		}
		return err
	})
}
