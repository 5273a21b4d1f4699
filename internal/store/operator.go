package store

import (
	"context"
	"database/sql"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// isLost is the condition that a card's money left the chain after the card was issued or the money refunded.
const isLost = "c.credit_lost > c.credit_written_off"

// inSnapshot runs f in a transaction in which everything is read as of one moment. f must not write.
func (s *Store) inSnapshot(ctx context.Context, f func(*tx) error) error {
	t, err := s.r.BeginTxx(ctx, &sql.TxOptions{Isolation: s.dialect.snapshot, ReadOnly: true})
	if err != nil {
		return s.fail("begin", err)
	}
	defer func() { _ = t.Rollback() }()
	return f(&tx{s: s, t: t})
}

// Record returns everything that is stored about a card but its credentials, as of one moment. The error is card.ErrNoRow if there is
// no such card.
func (s *Store) Record(ctx context.Context, id uuid.UUID) (operator.Record, error) {
	var r operator.Record
	err := s.inSnapshot(ctx, func(t *tx) error {
		cards, damaged, err := s.cardsByUUID(ctx, t.t, []uuid.UUID{id})
		if err != nil {
			return err
		}
		if len(damaged) > 0 {
			return damaged[0]
		}
		if len(cards) == 0 {
			return card.ErrNoRow
		}
		r = operator.Record{Card: cards[0], Credentials: cards[0].Sealed != nil}
		r.Card.Sealed = nil
		if err := s.get(ctx, t.t, &r.Account, "select account", "SELECT name FROM accounts WHERE id = ?", r.Card.AccountID); err != nil {
			return err
		}
		r.Transfers, err = s.transfers(ctx, t.t, selectTransfers+" t WHERE t.currency = ? AND t.address = ? AND "+notAttributed+
			" UNION ALL SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted, t.first_seen_at FROM transfers t JOIN "+
			attributionOf+" WHERE a.card_uuid = ? ORDER BY first_seen_at, txid", r.Card.Coin.Code, r.Card.Address, id)
		if err != nil {
			return err
		}
		if r.Intent, err = t.Intent(ctx, id); err != nil {
			return err
		}
		if r.Resolutions, err = t.resolutions(ctx, id); err != nil {
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
	}
	err := t.s.list(ctx, t.t, &found, "select intent", `SELECT state, COALESCE(supplier, '') AS supplier, COALESCE(reference, '') AS reference,
		first_asked_at, COALESCE(answer, '') AS answer, attempts, due_at, COALESCE(reason, '') AS reason FROM intents WHERE card_uuid = ?`, id)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	f := found[0]
	r := &operator.IntentRecord{State: f.State, Supplier: f.Supplier, Reference: f.Reference, Answer: f.Answer, Attempts: f.Attempts,
		DueAt: fromMillis(f.DueAt), Reason: f.Reason}
	if f.FirstAskedAt != nil {
		at := fromMillis(*f.FirstAskedAt)
		r.FirstAskedAt = &at
	}
	return r, nil
}

func (t *tx) resolutions(ctx context.Context, id uuid.UUID) ([]operator.Resolution, error) {
	var found []struct {
		ID        uuid.UUID               `db:"id"`
		Kind      operator.ResolutionKind `db:"kind"`
		Amount    int64                   `db:"amount"`
		Note      string                  `db:"note"`
		Operator  string                  `db:"operator"`
		CreatedAt int64                   `db:"created_at"`
	}
	err := t.s.list(ctx, t.t, &found, "select resolutions", `SELECT id, kind, amount, note, operator, created_at FROM resolutions WHERE card_uuid = ?
		UNION ALL SELECT id, CAST(? AS TEXT), amount, note, operator, created_at FROM attributions WHERE card_uuid = ? ORDER BY id`, id, operator.Attribute, id)
	all := make([]operator.Resolution, len(found))
	for i, f := range found {
		all[i] = operator.Resolution{ID: f.ID, CardUUID: id, Kind: f.Kind, Amount: card.Amount(f.Amount), Note: f.Note, Operator: f.Operator, CreatedAt: fromMillis(f.CreatedAt)}
	}
	return all, err
}

func (t *tx) events(ctx context.Context, id uuid.UUID) ([]card.Event, error) {
	return t.s.events(ctx, t.t, "select events of card", "WHERE card_uuid = ? ORDER BY seq", id)
}

// Told implements operator.Tx.
func (t *tx) Told(ctx context.Context, id uuid.UUID, kind card.EventType) (told bool, err error) {
	err = t.s.get(ctx, t.t, &told, "look for event", "SELECT EXISTS (SELECT 1 FROM events WHERE card_uuid = ? AND type = ?)", id, kind)
	return told, err
}

// InsertResolution implements operator.Tx.
func (t *tx) InsertResolution(ctx context.Context, r operator.Resolution, c *card.Card) error {
	_, err := t.s.exec(ctx, t.t, "insert resolution", "INSERT INTO resolutions (id, card_uuid, kind, amount, note, operator, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
		r.ID, r.CardUUID, r.Kind, int64(r.Amount), r.Note, r.Operator, r.CreatedAt.UnixMilli())
	if err != nil {
		return err
	}
	_, err = t.s.exec(ctx, t.t, "update card", "UPDATE cards SET accepted = ?, refunded = ?, written_off = ?, settled = ? WHERE uuid = ?",
		int64(c.Accepted), int64(c.Refunded), int64(c.WrittenOff), int64(c.Settled), c.UUID)
	return err
}

// SealedCredentials implements operator.Store.
func (s *Store) SealedCredentials(ctx context.Context, after uuid.UUID, n int) ([]operator.SealedCard, error) {
	var found []cardRow
	err := s.list(ctx, s.r, &found, "select credentials", `SELECT c.uuid, c.account_id, s.card_number, s.expiration_date, s.security_code, s.url,
		s.url_password FROM (SELECT * FROM credentials WHERE card_uuid > ? ORDER BY card_uuid LIMIT ?) AS s
		JOIN cards c ON c.uuid = s.card_uuid ORDER BY s.card_uuid`, after, n)
	cards := make([]operator.SealedCard, len(found))
	for i := range found {
		cards[i] = operator.SealedCard{UUID: found[i].UUID, AccountID: found[i].AccountID, Sealed: *found[i].sealed()}
	}
	return cards, err
}

// Books implements operator.Store.
func (s *Store) Books(ctx context.Context) (operator.Books, error) {
	var b operator.Books
	err := s.inSnapshot(ctx, func(t *tx) error {
		coins, err := t.coinBooks(ctx)
		if err != nil {
			return err
		}
		doubts, err := t.doubts(ctx)
		b = operator.Books{Coins: coins, Doubts: doubts}
		return err
	})
	return b, err
}

// coinBooks adds up the credits that are stored with the cards' assessments, and separately the transfers.
func (t *tx) coinBooks(ctx context.Context) ([]operator.CoinBooks, error) {
	var found []operator.CoinBooks
	query, args, err := sqlx.Named(`WITH
		facts AS (SELECT t.currency, t.amount, t.counted, a.kind = 'refund' AS returned, a.txid IS NULL AND c.uuid IS NULL AS stray
			FROM transfers t LEFT JOIN `+attributionOf+` LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
			WHERE t.counted OR a.kind = 'refund'),
		counted AS (SELECT currency, SUM(CASE WHEN counted THEN amount ELSE 0 END) AS counted,
			SUM(CASE WHEN counted AND stray THEN amount ELSE 0 END) AS unattributed,
			SUM(CASE WHEN counted AND returned THEN amount ELSE 0 END) AS returned,
			SUM(CASE WHEN NOT counted THEN amount ELSE 0 END) AS gone FROM facts GROUP BY currency),
		credited AS (SELECT currency,
			SUM(CASE WHEN status = :generated THEN credit_paid ELSE 0 END) AS made,
			SUM(CASE WHEN status <> :generated THEN credit_paid ELSE 0 END) AS open,
			SUM(credit_held) AS held, SUM(credit_surplus) AS surplus, SUM(credit_refunded) AS refunded,
			SUM(credit_lost) AS lost, SUM(credit_written_off) AS written_off,
			SUM(CASE WHEN payment_state IN (:paid, :reversed) THEN 1 ELSE 0 END) AS paid,
			SUM(CASE WHEN status = :generated THEN 1 ELSE 0 END) AS issued,
			SUM(CASE WHEN payment_state = :late THEN 1 ELSE 0 END) AS late
			FROM cards GROUP BY currency),
		currencies AS (SELECT currency FROM counted UNION SELECT currency FROM credited)
		SELECT u.currency, CAST(COALESCE(f.counted, 0) AS BIGINT) AS counted, CAST(COALESCE(f.unattributed, 0) AS BIGINT) AS unattributed,
			CAST(COALESCE(f.returned, 0) AS BIGINT) AS returned,
			CAST(COALESCE(h.made, 0) AS BIGINT) AS made, CAST(COALESCE(h.open, 0) AS BIGINT) AS open, CAST(COALESCE(h.held, 0) AS BIGINT) AS held,
			CAST(COALESCE(h.surplus, 0) AS BIGINT) AS surplus, CAST(COALESCE(h.refunded, 0) AS BIGINT) AS refunded,
			CAST(COALESCE(h.lost, 0) + COALESCE(f.gone, 0) AS BIGINT) AS lost, CAST(COALESCE(h.written_off, 0) AS BIGINT) AS writtenoff,
			COALESCE(h.paid, 0) AS paid, COALESCE(h.issued, 0) AS issued, COALESCE(h.late, 0) AS late
		FROM currencies u LEFT JOIN counted f ON f.currency = u.currency LEFT JOIN credited h ON h.currency = u.currency ORDER BY u.currency`,
		map[string]any{"generated": card.Generated, "late": card.Late, "paid": card.Paid, "reversed": card.Reversed})
	if err != nil {
		return nil, err
	}
	err = t.s.list(ctx, t.t, &found, "add up", query, args...)
	return found, err
}

// someDoubts limits how many discrepancies of one kind are returned.
const someDoubts = 20

// doubts returns the discrepancies. In correct books every query finds nothing.
func (t *tx) doubts(ctx context.Context) ([]operator.Doubt, error) {
	var all []operator.Doubt
	for _, d := range []struct {
		text, query string
	}{
		{"its received amount does not match its transfers", `SELECT c.uuid FROM cards c WHERE c.received <> (SELECT COALESCE(SUM(t.amount), 0)
			FROM transfers t WHERE t.currency = c.currency AND t.address = c.address AND t.counted AND ` + notAttributed + `)
			+ (SELECT COALESCE(SUM(t.amount), 0) FROM attributions a JOIN transfers t ON t.currency = a.currency AND t.txid = a.txid AND t.output = a.output
			WHERE a.card_uuid = c.uuid AND t.counted)`},
		{"its credits do not add up to its received amount", `SELECT c.uuid FROM cards c
			WHERE c.credit_paid + c.credit_held + c.credit_surplus + c.credit_refunded <> c.received`},
		{"its refunded amount does not match its resolutions", `SELECT c.uuid FROM cards c WHERE c.refunded <> (SELECT COALESCE(SUM(r.amount), 0)
			FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund')`},
		{"its written-off amount does not match its resolutions", `SELECT c.uuid FROM cards c WHERE c.written_off <> (SELECT COALESCE(SUM(r.amount), 0)
			FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'write_off')`},
		{"it is issued, but has no credentials", "SELECT c.uuid FROM cards c WHERE c.status = 'generated' AND NOT EXISTS (SELECT 1 FROM credentials s WHERE s.card_uuid = c.uuid)"},
		{"it has credentials, but is not issued", "SELECT c.uuid FROM cards c JOIN credentials s ON s.card_uuid = c.uuid WHERE c.status <> 'generated'"},
		{"it is issued, but its intent is not done", "SELECT c.uuid FROM cards c WHERE c.status = 'generated' AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.card_uuid = c.uuid AND i.state = 'done')"},
		{"its intent is done, but it is not issued", "SELECT c.uuid FROM cards c JOIN intents i ON i.card_uuid = c.uuid WHERE i.state = 'done' AND c.status <> 'generated'"},
		{"it is paid, but has no intent", "SELECT c.uuid FROM cards c WHERE c.payment_state = 'paid' AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.card_uuid = c.uuid)"},
		{"it is paid, but its issuing is parked: retry or refund it", "SELECT c.uuid FROM cards c JOIN intents i ON i.card_uuid = c.uuid WHERE i.state = 'parked' AND c.payment_state = 'paid'"},
		{"it is paid, but the supplier declined it: retry or refund it", "SELECT c.uuid FROM cards c JOIN intents i ON i.card_uuid = c.uuid WHERE i.state = 'refund_due' AND c.payment_state = 'paid'"},
		{"the supplier was asked ten times or more, and it is not issued yet", `SELECT c.uuid FROM cards c JOIN intents i ON i.card_uuid = c.uuid
			WHERE i.state IN ('open', 'pending') AND i.attempts >= 10 AND c.payment_state = 'paid'`},
		{"its money left the chain after it was issued or refunded: write it off, or wait for it", "SELECT c.uuid FROM cards c WHERE " + isLost},
		{"the account's events have gaps", `SELECT a.id FROM accounts a WHERE a.last_seq <> (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.account_id = a.id)
			UNION SELECT x.account_id FROM (SELECT e.account_id, e.type, e.seq, LAG(e.seq) OVER (PARTITION BY e.account_id ORDER BY e.seq) AS previous FROM events e) x
			WHERE x.type <> 'feed.reset' AND x.seq <> COALESCE(x.previous, 0) + 1`},
	} {
		var ids []uuid.UUID
		if err := t.s.list(ctx, t.t, &ids, "look for doubts", d.query+" LIMIT ?", someDoubts); err != nil {
			return nil, err
		}
		for _, id := range ids {
			all = append(all, operator.Doubt{ID: id, Text: d.text})
		}
	}
	damaged, err := t.damagedRows(ctx)
	return append(all, damaged...), err
}
