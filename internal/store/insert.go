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

// withQuota is a statement without and with a limit for the account's open
// cards. With the limit as a parameter alone, PostgreSQL would plan the
// statement for each value, which takes longer than running it.
type withQuota struct{ unlimited, limited statement }

func (l withQuota) to(limit card.USD) statement {
	if limit > 0 {
		return l.limited
	}
	return l.unlimited
}

// insertCard returns a statement that inserts a card. It stores nothing if
//   - the address has already received money, perhaps for another card,
//   - a deleted card had the address,
//   - the idempotency key is taken,
//   - the statement is limited, and the account's open cards would exceed the
//     limit, or
//   - a further condition, which begins with AND, is false.
//
// If another card has the uuid or the address, it fails with a duplicate key.
func (d dialect) insertCard(limited bool, and string) string {
	return "INSERT INTO cards (" + cardColumns + ") SELECT CAST(? AS " + strings.Join(d.cardTypes(), "), CAST(? AS ") + `)
	WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.currency = ? AND t.address = ?)
	AND NOT EXISTS (SELECT 1 FROM retired_addresses o WHERE o.currency = ? AND o.address = ?)
	AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.account_id = CAST(? AS ` + d.uuidType + `) AND k.idempotency_key = CAST(? AS TEXT))
	` + when(limited, " AND "+openUSD("CAST(? AS "+d.uuidType+")")+" + CAST(? AS BIGINT) <= CAST(? AS BIGINT)") + and + onKeyConflict
}

// onKeyConflict skips a card if a concurrent statement stores another one with
// its idempotency key. If a concurrent request of another operation stores the
// key, the trigger fails with a duplicate key. Without the columns, PostgreSQL
// would check every index for conflicts before each insert, which takes a
// seventh of the statement. Programs of all compatible versions need this
// index.
const onKeyConflict = " ON CONFLICT (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"

// ignoreDuplicate reports a card whose uuid, address or idempotency key is
// taken as not inserted, instead of as an error.
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

// isServiceAddress is the condition that an address belongs to the service: to
// its pool, to a card, or as the wallet's primary address, which ends the
// chain's fingerprint. serviceAddressArgs are its parameters.
const isServiceAddress = `(EXISTS (SELECT 1 FROM addresses w WHERE w.currency = ? AND w.address = CAST(? AS TEXT))
	OR EXISTS (SELECT 1 FROM cards w WHERE w.currency = ? AND w.address = CAST(? AS TEXT))
	OR EXISTS (SELECT 1 FROM chains w WHERE w.currency = ? AND w.fingerprint LIKE '% ' || CAST(? AS TEXT)))`

// exceptServiceAddress is a further condition for insertCard: that the card's
// refund address does not belong to the service.
const exceptServiceAddress = " AND NOT " + isServiceAddress

func serviceAddressArgs(c *card.Card) []any {
	coin, address := c.Coin.Code, c.RefundAddress.Reveal()
	return []any{coin, address, coin, address, coin, address}
}

// checkServiceAddress returns the result of an insert. The error is
// card.ErrOwnAddress if the card was rejected because its refund address
// belongs to the service.
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

// insertCards returns a statement that does what insertCard does for each card
// of a table, in order, and returns the uuids of the cards it stored. The table
// has the columns of cards, the limit, which is 0 for none, and the number of
// the card. The conditions are not joins, because PostgreSQL might read all
// transfers for those.
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

// batchTable returns the table of insertCards for parameters that are arrays.
// PostgreSQL always estimates it at a thousand rows. With a better estimate it
// would plan the statement for each call, which takes longer than inserting
// eight cards.
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

// cardValues returns the values of cardColumns. It takes the trace of the order
// from ctx.
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
