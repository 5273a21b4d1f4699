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

// A tag changes whenever a client could see a change of the card. It costs much
// less than the card: the database returns one text to hash. Each column of
// cards that can change and that clients see must be in changing.

// changing is an expression for everything in card c that can change, except
// its transfers. The tip matters only if something has arrived.
const changing = stateBefore +
	`CASE WHEN c.received > 0 OR c.height > 0 THEN COALESCE((SELECT k.height FROM chains k WHERE k.currency = c.currency), 0) ELSE 0 END` +
	stateAfter + `,
	CASE WHEN c.status = 'generated' AND (SELECT s.card_uuid FROM credentials s WHERE s.card_uuid = c.uuid) IS NOT NULL THEN 1 ELSE 0 END,
	CASE WHEN c.refunded > 0 THEN COALESCE(` + refundedAt + `, 0) ELSE 0 END, CASE WHEN c.refunded > 0 THEN COALESCE(` + refundTxID + `, '') ELSE '' END, CASE WHEN c.payment_state = 'paid' THEN ` + refused + " ELSE 0 END)"

// baseState equals changing for a card without activity (cardReader).
const baseState = stateBefore + "0" + stateAfter + ", 0, 0, '', 0)"

const (
	stateBefore = "concat_ws(' ', c.uuid, c.status, c.payment_state, c.received, c.settled, c.height, "
	stateAfter  = ", c.accepted, c.refunded, c.written_off, COALESCE(c.canceled_at, 0), COALESCE(c.credentials_purged_at, 0)"
)

// visibleState returns the value of changing for a card that was read.
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

// tag returns the hash of changing and, if they are shown, of the transfers as
// the database returns them.
func tag(changing, transfers []byte) string {
	sum := sha256.Sum256(slices.Concat(changing, []byte{0}, transfers))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// tagRow is the input of a tag.
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

// CardTag implements order.Tags. It takes one round trip, shared with
// concurrent calls, and two the first time that the card has activity.
func (s *Store) CardTag(ctx context.Context, account, id uuid.UUID) (string, error) {
	row, err := s.statements.cardTag.get(ctx, cardKey{account, id})
	if err != nil {
		return "", s.fail("select tag of card", err)
	}
	return tag(row.Changing, row.Transfers), nil
}

// PageTags implements order.Tags. It takes one round trip.
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
