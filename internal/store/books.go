package store

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// SQLite can't add up integers beyond 64 bits, so the high and the low 32 bits of amounts are added up apart.
const (
	high = " >> 32"
	low  = " & 4294967295"
)

// sumOf returns a column that adds up an amount, 0 for none, in the rows for which a condition holds; a sum reads it.
func sumOf(amount, condition string) string {
	part := func(bits string) string {
		return "CAST(COALESCE(SUM(CASE WHEN " + condition + " THEN " + amount + bits + " END), 0) AS TEXT)"
	}
	return part(high) + " || ' ' || " + part(low)
}

// sum is a column of sumOf.
type sum struct{ card.Total }

// Scan implements sql.Scanner.
func (s *sum) Scan(from any) error {
	text := fmt.Sprint(from)
	if bytes, ok := from.([]byte); ok {
		text = string(bytes)
	}
	var total, rest big.Int
	if _, err := fmt.Sscan(text, &total, &rest); err != nil {
		return err
	}
	total.Add(total.Lsh(&total, 32), &rest)
	var err error
	s.Total, err = card.ParseTotal(total.String())
	return err
}

// notSum returns a condition: that an amount is not what the amounts of a query, in its column amount, add up to.
func notSum(amount, query string) string {
	sum := func(bits string) string { return "CAST(COALESCE(SUM(x.amount" + bits + "), 0) AS BIGINT)" }
	return "(SELECT " + sum(high) + " + (" + sum(low) + high + ") <> (" + amount + high + ") OR (" + sum(low) + low + ") <> (" + amount + low + ") FROM (" + query + ") x)"
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
	var moved []struct {
		Currency                              string
		Counted, Unattributed, Returned, Gone sum
	}
	err := t.s.list(ctx, t.t, &moved, "add up transfers", `SELECT t.currency, `+strings.Join([]string{
		sumOf("t.amount", "t.counted") + " AS counted",
		sumOf("t.amount", "t.counted AND a.txid IS NULL AND c.uuid IS NULL") + " AS unattributed",
		sumOf("t.amount", "t.counted AND a.kind = 'refund'") + " AS returned",
		sumOf("t.amount", "NOT t.counted") + " AS gone",
	}, ", ")+` FROM transfers t LEFT JOIN `+attributionOf+` LEFT JOIN cards c ON c.currency = t.currency AND c.address = t.address
		WHERE t.counted OR a.kind = 'refund' GROUP BY t.currency`)
	if err != nil {
		return nil, err
	}
	var credited []struct {
		Currency                                              string
		Made, Open, Held, Surplus, Refunded, Lost, WrittenOff sum
		Paid, Issued, Late                                    int64
	}
	err = t.s.list(ctx, t.t, &credited, "add up cards", `SELECT c.currency, `+strings.Join([]string{
		sumOf("c.credit_paid", "c.status = 'generated'") + " AS made",
		sumOf("c.credit_paid", "c.status <> 'generated'") + " AS open",
		sumOf("c.credit_held", "TRUE") + " AS held", sumOf("c.credit_surplus", "TRUE") + " AS surplus", sumOf("c.credit_refunded", "TRUE") + " AS refunded",
		sumOf("c.credit_lost", "TRUE") + " AS lost", sumOf("c.credit_written_off", "TRUE") + " AS writtenoff",
		"SUM(CASE WHEN c.payment_state IN ('paid', 'reversed') THEN 1 ELSE 0 END) AS paid",
		"SUM(CASE WHEN c.status = 'generated' THEN 1 ELSE 0 END) AS issued",
		"SUM(CASE WHEN c.payment_state = 'late' THEN 1 ELSE 0 END) AS late",
	}, ", ")+" FROM cards c GROUP BY c.currency")
	if err != nil {
		return nil, err
	}
	coins := map[string]operator.CoinBooks{}
	for _, m := range moved {
		coins[m.Currency] = operator.CoinBooks{Currency: m.Currency, Counted: m.Counted.Total, Unattributed: m.Unattributed.Total, Returned: m.Returned.Total, Lost: m.Gone.Total}
	}
	for _, k := range credited {
		b := coins[k.Currency]
		b.Currency, b.Made, b.Open, b.Held, b.Surplus, b.Refunded = k.Currency, k.Made.Total, k.Open.Total, k.Held.Total, k.Surplus.Total, k.Refunded.Total
		b.Lost, b.WrittenOff, b.Paid, b.Issued, b.Late = b.Lost.Add(k.Lost.Total), k.WrittenOff.Total, k.Paid, k.Issued, k.Late
		coins[k.Currency] = b
	}
	all := make([]operator.CoinBooks, 0, len(coins))
	for _, currency := range slices.Sorted(maps.Keys(coins)) {
		all = append(all, coins[currency])
	}
	return all, nil
}

// someDoubts limits how many discrepancies of one kind are returned.
const someDoubts = 20

// doubts returns the discrepancies. In correct books every query finds nothing.
func (t *tx) doubts(ctx context.Context) ([]operator.Doubt, error) {
	var all []operator.Doubt
	for _, d := range []struct {
		text, query string
	}{
		{"its received amount does not match its transfers", `SELECT c.uuid FROM cards c WHERE ` + notSum("c.received", `SELECT t.amount FROM transfers t
			WHERE t.currency = c.currency AND t.address = c.address AND t.counted AND `+notAttributed+` UNION ALL
			SELECT t.amount FROM transfers t JOIN `+attributionOf+" WHERE a.card_uuid = c.uuid AND t.counted")},
		{"its credits do not add up to its received amount", "SELECT c.uuid FROM cards c WHERE " + notSum("c.received",
			"SELECT c.credit_paid AS amount UNION ALL SELECT c.credit_held UNION ALL SELECT c.credit_surplus UNION ALL SELECT c.credit_refunded")},
		{"its refunded amount does not match its resolutions", "SELECT c.uuid FROM cards c WHERE " + notSum("c.refunded",
			"SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'refund'")},
		{"its written-off amount does not match its resolutions", "SELECT c.uuid FROM cards c WHERE " + notSum("c.written_off",
			"SELECT r.amount FROM resolutions r WHERE r.card_uuid = c.uuid AND r.kind = 'write_off'")},
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
