package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/batch"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

// Concurrent reads of single cards share SELECT statements on PostgreSQL, so
// that many polling clients cost the database little. A statement starts after
// the last call that shares it, so no caller reads a row that is older than its
// call.
const (
	readWorkers = 2
	slowRead    = 5 * time.Millisecond   // start a second query only while the first is slow
	maxReadWait = 100 * time.Millisecond // only a stuck connection takes longer
	maxActive   = 4096                   // cards with activity that a cardReader remembers
)

// cardKey identifies a card to the client that owns it.
type cardKey struct {
	AccountID uuid.UUID `db:"account_id"`
	UUID      uuid.UUID `db:"uuid"`
}

func (k cardKey) key() cardKey { return k }

// keyedRow is a row of one card.
type keyedRow interface {
	key() cardKey
	hasActivity() bool // the full query returns more than the base query
}

// cardReader reads single cards. The base query selects only the table cards;
// the full query adds the transfers and all else that few cards have, which
// doubles its cost on PostgreSQL. A card is read with the base query until that
// shows activity, and with the full query from then on.
type cardReader[R keyedRow] struct {
	base, full *cardQuery[R]

	mu     sync.Mutex
	active map[cardKey]struct{} // up to maxActive cards that are known to have activity
}

func newCardReader[R keyedRow](s *Store, base, full string) *cardReader[R] {
	return &cardReader[R]{base: newCardQuery[R](s, base), full: newCardQuery[R](s, full), active: map[cardKey]struct{}{}}
}

// get reads a card. The error is sql.ErrNoRows if the account has no such card.
// Concurrent callers share what the row points to: do not modify it.
func (r *cardReader[R]) get(ctx context.Context, key cardKey) (R, error) {
	if r.isActive(key) {
		return r.full.get(ctx, key)
	}
	row, err := r.base.get(ctx, key)
	if err != nil || !row.hasActivity() {
		return row, err
	}
	r.setActive(key)
	return r.full.get(ctx, key)
}

func (r *cardReader[R]) isActive(key cardKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, active := r.active[key]
	return active
}

func (r *cardReader[R]) setActive(key cardKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.active) >= maxActive {
		for other := range r.active { // this card is read twice again
			delete(r.active, other)
			break
		}
	}
	r.active[key] = struct{}{}
}

// cardQuery is a query for single cards.
type cardQuery[R keyedRow] struct {
	one   statement // by account and UUID
	many  statement // by UUIDs
	reads *batch.Batcher[cardKey, *R]
}

// newCardQuery returns a query from a SELECT without a WHERE clause.
func newCardQuery[R keyedRow](s *Store, query string) *cardQuery[R] {
	q := &cardQuery[R]{one: newStatement(s.r, query+" WHERE c.account_id = ? AND c.uuid = ?")}
	if s.dialect.arrays { // otherwise there are no round trips that could be shared
		q.many = newStatement(s.r, query+" WHERE c.uuid"+inSomeArray(s.dialect.uuidType))
		q.reads = batch.New(q.batching())
	}
	return q
}

func (q *cardQuery[R]) batching() batch.Config[cardKey, *R] {
	return batch.Config[cardKey, *R]{
		One: q.readOne, Many: q.readMany, Workers: readWorkers, SlowAfter: slowRead, MaxWait: maxReadWait,
	}
}

func (q *cardQuery[R]) get(ctx context.Context, key cardKey) (row R, err error) {
	read := q.readOne
	if q.reads != nil {
		read = q.reads.Do
	}
	found, err := read(ctx, key)
	switch {
	case errors.Is(err, batch.ErrOutcomeUnknown):
		return row, ctx.Err() // a read has no effects that could be unknown
	case err != nil:
		return row, err
	case found == nil:
		return row, sql.ErrNoRows
	}
	return *found, nil
}

func (q *cardQuery[R]) readOne(ctx context.Context, key cardKey) (*R, error) {
	var row R
	err := q.one.get(ctx, &row, key.AccountID, key.UUID)
	return &row, err
}

// readMany reads cards with one statement. It returns nil for a card that the
// account does not have.
func (q *cardQuery[R]) readMany(keys []cardKey) ([]*R, error) {
	ctx, cancel := context.WithTimeout(context.Background(), txTimeout)
	defer cancel()
	ids := make([]uuid.UUID, len(keys))
	for i, key := range keys {
		ids[i] = key.UUID
	}
	var rows []R
	if err := q.many.list(ctx, &rows, postgres.Array(ids)); err != nil {
		return nil, err
	}
	byKey := make(map[cardKey]*R, len(rows))
	for i, row := range rows {
		byKey[row.key()] = &rows[i]
	}
	found := make([]*R, len(keys))
	for i, key := range keys {
		found[i] = byKey[key] // a card of another account has another key
	}
	return found, nil
}
