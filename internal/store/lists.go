package store

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
)

// newestFirst orders the cards of one account. The primary key does not have
// this order, because its NULLs sort elsewhere; the indexes of lists do. So
// PostgreSQL cannot choose to scan the primary key through the newer cards of
// all other accounts, which it does when it expects an account to have most
// cards.
const newestFirst = " ORDER BY c.uuid DESC NULLS LAST"

// cardPage returns a statement that selects columns of the newest cards that
// match a filter; of all accounts if it has none. Joining only the page lets
// the subquery read an index alone. The limit is part of the text: PostgreSQL
// plans a parameter as a tenth of all cards.
func cardPage(columns, joined string, f order.Filter) (query string, args []any) {
	where, inOrder := "TRUE", " ORDER BY c.uuid DESC"
	and := func(condition string, value any) {
		where, args = where+" AND "+condition, append(args, value)
	}
	if f.AccountID != uuid.Nil {
		and("c.account_id = ?", f.AccountID)
		inOrder = newestFirst
	}
	if !f.CreatedAfter.IsZero() {
		and("c.uuid >= ?", card.FirstUUID(f.CreatedAfter))
	}
	if before := beforeOf(f); before != uuid.Max {
		and("c.uuid < ?", before)
	}
	if f.Reference != "" {
		and("c.reference = ?", f.Reference.Reveal())
	}
	if f.Status != "" {
		and("c.status = ?", f.Status)
	}
	if f.Currency != "" {
		and("c.currency = ?", f.Currency)
	}
	switch state := storedState(f.State); f.State {
	case "":
	case card.Canceled: // COALESCE keeps the databases from reading the many that expired
		and("c.canceled_at IS NOT NULL AND COALESCE(c.payment_state, '') = ?", state)
	case card.Expired:
		and("c.canceled_at IS NULL AND c.payment_state = ?", state)
	default:
		and("c.payment_state = ?", state)
	}
	return "SELECT " + columns + " FROM (SELECT c.uuid FROM cards c WHERE " + where + inOrder + " LIMIT " +
		strconv.Itoa(f.Limit) + ") AS page JOIN cards c ON c.uuid = page.uuid" + joined + " ORDER BY c.uuid DESC", args
}

// beforeOf returns the uuid that all cards of a filter precede, uuid.Max if
// there is none. A card's uuid begins with the time of its creation.
func beforeOf(f order.Filter) uuid.UUID {
	before := uuid.Max
	if f.Before != uuid.Nil {
		before = f.Before
	}
	if !f.CreatedBefore.IsZero() {
		before = slices.MinFunc([]uuid.UUID{before, card.FirstUUID(f.CreatedBefore)}, compareUUIDs)
	}
	return before
}

func compareUUIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// pageRunner returns the runner for the page of a filter. All cards of an
// account can have hundreds of pages, so that statement stays prepared. Its plan
// is good for any account and card.
func (s *Store) pageRunner(f order.Filter) runner {
	if f == (order.Filter{AccountID: f.AccountID, Before: f.Before, Limit: f.Limit, Tagged: f.Tagged}) {
		return prepared{s.r}
	}
	return s.r
}

// readPage returns up to limit cards. It calls query for the next n cards
// beyond a card, uuid.Nil for the first, and reads on if rows are corrupt: a
// page has fewer cards only if there are no more.
func (s *Store) readPage(ctx context.Context, on runner, operation string, limit int,
	query func(n int, beyond uuid.UUID) (string, []any)) ([]*card.Card, error) {
	var cards []*card.Card
	for beyond := uuid.Nil; ; {
		n := limit - len(cards)
		text, args := query(n, beyond)
		found, err := selectMany[cardRow](ctx, s, on, n, operation, text, args...)
		if err != nil {
			return nil, err
		}
		intact, corrupt := s.decode(found)
		cards = append(cards, intact...)
		s.reportCorruptCards(ctx, corrupt)
		if len(corrupt) == 0 || len(found) < n {
			return cards, nil
		}
		beyond = found[n-1].UUID
	}
}

// readNewest returns the newest cards that match a filter.
func (s *Store) readNewest(ctx context.Context, on runner, operation, columns string,
	f order.Filter) ([]*card.Card, error) {
	return s.readPage(ctx, on, operation, f.Limit, func(n int, beyond uuid.UUID) (string, []any) {
		f := f
		if f.Limit = n; beyond != uuid.Nil {
			f.Before = beyond
		}
		return cardPage(columns, joinCards, f)
	})
}

// Cards implements order.Store. The cards have only what clients see.
func (s *Store) Cards(ctx context.Context, filter order.Filter) ([]*card.Card, error) {
	cards, err := s.readNewest(ctx, s.pageRunner(filter), "select cards",
		listedColumns+joinedColumns+clientDataColumns, filter)
	if filter.Tagged {
		for _, c := range cards {
			c.Tag = tag(visibleState(c), nil)
		}
	}
	return cards, err
}

// FindCards returns the cards that match, newest first, or oldest first if
// search.NeedsOperator is set; at most search.Limit.
func (s *Store) FindCards(ctx context.Context, search operator.Search) ([]*card.Card, error) {
	const operation, columns = "find cards", fullColumns + clientDataColumns
	if search.NeedsOperator {
		return s.readPage(ctx, s.r, operation, search.Limit, func(n int, beyond uuid.UUID) (string, []any) {
			return s.dialect.waitingPage(columns, search, n, beyond)
		})
	}
	filter := order.Filter{AccountID: search.AccountID, State: search.State, Limit: search.Limit}
	if search.State == "" || search.AccountID != uuid.Nil {
		return s.readNewest(ctx, s.r, operation, columns, filter)
	}
	// No index has the cards of all accounts by state and age. Merging a page
	// of each account reads no other cards.
	var accounts []uuid.UUID
	if err := s.list(ctx, s.r, &accounts, operation, "SELECT id FROM accounts"); err != nil {
		return nil, err
	}
	var cards []*card.Card
	for _, filter.AccountID = range accounts {
		some, err := s.readNewest(ctx, s.r, operation, columns, filter)
		if err != nil {
			return nil, err
		}
		cards = append(cards, some...)
		slices.SortFunc(cards, func(a, b *card.Card) int { return compareUUIDs(b.UUID, a.UUID) })
		cards = cards[:min(len(cards), search.Limit)]
	}
	return cards, nil
}

// lockPatience is how long a card may wait for locked money before it needs an
// operator, in milliseconds.
const lockPatience = "86400000"

// waitingPage returns a statement that selects the oldest n cards beyond a card
// that need an operator. Their money is late or too little, or left the chain
// after the card was issued or the money refunded; their issuing is parked or
// declined; or their money stays locked. It reads all such cards, and for each
// reason uses an index of only these. COALESCE keeps the databases from using
// an index of the condition itself.
func (d dialect) waitingPage(columns string, search operator.Search, n int, beyond uuid.UUID) (string, []any) {
	const state = "COALESCE(c.payment_state, '')"
	reasons := []string{
		"cards c WHERE c.payment_state = 'late'",
		"cards c WHERE " + isLost,
		"intents i JOIN cards c ON c.uuid = i.card_uuid WHERE i.state IN ('parked', 'refund_due') AND " +
			state + " = 'paid'",
		"transfers t" + d.by("transfers_locked") + " JOIN cards c ON c.currency = t.currency AND c.address = t.address" +
			" WHERE t.counted AND t.locked AND t.first_seen_at < " + d.now + " - " + lockPatience +
			" AND " + state + " = 'confirming'",
	}
	var args []any
	for i := range reasons {
		and := func(condition string, value any) {
			reasons[i], args = reasons[i]+" AND "+condition, append(args, value)
		}
		and("COALESCE(c.uuid, c.uuid) > ?", beyond)
		if search.AccountID != uuid.Nil {
			and("COALESCE(c.account_id, c.account_id) = ?", search.AccountID)
		}
		if search.State != "" {
			and(state+" = ?", search.State)
		}
	}
	return "SELECT " + columns + " FROM (SELECT c.uuid FROM " + strings.Join(reasons, " UNION SELECT c.uuid FROM ") +
		" ORDER BY uuid LIMIT " + strconv.Itoa(n) + ") AS page JOIN cards c ON c.uuid = page.uuid" + joinCards +
		" ORDER BY c.uuid", args
}
