package store_test

import (
	"regexp"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// Columns of cards that never change after the insert, or that clients never
// see.
var untagged = map[string]string{
	"account_id": "constant", "created_at": "constant", "usd_cents": "constant", "currency": "constant",
	"amount": "constant", "address": "constant",
	"rate": "constant", "rate_at": "constant", "rate_source": "constant", "expires_at": "constant",
	"confirmations_required": "constant",
	"idempotency_key":        "constant", "request_hash": "constant",
	"refund_address": "constant, but for the key that encrypts it",
	"reference":      "constant", "metadata": "constant", "trace_parent": "constant",
	"ready_height": "not seen", "credit_paid": "not seen", "credit_held": "not seen", "credit_surplus": "not seen",
	"credit_refunded": "not seen",
	"credit_lost":     "not seen", "credit_written_off": "not seen", "credit_due": "computed anew from the others",
}

// Every column of cards must either be part of the tag or be listed as
// constant.
func TestTags_EveryColumn_IsClassified(t *testing.T) {
	url := databases.SQLite(t)
	open(t, url)
	found, err := rig.OpenSQL(t, url).Query("SELECT name FROM pragma_table_info('cards')")
	check(t, err)
	defer func() { _ = found.Close() }()
	n := 0
	for found.Next() {
		var column string
		check(t, found.Scan(&column))
		n++
		tagged := regexp.MustCompile(`\bc\.` + column + `\b`).MatchString(store.Changing)
		if exempt := untagged[column] != ""; !exempt && !tagged {
			t.Errorf("column %s is neither part of the tag nor listed as constant", column)
		}
	}
	check(t, found.Err())
	if n < len(untagged) {
		t.Errorf("only %d columns", n)
	}
}

func TestTags_AreThoseOfTheCards(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		seen := map[string]bool{}
		for range 3 {
			c := insertCard(t, s, newCard(account))
			read, err := s.CardByUUID(t.Context(), account, c.UUID)
			check(t, err)
			tag, err := s.CardTag(t.Context(), account, c.UUID)
			if err != nil || tag != read.Tag || seen[tag] {
				t.Errorf("tag %q, error %v; read with %q; of another card: %t", tag, err, read.Tag, seen[tag])
			}
			seen[tag] = true
			_, err = s.CardTag(t.Context(), newAccount(t, s), c.UUID)
			wantError(t, err, card.ErrNoRow)
		}
		for _, filter := range []order.Filter{{AccountID: account, Limit: 9},
			{AccountID: account, Limit: 2, Status: card.AwaitingPayment},
			{AccountID: account, Limit: 9, Status: card.Generated}, {AccountID: uuid.New(), Limit: 9}} {
			filter.Tagged = true
			cards, err := s.Cards(t.Context(), filter)
			check(t, err)
			tags, err := s.PageTags(t.Context(), filter)
			check(t, err)
			if len(tags) != len(cards) {
				t.Fatalf("%d tags of %d cards", len(tags), len(cards))
			}
			for i, c := range cards {
				if c.Tag != tags[i] || c.Tag == "" {
					t.Errorf("card %d: tag %q, read with %q", i, tags[i], c.Tag)
				}
			}
		}
	})
}
