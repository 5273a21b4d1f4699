package store

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
)

// A transfer t counts toward the card at its address unless attribution a, an
// operator's decision, overrides it.
const (
	attributionOf = "attributions a ON a.currency = t.currency AND a.txid = t.txid AND a.output = t.output"
	notAttributed = "NOT EXISTS (SELECT 1 FROM attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output)"
)

// attributionsSchema is the first version of the schema whose programs count
// attributed transfers.
const attributionsSchema = 8

// leaveBehind makes programs without attributions reject the database once it
// has one.
func (s *Store) leaveBehind(ctx context.Context, on runner) error {
	_, err := s.exec(ctx, on, "raise schema compatibility",
		"UPDATE schema_compatibility SET oldest = ? WHERE oldest < ? AND EXISTS (SELECT 1 FROM attributions)",
		attributionsSchema, attributionsSchema)
	return err
}

// LockChain implements operator.Tx. Every pass locks the row of its lease
// first.
func (t *tx) LockChain(ctx context.Context, currency string) error {
	var fences []int64
	return t.s.list(ctx, t.t, &fences, "lock chain", "SELECT fence FROM leases WHERE name = ?"+t.s.dialect.forUpdate,
		settle.LeaseName(currency))
}

type arrivalRow struct {
	transferRow
	OwnerUUID uuid.NullUUID            `db:"owner_uuid"`
	ID        uuid.NullUUID            `db:"id"` // of the attribution
	Kind      operator.AttributionKind `db:"kind"`
	CardUUID  uuid.NullUUID            `db:"card_uuid"`
	Note      string                   `db:"note"`
	Operator  string                   `db:"operator"`
	DecidedAt int64                    `db:"decided_at"`
}

const selectArrivals = `SELECT t.currency, t.txid, t.output, t.address, t.amount, t.height, t.locked, t.counted, t.first_seen_at, c.uuid AS owner_uuid,
	a.id, COALESCE(a.kind, '') AS kind, a.card_uuid, COALESCE(a.note, '') AS note, COALESCE(a.operator, '') AS operator, COALESCE(a.created_at, 0) AS decided_at
	FROM `

func (r *arrivalRow) arrival() operator.Arrival {
	a := operator.Arrival{Transfer: r.transfer(), CardUUID: r.OwnerUUID.UUID}
	if r.ID.Valid {
		a.Attribution = &operator.Attribution{
			TransferID: operator.TransferID{Currency: r.Currency, TxID: r.TxID, Output: r.Output}, ID: r.ID.UUID, Kind: r.Kind,
			CardUUID: r.CardUUID.UUID, Amount: a.Amount, Note: r.Note, Operator: r.Operator, CreatedAt: fromMillis(r.DecidedAt)}
	}
	return a
}

// arrivals returns the transfers t in from that match where.
func (s *Store) arrivals(ctx context.Context, on runner, from, where string, args ...any) ([]operator.Arrival, error) {
	var found []arrivalRow
	err := s.list(ctx, on, &found, "select arrivals", selectArrivals+from+" LEFT JOIN "+attributionOf+
		" LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address "+where, args...)
	all := make([]operator.Arrival, len(found))
	for i := range found {
		all[i] = found[i].arrival()
	}
	return all, err
}

// Arrival implements operator.Tx.
func (t *tx) Arrival(ctx context.Context, id operator.TransferID) (operator.Arrival, error) {
	found, err := t.s.arrivals(ctx, t.t, "transfers t", "WHERE t.currency = ? AND t.txid = ? AND t.output = ?",
		id.Currency, id.TxID, id.Output)
	if err == nil && len(found) == 0 {
		err = card.ErrNoRow
	}
	if err != nil {
		return operator.Arrival{}, err
	}
	return found[0], nil
}

// ArrivalsIn returns all transfers of a transaction, by output, in any
// currency, counted or not.
func (s *Store) ArrivalsIn(ctx context.Context, txid string) ([]operator.Arrival, error) {
	codes := make([]string, 0, len(s.coins))
	for code := range s.coins {
		codes = append(codes, code)
	}
	where, args, err := sqlx.In("WHERE t.currency IN (?) AND t.txid = ? ORDER BY t.currency, t.output", codes, txid)
	if err != nil {
		return nil, err
	}
	return s.arrivals(ctx, s.r, "transfers t", where, args...)
}

// isAttributed and isStray are whether transfer t has an attribution, and
// whether its address has no card. As scalar subqueries they cost two index
// lookups for each transfer; PostgreSQL turns a join or EXISTS into a scan of
// all cards.
const (
	isAttributed = "(SELECT a.id FROM attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) IS NOT NULL"
	isStray      = "(SELECT c.uuid FROM cards c WHERE c.currency = t.currency AND c.address = t.address) IS NULL"
	lastSeen     = " ORDER BY t.first_seen_at DESC, t.txid, t.output"
)

// Unattributed returns up to limit counted transfers to addresses without a
// card that have no attribution, last seen first.
func (s *Store) Unattributed(ctx context.Context, limit int) ([]card.Transfer, error) {
	t := &tx{s: s, t: s.r}
	return t.transfers(ctx,
		selectTransfers+" t WHERE t.counted AND NOT t.attributed AND "+isStray+" AND NOT "+isAttributed+lastSeen+" LIMIT ?",
		limit)
}

// Strays returns up to limit transfers to addresses without a card, last seen
// first. It includes transfers that left the chain or were attributed.
func (s *Store) Strays(ctx context.Context, limit int) ([]operator.Arrival, error) {
	return s.arrivals(ctx, s.r,
		"(SELECT * FROM transfers t WHERE t.attributed IS NOT NULL AND ("+isStray+" OR "+isAttributed+")"+lastSeen+
			" LIMIT ?) AS t", lastSeen, limit)
}

// newestCards is how many cards are searched for one of a currency.
const newestCards = 10_000

// Confirmations returns how many confirmations the newest card of a currency
// requires, or the currency's own number if it is not among the newest 10,000
// cards.
func (s *Store) Confirmations(ctx context.Context, coin card.Currency) (int, error) {
	var found []int
	err := s.list(ctx, s.r, &found, "select confirmations", `SELECT confirmations_required FROM
		(SELECT uuid, currency, confirmations_required FROM cards ORDER BY uuid DESC LIMIT ?) AS newest WHERE currency = ? ORDER BY uuid DESC LIMIT 1`, newestCards, coin.Code)
	if err != nil || len(found) == 0 {
		return coin.Confirmations, err
	}
	return found[0], nil
}

// InsertCard implements operator.Tx.
func (t *tx) InsertCard(ctx context.Context, c *card.Card) error {
	values, err := cardValues(ctx, c)
	if err != nil {
		return err
	}
	_, err = t.s.exec(ctx, t.t, "insert card",
		"INSERT INTO cards ("+cardColumns+") VALUES (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
	return err
}

// InsertAttributions implements operator.Tx.
func (t *tx) InsertAttributions(ctx context.Context, as []operator.Attribution) error {
	err := insertAll(ctx, t, "insert attributions",
		"attributions (currency, txid, output, id, kind, card_uuid, amount, note, operator, created_at)",
		[]string{"TEXT", "TEXT", "BIGINT", t.s.dialect.uuidType, "TEXT", t.s.dialect.uuidType, "BIGINT", "TEXT", "TEXT",
			"BIGINT"}, "", "", as, func(a operator.Attribution) []any {
			return []any{a.Currency, a.TxID, a.Output, a.ID, a.Kind, nullUUID(a.CardUUID), int64(a.Amount), a.Note, a.Operator,
				a.CreatedAt.UnixMilli()}
		})
	if err != nil {
		return err
	}
	err = inChunks(as, func(some []operator.Attribution) error {
		values := make([][]any, len(some))
		for i, a := range some {
			values[i] = []any{a.Currency, a.TxID, a.Output}
		}
		table, args := t.s.dialect.table(values, "TEXT", "TEXT", "BIGINT")
		_, err := t.s.exec(ctx, t.t, "mark transfers", "UPDATE transfers SET attributed = TRUE FROM "+table+
			" WHERE transfers.currency = v.column1 AND transfers.txid = v.column2 AND transfers.output = v.column3", args...)
		return err
	})
	if err != nil {
		return err
	}
	return t.s.leaveBehind(ctx, t.t)
}
