package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
)

// A list of cards is a page in the order of their uuids, which is the order of
// their creation. It must cost as much as the page is long, however many cards
// there are that do not match. So for every filter an index has the cards that
// match in that order; where one filter combines several sets of cards, the
// page is made of a page of each.

// part is a set of cards c that an index has in the order of their uuids.
type part struct {
	from  string  // defaults to the cards alone
	uuid  string  // the column that the index has in order, in the terms of from; defaults to that of the cards
	equal []equal // the columns that the index begins with
	where string  // further conditions, which the index has too or which few rows do not fulfil; each begins with AND
	args  []any
}

// equal is a condition that a column has a value.
type equal struct {
	column string
	value  any
}

// sql returns the part's page. Of a set with a column that must have a value,
// PostgreSQL takes the cards in the order of uuids to be a random sample, and
// so prefers a walk over all cards. If the last such column must be between the
// value and itself, and is also sorted by, only the index has the order. The
// limit is part of the text: a plan for any limit would be one for a tenth of
// all cards.
func (p part) sql(d dialect, selected string, newestFirst bool, beyond uuid.UUID, limit int) (query string,
	args []any) {
	direction, further, last := "", ">", "<="
	if newestFirst {
		direction, further, last = " DESC", "<", ">="
	}
	id := cmp.Or(p.uuid, "c.uuid")
	where, order, sorted := "TRUE", id+direction, false
	for i, e := range p.equal {
		sorted = d.samples && i == len(p.equal)-1
		switch {
		case !sorted:
			where, args = where+" AND "+e.column+" = ?", append(args, e.value)
			continue
		case beyond == uuid.Nil:
			where, args = where+" AND "+e.column+" >= ? AND "+e.column+" <= ?", append(args, e.value, e.value)
		default:
			where += " AND " + e.column + " " + last + " ? AND (" + e.column + ", " + id + ") " + further + " (?, ?)"
			args = append(args, e.value, e.value, beyond)
		}
		order = e.column + direction + ", " + order
	}
	if !sorted && beyond != uuid.Nil {
		where, args = where+" AND "+id+" "+further+" ?", append(args, beyond)
	}
	return selected + " WHERE " + where + p.where + " ORDER BY " + order + " LIMIT " +
		strconv.Itoa(limit), append(args, p.args...)
}

// page returns a statement that selects columns of the first limit cards of all
// parts that are beyond a card, unless that is uuid.Nil. What is joined to the
// cards is joined to the page: PostgreSQL might join it to all cards beyond,
// and sort these, if it expects few.
func page(d dialect, columns, joined string, parts []part, newestFirst bool, beyond uuid.UUID,
	limit int) (query string, args []any) {
	order := " ORDER BY c.uuid"
	if newestFirst {
		order = " ORDER BY c.uuid DESC"
	}
	if len(parts) == 1 && parts[0].from == "" {
		cards, args := parts[0].sql(d, "SELECT * FROM cards c", newestFirst, beyond, limit)
		return "SELECT " + columns + " FROM (" + cards + ") AS c" + joined + order, args
	}
	pages := make([]string, len(parts))
	for i, p := range parts {
		one, its := p.sql(d, "SELECT c.uuid FROM "+cmp.Or(p.from, "cards c"), newestFirst, beyond, limit)
		pages[i], args = fmt.Sprintf("SELECT * FROM (%s) AS p%d", one, i), append(args, its...)
	}
	return "SELECT " + columns + " FROM cards c" + joined + " WHERE c.uuid IN (SELECT c.uuid FROM (" +
		strings.Join(pages, " UNION ") + ") AS c" + order +
		" LIMIT " + strconv.Itoa(limit) + ")" + order, args
}

// cards returns up to limit cards of all parts with some columns, newest or
// oldest first, that are beyond a card. It reads on where rows are damaged, so
// that there are no more cards if it returns fewer.
func (s *Store) cards(ctx context.Context, on runner, operation, columns string, parts []part, newestFirst bool,
	beyond uuid.UUID, limit int) ([]*card.Card, error) {
	var cards []*card.Card
	for {
		n := limit - len(cards)
		query, args := page(s.dialect, columns, joinCards, parts, newestFirst, beyond, n)
		found, err := manyOf[cardRow](ctx, s, on, n, operation, query, args...)
		if err != nil {
			return nil, err
		}
		these, damaged := s.decode(found)
		cards = append(cards, these...)
		s.leaveOut(ctx, damaged)
		if len(damaged) == 0 || len(found) < n {
			return cards, nil
		}
		beyond = found[n-1].UUID
	}
}

// pagesOf returns the parts that match a filter, and what runs the statements
// of their pages.
func (s *Store) pagesOf(filter order.Filter) (runner, []part) {
	parts := s.thatMatch(filter)
	if len(parts) == 1 && len(parts[0].equal) == 1 { // all cards of an account, which have hundreds of pages
		return prepared{s.r}, parts
	}
	return s.r, parts
}

// Cards implements order.Store. The cards have what their clients see; the rest
// is as if nothing was stored.
func (s *Store) Cards(ctx context.Context, filter order.Filter) ([]*card.Card, error) {
	beyond, none := begin(filter)
	if none {
		return nil, nil
	}
	on, parts := s.pagesOf(filter)
	cards, err := s.cards(ctx, on, "select cards", listedColumns+joinedColumns+clientDataColumns, parts, true, beyond,
		filter.Limit)
	cards = dropTooOld(cards, filter, func(c *card.Card) uuid.UUID { return c.UUID })
	if filter.Tagged {
		for _, c := range cards {
			c.Tag = tag(visibleState(c), nil)
		}
	}
	return cards, err
}

// begin returns the card beyond which the list of a filter begins, uuid.Nil for
// the newest; or none if nothing can match.
func begin(filter order.Filter) (beyond uuid.UUID, none bool) {
	if filter.CreatedBefore.IsZero() {
		return filter.Before, false
	}
	before := card.FirstUUID(filter.CreatedBefore) // a card's uuid tells when it was created
	if filter.Before != uuid.Nil && bytes.Compare(before[:], filter.Before[:]) >= 0 {
		return filter.Before, before == uuid.Nil
	}
	return before, before == uuid.Nil
}

// dropTooOld returns those of the newest cards that were not created too early.
// Where the list ends is found in the page: PostgreSQL would not see it in an
// index that it walks backwards.
func dropTooOld[T any](cards []T, filter order.Filter, id func(T) uuid.UUID) []T {
	if filter.CreatedAfter.IsZero() {
		return cards
	}
	first := card.FirstUUID(filter.CreatedAfter)
	if i := slices.IndexFunc(cards, func(c T) bool { u := id(c); return bytes.Compare(u[:], first[:]) < 0 }); i >= 0 {
		return cards[:i]
	}
	return cards
}

// thatMatch returns the cards of an account with a status, a state of their
// payment, a currency and a reference, as far as the filter has them. What they
// combine to is made of kinds of cards, those with one status, state and
// currency: one index has these, and another these of each reference.
func (s *Store) thatMatch(filter order.Filter) []part {
	of := []equal{{"c.account_id", filter.AccountID}}
	if filter.Reference != "" {
		of = append(of, equal{"c.reference", filter.Reference.Reveal()})
	}
	switch {
	case filter.State == card.Canceled:
		return []part{canceledRange(filter, of)}
	case filter.Status == "" && filter.State == "" && filter.Currency == "" && filter.Reference == "":
		return []part{{equal: of}}
	}
	return s.ofKinds(of, filter.Status, filter.State, filter.Currency)
}

// ofKinds returns the cards of every kind that a status, a state and a currency
// leave, each of which may be empty. of are the columns that the index of kinds
// begins with.
func (s *Store) ofKinds(of []equal, status card.Status, state card.PaymentState, currency string) []part {
	stored := slices.DeleteFunc(card.PaymentStates(), func(state card.PaymentState) bool {
		return storedState(state) != state
	})
	where := ""
	if state == card.Expired {
		where = " AND c.canceled_at IS NULL"
	}
	var parts []part
	for _, status := range one(status, card.AwaitingPayment, card.Generated) {
		for _, state := range one(state, stored...) {
			for _, currency := range one(currency, slices.Sorted(maps.Keys(s.coins))...) {
				parts = append(parts,
					part{equal: append(slices.Clone(of), equal{"c.status", status}, equal{"c.payment_state", state},
						equal{"c.currency", currency}), where: where})
			}
		}
	}
	return parts
}

// canceledRange returns the cards that match a filter for canceled ones, and
// begin with columns of which an index has them. COALESCE keeps PostgreSQL from
// using an index of the other conditions, which would have the many cards that
// expired.
func canceledRange(filter order.Filter, of []equal) part {
	p := part{equal: of, where: " AND c.canceled_at IS NOT NULL AND COALESCE(c.payment_state, '') = ?",
		args: []any{storedState(card.Canceled)}}
	if filter.Status != "" {
		p.where, p.args = p.where+" AND COALESCE(c.status, '') = ?", append(p.args, filter.Status)
	}
	if filter.Currency != "" {
		p.where, p.args = p.where+" AND COALESCE(c.currency, '') = ?", append(p.args, filter.Currency)
	}
	return p
}

// one returns the wanted value, or all of them if none is wanted.
func one[T comparable](wanted T, all ...T) []T {
	var none T
	if wanted == none {
		return all
	}
	return []T{wanted}
}

// FindCards returns the cards that match, newest first, or oldest first if
// search.NeedsOperator is set; at most search.Limit.
func (s *Store) FindCards(ctx context.Context, search operator.Search) ([]*card.Card, error) {
	const operation, columns = "find cards", fullColumns + clientDataColumns
	switch {
	case search.NeedsOperator:
		return s.cards(ctx, s.r, operation, columns, s.needOperator(search), false, uuid.Nil, search.Limit)
	case search.State == "" && search.AccountID == uuid.Nil:
		return s.cards(ctx, s.r, operation, columns, []part{{}}, true, uuid.Nil, search.Limit)
	case search.State == card.Late && search.AccountID == uuid.Nil:
		return s.cards(ctx, s.r, operation, columns, []part{allLate}, true, uuid.Nil, search.Limit)
	case search.State == "":
		return s.cards(ctx, s.r, operation, columns, s.thatMatch(order.Filter{AccountID: search.AccountID}), true, uuid.Nil,
			search.Limit)
	}
	accounts := []uuid.UUID{search.AccountID}
	if search.AccountID == uuid.Nil {
		accounts = nil
		if err := s.list(ctx, s.r, &accounts, operation, "SELECT id FROM accounts"); err != nil {
			return nil, err
		}
	}
	var cards []*card.Card
	for some := range slices.Chunk(accounts, someAccounts) {
		var parts []part
		for _, account := range some {
			parts = append(parts, s.thatMatch(order.Filter{AccountID: account, State: search.State})...)
		}
		these, err := s.cards(ctx, s.r, operation, columns, parts, true, uuid.Nil, search.Limit)
		if err != nil {
			return nil, err
		}
		cards = append(cards, these...)
		slices.SortFunc(cards, func(a, b *card.Card) int { return bytes.Compare(b.UUID[:], a.UUID[:]) })
		cards = cards[:min(len(cards), search.Limit)]
	}
	return cards, nil
}

// someAccounts is how many accounts one statement searches. The index of kinds
// is by account; a second one would cost every card as much again whenever its
// state changes.
const someAccounts = 25

// allLate are the late cards of every account. An index has these few alone.
var allLate = part{where: " AND c.payment_state = 'late'"}

// longestLock is how long a card may wait for locked money before it needs an
// operator, in milliseconds.
const longestLock = "86400000"

// needOperator returns the cards that need an operator: their money is late or
// too little, or left the chain after the card was issued or the money
// refunded; their issuing is parked or declined; or their money stays locked.
// COALESCE keeps the databases from using an index that has more cards than
// these few.
func (s *Store) needOperator(search operator.Search) []part {
	const state = "COALESCE(c.payment_state, '')"
	late := []part{allLate}
	if search.AccountID != uuid.Nil {
		late = s.thatMatch(order.Filter{AccountID: search.AccountID, State: card.Late})
	}
	of := map[card.PaymentState][]part{
		card.Late: late,
		card.Paid: {
			{from: "intents i JOIN cards c ON c.uuid = i.card_uuid", uuid: "i.card_uuid",
				where: " AND i.state IN ('parked', 'refund_due') AND " + state + " = 'paid'"}},
		card.Confirming: {
			{from: "(SELECT DISTINCT t.currency, t.address FROM transfers t" + s.dialect.by("transfers_locked") +
				" WHERE t.counted AND t.locked AND t.first_seen_at < " + s.dialect.now + " - " + longestLock +
				") AS l JOIN cards c ON c.currency = l.currency AND c.address = l.address",
				where: " AND " + state + " = 'confirming'"}},
	}
	lost := part{where: " AND " + isLost}
	if search.State != "" {
		lost.where, lost.args = lost.where+" AND "+state+" = ?", append(lost.args, search.State)
	}
	parts := []part{lost}
	for _, state := range []card.PaymentState{card.Late, card.Paid, card.Confirming} {
		if search.State == "" || search.State == state {
			parts = append(parts, of[state]...)
		}
	}
	for i, p := range parts {
		if search.AccountID != uuid.Nil && len(p.equal) == 0 {
			parts[i].where, parts[i].args = p.where+" AND COALESCE(c.account_id, c.account_id) = ?",
				append(p.args, search.AccountID)
		}
	}
	return parts
}
