package store

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/panics"
)

// reads has single rows of cards read. Reads that are asked for at the same
// time share statements (queue), so that many clients that poll cost the
// database little. A statement begins after all that share it were asked for:
// none of them sees anything older than it would alone.
type reads[R oneRow] struct {
	one  statement // selects a card by its account and uuid
	many statement // selects cards by uuids; none where nothing is gained by it
	queue[read[R]]
	patience time.Duration // for the statements of others
}

const (
	readsAtOnce = 2 // statements of a kind
	// what a second statement has beside a quick one, the next would have, for
	// much less
	quickRead    = 5 * time.Millisecond
	readPatience = 100 * time.Millisecond // so long only those statements take that are stuck
)

// cardReader reads cards. PostgreSQL takes as long to set up what only few
// cards need, such as their transfers, as for all else. So a card is read alone
// first, and once more, with everything, if something has happened to it. From
// then on it is read with everything at once.
type cardReader[R oneRow] struct {
	base, full reads[R]

	mu     sync.Mutex
	active map[cardKey]struct{} // cards to which something has happened: mostRemembered of them
}

const mostRemembered = 4096

func (r *cardReader[R]) get(ctx context.Context, key cardKey) (R, error) {
	if r.remembers(key) {
		return r.full.get(ctx, key)
	}
	row, err := r.base.get(ctx, key)
	if err == nil && row.hasActivity() {
		r.remember(key)
		row, err = r.full.get(ctx, key)
	}
	return row, err
}

func (r *cardReader[R]) remembers(key cardKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.active[key]
	return found
}

func (r *cardReader[R]) remember(key cardKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == nil {
		r.active = map[cardKey]struct{}{}
	}
	makeRoom(r.active, mostRemembered)
	r.active[key] = struct{}{}
}

// oneRow is what is read of a card.
type oneRow interface {
	key() cardKey
	hasActivity() bool // more than the card alone has
}

// cardKey is how a client names a card: another account's is none of its own.
type cardKey struct {
	AccountID uuid.UUID `db:"account_id"`
	UUID      uuid.UUID `db:"uuid"`
}

func (k cardKey) key() cardKey { return k }

// query sets what the cards are selected by: a statement without its
// conditions.
func (r *reads[R]) query(s *Store, query string) {
	r.one = statement{s.r, s.r.Rebind(query + " WHERE c.account_id = ? AND c.uuid = ?")}
	if s.dialect.arrays {
		r.many = statement{s.r, s.r.Rebind(query + " WHERE c.uuid" + inSomeArray(s.dialect.uuidType))}
	}
	r.most, r.quick, r.patience = readsAtOnce, quickRead, readPatience
}

// read is a card that is to be read.
type read[R oneRow] struct {
	of   cardKey
	done chan struct{} // closed when row and err are set
	row  R
	err  error
}

// get reads a card, perhaps with others. The error is sql.ErrNoRows if there is
// none. What the row points to must not be changed: several may have asked for
// the same card.
func (r *reads[R]) get(ctx context.Context, key cardKey) (R, error) {
	this := &read[R]{of: key}
	if r.many.query == "" {
		err := r.one.get(ctx, &this.row, key.AccountID, key.UUID)
		return this.row, err
	}
	this.done = make(chan struct{})
	if mine := r.begin(this); mine != nil {
		defer r.proceed(mine)
		err := r.one.get(ctx, &this.row, key.AccountID, key.UUID)
		return this.row, err
	}
	impatient := time.NewTimer(r.patience)
	defer impatient.Stop()
	select {
	case <-this.done:
		return this.row, this.err
	case <-impatient.C:
	case <-ctx.Done():
	}
	r.remove(this)
	var row R // this.row may still be written
	err := r.one.get(ctx, &row, key.AccountID, key.UUID)
	return row, err
}

// proceed has those read that waited while one was read.
func (r *reads[R]) proceed(mine *slot) {
	some := r.next(mine, 1)
	if len(some) == 0 {
		return
	}
	go func() {
		for len(some) > 0 {
			r.together(some)
			some = r.next(mine, len(some))
		}
	}()
}

// together reads cards by one statement.
func (r *reads[R]) together(some []*read[R]) {
	ctx, cancel := context.WithTimeout(context.Background(), longestTx)
	defer cancel()
	ids := make([]uuid.UUID, 0, len(some))
	wanted := make(map[cardKey][]*read[R], len(some))
	for _, this := range some {
		if wanted[this.of] == nil {
			ids = append(ids, this.of.UUID)
		}
		wanted[this.of] = append(wanted[this.of], this)
		this.err = sql.ErrNoRows
	}
	err := panics.Call(func() error { // otherwise its callers would wait forever
		var rows []R
		err := r.many.list(ctx, &rows, arrayOf(ids))
		for _, row := range rows {
			for _, this := range wanted[row.key()] {
				this.row, this.err = row, nil
			}
		}
		return err
	})
	for _, this := range some {
		if err != nil {
			this.err = err
		}
		close(this.done)
	}
}
