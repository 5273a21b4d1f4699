package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
)

// maxTransfers limits the transfers that are read with a card.
const maxTransfers = 100

// selectBaseCard selects a card's own columns, and the tip of its chain.
const selectBaseCard = "SELECT " + baseColumns + tipColumn + clientDataColumns + ", (" + hasActivity +
	") AS has_activity FROM cards c" + joinChain

// hasActivity is an expression for whether card c may have rows in other
// tables, such as transfers.
const hasActivity = "c.status <> 'awaiting_payment' OR c.payment_state = 'paid' OR c.received > 0 OR c.height > 0 OR c.refunded > 0"

// selectFullCard is selectCards with the client data and the transfers of the
// card.
func (d dialect) selectFullCard() string {
	return "SELECT " + fullColumns + clientDataColumns + ", " + d.transfersOfCard() + " AS transfers " + fromCards
}

// transfersOfCard is an expression for the transfers that count toward card c,
// the largest first, as JSON.
func (d dialect) transfersOfCard() string {
	const columns = "t.txid, t.output, t.amount, t.height, t.locked, t.first_seen_at FROM transfers t "
	return `CASE WHEN c.received > 0 THEN (SELECT ` + d.jsonRows + `(x.n, x.txid, x.amount, x.height, CASE WHEN x.locked THEN 1 ELSE 0 END, x.first_seen_at))
		FROM (SELECT COUNT(*) OVER () AS n, y.* FROM (SELECT ` + columns + "WHERE t.currency = c.currency AND t.address = c.address AND t.counted AND " + notAttributed +
		" UNION ALL SELECT " + columns + "JOIN " + attributionOf + ` WHERE a.card_uuid = c.uuid AND t.counted) y
			ORDER BY y.amount DESC, y.txid, y.output LIMIT ` + strconv.Itoa(maxTransfers) + ") x) END"
}

const selectCards = "SELECT " + fullColumns + " " + fromCards

// clientDataColumns is the client data. It can be long, so only single cards
// and pages for clients select it.
const clientDataColumns = ", c.reference, c.metadata "

// listedColumns are the columns of cards that clients see.
const listedColumns = ` c.uuid, c.account_id, c.created_at, c.usd_cents, c.currency, c.amount, c.address, c.rate, c.expires_at, c.confirmations_required,
	c.status, c.payment_state, c.received, c.settled, c.height, c.accepted, c.refunded, c.written_off, c.canceled_at, c.refund_address, c.credentials_purged_at`

const baseColumns = listedColumns + `, c.rate_at, c.rate_source, COALESCE(c.idempotency_key, '') AS idempotency_key, c.request_hash,
	c.credit_paid, c.credit_held, c.credit_surplus, c.credit_refunded, c.credit_lost, c.credit_written_off`

const fullColumns = baseColumns + joinedColumns

const tipColumn = ", COALESCE(k.height, 0) AS tip_height"

const joinedColumns = tipColumn + `,
	CASE WHEN c.refunded > 0 THEN ` + refundedAt + ` END AS refunded_at,
	CASE WHEN c.refunded > 0 THEN ` + refundTxID + ` END AS refund_txid,
	` + refused + ` AS refused,
	s.card_number, s.expiration_date, s.security_code, s.url, s.url_password, COALESCE(s.last_four, '') AS last_four`

// refused is 1 if all suppliers refused card c, otherwise 0. Only cards that
// were once paid can have an intent.
const refused = "CASE WHEN c.status = 'awaiting_payment' AND (c.payment_state = 'paid' OR c.settled > 0 OR c.refunded > 0) THEN " +
	"(SELECT COUNT(*) FROM intents i WHERE i.card_uuid = c.uuid AND i.state = 'refund_due') ELSE 0 END"

const (
	refundedAt = "(SELECT MAX(r.created_at) FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' AND r.amount > 0)"
	refundTxID = "(SELECT r.txid FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund' ORDER BY r.id DESC LIMIT 1)"
)

const fromCards = "FROM cards c" + joinCards

const joinChain = " LEFT JOIN chains k ON k.currency = c.currency"

const joinCards = joinChain + ` LEFT JOIN credentials s ON s.card_uuid = c.uuid`

type cardRow struct {
	UUID                  uuid.UUID         `db:"uuid"`
	AccountID             uuid.UUID         `db:"account_id"`
	CreatedAt             int64             `db:"created_at"`
	USDCents              int64             `db:"usd_cents"`
	Currency              string            `db:"currency"`
	Amount                int64             `db:"amount"`
	Address               string            `db:"address"`
	Rate                  int64             `db:"rate"`
	RateAt                int64             `db:"rate_at"`
	RateSource            string            `db:"rate_source"`
	ExpiresAt             int64             `db:"expires_at"`
	ConfirmationsRequired int               `db:"confirmations_required"`
	IdempotencyKey        string            `db:"idempotency_key"`
	RequestHash           []byte            `db:"request_hash"`
	Status                card.Status       `db:"status"`
	State                 card.PaymentState `db:"payment_state"`
	Received              int64             `db:"received"`
	Settled               int64             `db:"settled"`
	Height                int64             `db:"height"`
	TipHeight             int64             `db:"tip_height"`
	Accepted              int64             `db:"accepted"`
	Refunded              int64             `db:"refunded"`
	WrittenOff            int64             `db:"written_off"`
	CanceledAt            *int64            `db:"canceled_at"`
	Refused               bool              `db:"refused"`
	CreditPaid            int64             `db:"credit_paid"`
	CreditHeld            int64             `db:"credit_held"`
	CreditSurplus         int64             `db:"credit_surplus"`
	CreditRefunded        int64             `db:"credit_refunded"`
	CreditLost            int64             `db:"credit_lost"`
	CreditWrittenOff      int64             `db:"credit_written_off"`
	RefundAddress         []byte            `db:"refund_address"`
	RefundedAt            sql.NullInt64     `db:"refunded_at"`
	RefundTxID            sql.NullString    `db:"refund_txid"`
	CardNumber            []byte            `db:"card_number"`
	ExpirationDate        []byte            `db:"expiration_date"`
	SecurityCode          []byte            `db:"security_code"`
	URL                   []byte            `db:"url"`
	URLPassword           []byte            `db:"url_password"`
	LastFour              string            `db:"last_four"`
	PurgedAt              *int64            `db:"credentials_purged_at"`
	Reference             sql.NullString    `db:"reference"`
	Metadata              sql.NullString    `db:"metadata"`
}

// card decodes a row. The error is the reason why it is corrupt.
func (s *Store) card(r *cardRow) (*card.Card, error) {
	coin, known := s.coins[r.Currency]
	if !known {
		return nil, errUnknownCurrency
	}
	if !slices.Contains(card.PaymentStates(), r.State) {
		return nil, errUnknownState
	}
	if err := r.checkNumbers(); err != nil {
		return nil, err
	}
	c := &card.Card{
		UUID: r.UUID, AccountID: r.AccountID, CreatedAt: fromMillis(r.CreatedAt), USD: card.USD(r.USDCents), Coin: coin,
		Amount: card.Amount(r.Amount), Address: r.Address,
		Rate: card.Rate{USD: card.Decimal{Units: r.Rate, Scale: card.RateScale}, At: fromMillis(r.RateAt),
			Source: r.RateSource},
		ExpiresAt: fromMillis(r.ExpiresAt), ConfirmationsRequired: r.ConfirmationsRequired,
		IdempotencyKey: r.IdempotencyKey, RequestHash: r.RequestHash,
		Status: r.Status, State: r.State, Received: card.Amount(r.Received), Settled: card.Amount(r.Settled),
		Height: r.Height, TipHeight: r.TipHeight,
		Accepted: card.Amount(r.Accepted), Refunded: card.Amount(r.Refunded), WrittenOff: card.Amount(r.WrittenOff),
		Credit: card.Credit{Paid: card.Amount(r.CreditPaid), Held: card.Amount(r.CreditHeld),
			Surplus:  card.Amount(r.CreditSurplus),
			Refunded: card.Amount(r.CreditRefunded), Lost: card.Amount(r.CreditLost),
			WrittenOff: card.Amount(r.CreditWrittenOff)},
		Refused: r.Refused, RefundTxID: r.RefundTxID.String, SealedRefundAddress: r.RefundAddress,
		Metadata: card.Secret(r.Metadata.String),
	}
	if r.Reference.Valid {
		c.Reference = (*card.Secret)(&r.Reference.String)
	}
	if r.RefundedAt.Valid {
		c.RefundedAt = fromMillis(r.RefundedAt.Int64)
	}
	c.CredentialsPurgedAt = fromNullMillis(r.PurgedAt)
	if r.CanceledAt != nil {
		c.CanceledAt = fromMillis(*r.CanceledAt)
		c.State = stateOfCanceled(c.State)
	}
	c.Credit.Due = card.CreditOf(c).Due // earlier versions also stored one after a refund; it is never summed
	if r.CardNumber != nil {
		c.Sealed = r.sealed()
	}
	return c, nil
}

func (r *cardRow) sealed() *card.Sealed {
	return &card.Sealed{CardNumber: r.CardNumber, ExpirationDate: r.ExpirationDate, SecurityCode: r.SecurityCode,
		URL: r.URL, URLPassword: r.URLPassword,
		LastFour: r.LastFour}
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// oneCardRow is a card as its client sees it.
type oneCardRow struct {
	cardRow
	HasActivity bool   `db:"has_activity"`
	Transfers   []byte `db:"transfers"`
}

func (r oneCardRow) key() cardKey      { return cardKey{r.AccountID, r.UUID} }
func (r oneCardRow) hasActivity() bool { return r.HasActivity }

// CardByUUID implements order.Store. It takes one round trip, shared with
// concurrent calls, and two the first time that the card has activity.
func (s *Store) CardByUUID(ctx context.Context, account, id uuid.UUID) (*card.Card, error) {
	row, err := s.statements.cardByUUID.get(ctx, cardKey{account, id})
	return s.oneCard(&row, err)
}

func (s *Store) oneCard(row *oneCardRow, err error) (*card.Card, error) {
	if err != nil {
		return nil, s.fail("select card", err)
	}
	c, err := s.card(&row.cardRow)
	if err != nil {
		return nil, corruptCardError{row.UUID, err}
	}
	var transfers transferList
	if err := transfers.scan(row.Transfers); err != nil {
		return nil, s.fail("select card", err)
	}
	transfers.addTo(c)
	c.Tag = tag(visibleState(c), row.Transfers)
	return c, nil
}

// transferList is the transfers of selectFullCard.
type transferList []struct {
	all, amount, height, locked, firstSeenAt int64
	txID                                     string
}

// scan reads the JSON that the database returns; nil if there are no transfers.
func (l *transferList) scan(text []byte) error {
	if text == nil {
		return nil
	}
	var rows [][]json.RawMessage
	if err := json.Unmarshal(text, &rows); err != nil {
		return err
	}
	*l = make(transferList, len(rows))
	for i, row := range rows {
		x := &(*l)[i]
		for j, field := range []any{&x.all, &x.txID, &x.amount, &x.height, &x.locked, &x.firstSeenAt} {
			if err := json.Unmarshal(row[j], field); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l transferList) addTo(c *card.Card) {
	c.Transfers = make([]card.Transfer, len(l))
	for i, x := range l {
		c.Transfers[i] = card.Transfer{Currency: c.Coin.Code, TxID: x.txID, Amount: card.Amount(x.amount), Height: x.height,
			Locked:  x.locked == 1,
			Counted: true, FirstSeenAt: fromMillis(x.firstSeenAt)}
		c.Omitted = x.all - int64(len(l))
	}
	slices.SortStableFunc(c.Transfers, func(a, b card.Transfer) int { return a.FirstSeenAt.Compare(b.FirstSeenAt) })
}

// CardsByUUID implements issue.Store.
func (s *Store) CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error) {
	cards, corrupt, err := s.cardsByUUID(ctx, s.r, ids)
	s.reportCorruptCards(ctx, corrupt)
	return cards, err
}

func (s *Store) cardsByUUID(ctx context.Context, on runner, ids []uuid.UUID) (cards []*card.Card,
	corrupt []corruptCardError, err error) {
	err = inChunks(ids, func(some []uuid.UUID) error {
		these, args := in(s.dialect, "c.uuid", s.dialect.uuidType, some)
		found, err := selectMany[cardRow](ctx, s, on, len(some), "select cards",
			selectCards+" WHERE "+these+" ORDER BY c.uuid", args...)
		if err != nil {
			return err
		}
		whole, broken := s.decode(found)
		cards, corrupt = append(cards, whole...), append(corrupt, broken...)
		return nil
	})
	return cards, corrupt, err
}

// maxDue limits how many cards one transaction assesses only because of a new
// tip.
const maxDue = 10000

// LockCards implements settle.Tx. A corrupt card is due again with the next
// block, so that it is assessed as soon as its row is repaired.
func (t *tx) LockCards(ctx context.Context, currency string, addresses []string, tip card.Tip) ([]*card.Card, error) {
	found := map[uuid.UUID]bool{}
	// Cards that are affected only by the new tip are selected in the order of
	// their due heights, so that the limit delays none indefinitely.
	for _, due := range []struct {
		condition string
		arg       int64
	}{
		{"ready_height <= ? ORDER BY ready_height", tip.Height},
		{"payment_state IN ('unpaid', 'underpaid') AND expires_at <= ? ORDER BY expires_at", tip.Time.UnixMilli()},
	} {
		var ids []uuid.UUID
		query := "SELECT uuid FROM cards WHERE currency = ? AND " + due.condition + " LIMIT ?"
		if err := t.s.list(ctx, t.t, &ids, "select due cards", query, currency, due.arg, maxDue); err != nil {
			return nil, err
		}
		for _, id := range ids {
			found[id] = true
		}
	}
	err := inChunks(addresses, func(some []string) error {
		var ids []uuid.UUID
		of, args := in(t.s.dialect, "address", "TEXT", some)
		to, _ := in(t.s.dialect, "t.address", "TEXT", some)
		args = append([]any{currency}, args...)
		err := t.s.list(ctx, t.t, &ids, "select cards by address", "SELECT uuid FROM cards WHERE currency = ? AND "+of+
			" UNION SELECT a.card_uuid FROM transfers t JOIN "+attributionOf+" WHERE t.currency = ? AND "+to+
			" AND a.card_uuid IS NOT NULL", append(args, args...)...)
		if err != nil {
			return err
		}
		for _, id := range ids {
			found[id] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	cards, corrupt, err := t.lockCards(ctx, sortedIDs(found))
	if err != nil || len(corrupt) == 0 {
		return cards, err
	}
	t.s.reportCorruptCards(ctx, corrupt)
	return cards, inChunks(corrupt, func(some []corruptCardError) error {
		ids := make([]uuid.UUID, len(some))
		for i, d := range some {
			ids[i] = d.id
		}
		query, args, err := sqlx.In("UPDATE cards SET ready_height = ? WHERE uuid IN (?)", tip.Height+1, ids)
		if err != nil {
			return err
		}
		_, err = t.s.exec(ctx, t.t, "postpone corrupt cards", query, args...)
		return err
	})
}

// LockCardsByUUID implements issue.Tx and operator.Tx. The error is
// card.ErrCorrupt if one of the cards is corrupt.
func (t *tx) LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error) {
	set := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	cards, corrupt, err := t.lockCards(ctx, sortedIDs(set))
	if err == nil && len(corrupt) > 0 {
		return nil, corrupt[0]
	}
	return cards, err
}

// lockCards locks cards in the order of ids, which must be sorted, so that two
// transactions never deadlock.
func (t *tx) lockCards(ctx context.Context, ids []uuid.UUID) ([]*card.Card, []corruptCardError, error) {
	if t.s.dialect.forUpdate != "" {
		err := inChunks(ids, func(some []uuid.UUID) error {
			these, args := in(t.s.dialect, "uuid", t.s.dialect.uuidType, some)
			var locked []uuid.UUID
			return t.s.list(ctx, t.t, &locked, "lock cards",
				"SELECT uuid FROM cards WHERE "+these+" ORDER BY uuid"+t.s.dialect.forUpdate, args...)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	// Read after locking: locked rows do not change until the transaction ends.
	return t.s.cardsByUUID(ctx, t.t, ids)
}

// SaveVerdicts implements settle.Tx.
func (t *tx) SaveVerdicts(ctx context.Context, vs []card.Verdict) error {
	values := make([][]any, len(vs))
	var intents []uuid.UUID
	var events []card.Event
	for i, v := range vs {
		a, ready := v.Assessment, any(nil)
		if a.ReadyHeight > 0 {
			ready = a.ReadyHeight
		}
		k := a.Credit
		values[i] = []any{v.Card.UUID, storedState(a.State), int64(a.Received), int64(a.Settled), a.Height, ready,
			int64(k.Paid), int64(k.Held), int64(k.Surplus),
			int64(k.Refunded), int64(k.Lost), int64(k.WrittenOff), int64(k.Due)}
		if v.Issue {
			intents = append(intents, v.Card.UUID)
		}
		if v.Event != nil {
			events = append(events, *v.Event)
		}
	}
	err := inChunks(values, func(some [][]any) error {
		types := append([]string{t.s.dialect.uuidType, "TEXT"}, slices.Repeat([]string{"BIGINT"}, 11)...)
		table, args := t.s.dialect.table(some, types...)
		_, err := t.s.exec(ctx, t.t, "update cards", `UPDATE cards SET payment_state = v.column2, received = v.column3,
			settled = v.column4, height = v.column5, ready_height = v.column6, credit_paid = v.column7, credit_held = v.column8,
			credit_surplus = v.column9, credit_refunded = v.column10, credit_lost = v.column11, credit_written_off = v.column12,
			credit_due = v.column13
			FROM `+table+` WHERE cards.uuid = v.column1`, args...)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.insertIntents(ctx, intents); err != nil {
		return err
	}
	return t.InsertEvents(ctx, events)
}

func sortedIDs(set map[uuid.UUID]bool) []uuid.UUID {
	return slices.SortedFunc(maps.Keys(set), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}
