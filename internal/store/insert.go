package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/trace"
)

// withQuota is a statement without and with a limit of what an account may have
// open. If the limit were a parameter alone, PostgreSQL would plan the
// statement for its value anew each time, which costs more than the rest.
type withQuota struct{ unlimited, limited statement }

func (l withQuota) to(limit card.USD) statement {
	if limit > 0 {
		return l.limited
	}
	return l.unlimited
}

// insertCard returns a statement that stores nothing if the address has already
// received money, because nobody could tell whose that is; if a card that was
// deleted had the address; if the idempotency key is taken; if the statement is
// limited and the account's open cards would add up to more; or if a further
// condition, which begins with AND, is not true. If another card has the uuid
// or the address, it fails with a duplicate key.
func (d dialect) insertCard(limited bool, and string) string {
	return "INSERT INTO cards (" + cardColumns + ") SELECT CAST(? AS " + strings.Join(d.cardTypes(), "), CAST(? AS ") + `)
	WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = ? AND t.address = ?)
	AND NOT EXISTS (SELECT 1 FROM retired_addresses o WHERE o.currency = ? AND o.address = ?)
	AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.account_id = CAST(? AS ` + d.uuidType + `) AND k.idempotency_key = CAST(? AS TEXT))
	` + when(limited, " AND "+openUSD("CAST(? AS "+d.uuidType+")")+" + CAST(? AS BIGINT) <= CAST(? AS BIGINT)") + and + onKeyConflict
}

// onKeyConflict leaves out cards whose idempotency key was taken by another card
// during the statement. If another request took it, the trigger of
// idempotency_keys fails the statement with a duplicate key. Without the
// columns, PostgreSQL would look for a conflict in every index before each
// insert, which takes a seventh of the statement. Every program that the schema
// allows needs this index.
const onKeyConflict = " ON CONFLICT (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"

// ignoreDuplicate returns what became of a card; that its uuid, address or
// idempotency key is taken is no error.
func ignoreDuplicate(inserted bool, err error) (bool, error) {
	if errors.Is(err, card.ErrDuplicate) {
		return false, nil
	}
	return inserted, err
}

// insertCardArgs returns the parameters of insertCard.
func insertCardArgs(ctx context.Context, c *card.Card, limit card.USD) ([]any, error) {
	args, err := cardValues(ctx, c)
	args = append(args, c.Coin.Code, c.Address, c.Coin.Code, c.Address, c.AccountID, nullString(c.IdempotencyKey))
	if limit > 0 {
		args = append(args, c.AccountID, int64(c.USD), int64(limit))
	}
	if c.RefundAddress != "" {
		args = append(args, serviceAddressArgs(c)...)
	}
	return args, err
}

// isServiceAddress is a condition for an address that is one of the service's own: of its
// pool, of a card, or the wallet's primary address, which ends the fingerprint
// of the chain. Its parameters are serviceAddressArgs.
const isServiceAddress = `(EXISTS (SELECT 1 FROM addresses w WHERE w.currency = ? AND w.address = CAST(? AS TEXT))
	OR EXISTS (SELECT 1 FROM cards w WHERE w.currency = ? AND w.address = CAST(? AS TEXT))
	OR EXISTS (SELECT 1 FROM chains w WHERE w.currency = ? AND w.fingerprint LIKE '% ' || CAST(? AS TEXT)))`

// exceptServiceAddress is a further condition for insertCard: that the card's refund address
// is not one of the service's own.
const exceptServiceAddress = " AND NOT " + isServiceAddress

func serviceAddressArgs(c *card.Card) []any {
	coin, address := c.Coin.Code, c.RefundAddress.Reveal()
	return []any{coin, address, coin, address, coin, address}
}

// checkServiceAddress returns the result of an insertion. The error is card.ErrOwnAddress
// if the card was not stored because its refund address is one of the service's
// own.
func (s *Store) checkServiceAddress(ctx context.Context, c *card.Card, inserted bool, err error) (bool, error) {
	if inserted || err != nil || c.RefundAddress == "" {
		return inserted, err
	}
	var own bool
	if err := s.get(ctx, s.r, &own, "look for a refund address", "SELECT "+isServiceAddress, serviceAddressArgs(c)...); err != nil {
		return false, err
	}
	if own {
		return false, card.ErrOwnAddress
	}
	return false, nil
}

// insertCards returns a statement that does the same as insertCard for each
// card of a table, in its order, and returns the uuids of those that it stored.
// The table's columns are those of cards, the limit, which may be 0 for none,
// and the number of the card. The conditions are no joins: for these PostgreSQL
// might read all transfers.
func (d dialect) insertCards(limited bool, table string) string {
	columns := make([]string, len(d.cardTypes()))
	for i := range columns {
		columns[i] = "column" + strconv.Itoa(i+1)
	}
	limit, number := "v.column"+strconv.Itoa(len(columns)+1), "v.column"+strconv.Itoa(len(columns)+2)
	return "INSERT INTO cards (" + cardColumns + ") SELECT " + strings.Join(columns, ", ") + `
	FROM (SELECT v.*` + when(limited, ", SUM(column4) OVER (PARTITION BY column2 ORDER BY "+number+") AS usd_cents") + " FROM " + table + `) AS v
	WHERE (SELECT 1 FROM transfers t WHERE t.currency = v.column5 AND t.address = v.column7 LIMIT 1) IS NULL
	AND (SELECT 1 FROM retired_addresses o WHERE o.currency = v.column5 AND o.address = v.column7) IS NULL
	AND (SELECT 1 FROM idempotency_keys k WHERE k.account_id = v.column2 AND k.idempotency_key = v.column13) IS NULL
	` + when(limited, "AND CASE WHEN "+limit+" = 0 THEN TRUE ELSE "+openUSD("v.column2")+" + v.usd_cents <= "+limit+" END") + `
	ORDER BY ` + number + onKeyConflict + ` RETURNING uuid`
}

// batchTypes returns the types of the table of insertCards.
func (d dialect) batchTypes() []string { return append(d.cardTypes(), "BIGINT", "BIGINT") }

// batchTable returns the table of insertCards where its parameters are arrays.
// PostgreSQL takes it for one of a thousand rows, whatever the arrays have. If
// it knew better, it would plan the statement for these arrays anew each time,
// which takes longer than to run it for eight cards.
func (d dialect) batchTable() string {
	call, names := unnest(d.batchTypes())
	return "ROWS FROM (" + call + ", generate_subscripts(CAST('{}' AS INTEGER[]), 1)) AS v (" + names + ")"
}

func when(wanted bool, sql string) string {
	if wanted {
		return sql
	}
	return ""
}

// openUSD is an expression for the sum of an account's open cards.
func openUSD(account string) string {
	return "(SELECT COALESCE(SUM(" + countedUSD("o.usd_cents") + "), 0) FROM cards o WHERE o.account_id = " + account +
		" AND o.payment_state IN ('unpaid', 'underpaid'))"
}

// cardColumns are the columns of a new card.
const cardColumns = `uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source,
	expires_at, confirmations_required, idempotency_key, request_hash, credit_due, refund_address, reference, metadata, trace_parent`

// cardTypes returns the types of cardColumns.
func (d dialect) cardTypes() []string {
	return []string{d.uuidType, d.uuidType, "BIGINT", "BIGINT", "TEXT", "BIGINT", "TEXT", "BIGINT", "BIGINT", "TEXT",
		"BIGINT", "INTEGER", "TEXT", d.bytes, "BIGINT", d.bytes, "TEXT", "TEXT", "TEXT"}
}

// cardValues returns the values of cardColumns. ctx is that of the order, whose
// trace is stored.
func cardValues(ctx context.Context, c *card.Card) ([]any, error) {
	rate, err := c.Rate.USD.Rescale(card.RateScale)
	if err != nil {
		return nil, fmt.Errorf("insert card: rate %w", err)
	}
	return []any{c.UUID, c.AccountID, c.CreatedAt.UnixMilli(), int64(c.USD), c.Coin.Code, int64(c.Amount), c.Address,
		rate.Units, c.Rate.At.UnixMilli(), c.Rate.Source, c.ExpiresAt.UnixMilli(), c.ConfirmationsRequired,
		nullString(c.IdempotencyKey), c.RequestHash, int64(c.Credit.Due), c.SealedRefundAddress,
		nullSecret(c.Reference), nullString(c.Metadata.Reveal()), orNull(trace.Parent(ctx))}, nil
}
