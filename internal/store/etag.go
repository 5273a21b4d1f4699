package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// A tag changes whenever that changes of which a client sees something in a
// card. It costs much less than the card: the database returns one text of what
// it is made of. A column of cards that may change, and that a client sees
// something of, must be in changing.

// changing is an expression for that part of card c, without its transfers,
// that may change. The tip matters only where something has arrived.
const changing = stateBefore +
	`CASE WHEN c.received > 0 OR c.height > 0 THEN COALESCE((SELECT k.height FROM chains k WHERE k.currency = c.currency), 0) ELSE 0 END` +
	stateAfter + `,
	CASE WHEN c.status = 'generated' AND (SELECT s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN 1 ELSE 0 END,
	CASE WHEN c.refunded > 0 THEN COALESCE(` + refundedAt + `, 0) ELSE 0 END, CASE WHEN c.refunded > 0 THEN COALESCE(` + refundTxID + `, '') ELSE '' END, CASE WHEN c.payment_state = 'paid' THEN ` + refused + " ELSE 0 END)"

// baseState is what changing is of a card to which nothing has happened
// (cardReader).
const baseState = stateBefore + "0" + stateAfter + ", 0, 0, '', 0)"

const (
	stateBefore = "concat_ws(' ', c.uuid, c.status, c.payment_state, c.received, c.settled, c.height, "
	stateAfter  = ", c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0), COALESCE(c.credentials_purged_at, 0)"
)

// visibleState returns what changing is of a card that was read.
func visibleState(c *card.Card) []byte {
	var tip, canceledAt, purgedAt, refundedAt, made, refused int64
	if c.Received > 0 || c.Height > 0 {
		tip = c.TipHeight
	}
	if !c.CanceledAt.IsZero() {
		canceledAt = c.CanceledAt.UnixMilli()
	}
	if c.CredentialsPurgedAt != nil {
		purgedAt = c.CredentialsPurgedAt.UnixMilli()
	}
	if c.Sealed != nil {
		made = 1
	}
	if !c.RefundedAt.IsZero() {
		refundedAt = c.RefundedAt.UnixMilli()
	}
	if c.Refused && c.State == card.Paid {
		refused = 1
	}
	return fmt.Appendf(nil, "%s %s %s %d %d %d %d %d %d %d %d %d %d %d %s %d", c.UUID, c.Status, storedState(c.State),
		c.Received, c.Settled, c.Height, tip, c.Accepted, c.Refunded,
		c.WrittenOff, canceledAt, purgedAt, made, refundedAt, c.RefundTxID, refused)
}

// tag returns the tag of a card from what it is made of: changing, and the
// transfers as the database returns them, if they are shown.
func tag(changing, transfers []byte) string {
	sum := sha256.Sum256(slices.Concat(changing, []byte{0}, transfers))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// tagRow is what the tag of a card is made of.
type tagRow struct {
	cardKey
	Changing    []byte `db:"changing"`
	HasActivity bool   `db:"has_activity"`
	Transfers   []byte `db:"transfers"`
}

func (r tagRow) hasActivity() bool { return r.HasActivity }

const (
	tagKey        = "SELECT c.account_id, c.uuid, "
	selectBaseTag = tagKey + baseState + " AS changing, " + hasActivity + " AS has_activity FROM cards c"
)

func (d dialect) selectFullTag() string {
	return tagKey + changing + " AS changing, " + d.transfersOfCard() + " AS transfers FROM cards c"
}

// CardTag implements order.Tags. It is one round trip, which it may share with
// others, and two for the first time that something has happened to the card.
func (s *Store) CardTag(ctx context.Context, account, id uuid.UUID) (string, error) {
	row, err := s.statements.cardTag.get(ctx, cardKey{account, id})
	if err != nil {
		return "", s.fail("select tag of card", err)
	}
	return tag(row.Changing, row.Transfers), nil
}

// PageTags implements order.Tags. It is one round trip.
func (s *Store) PageTags(ctx context.Context, filter order.Filter) ([]string, error) {
	query, args := cardPage(changing, "", filter)
	var found [][]byte
	err := s.list(ctx, s.pageRunner(filter), &found, "select tags of cards", query, args...)
	tags := make([]string, len(found))
	for i, x := range found {
		tags[i] = tag(x, nil)
	}
	return tags, err
}
