package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
)

// Cards that are inserted at the same time share statements (queue), so that
// one commit stores many.
const (
	insertsAtOnce   = 2 // one is written to the disk while the next is run; with more, each would have fewer cards
	insertsTogether = 3 // cards that are worth a statement for several, which takes as long as two and a half for one
)

// insertion is a card that is to be inserted.
type insertion struct {
	ctx   context.Context // of the caller
	card  *card.Card
	limit card.USD
	args  []any // of insertCard
	done  chan inserted
}

// inserted is what became of an insertion.
type inserted struct {
	stored bool
	err    error
}

// InsertCard implements order.Store. It is one round trip, which it may share
// with others. Once the statement is sent, it does not end with ctx
// (outliving).
func (s *Store) InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error) {
	args, err := insertCardArgs(ctx, c, limit)
	if err != nil {
		return false, err
	}
	i := &insertion{ctx: ctx, card: c, limit: limit, args: args, done: make(chan inserted, 1)}
	if c.RefundAddress != "" {
		inserted, err := ignoreDuplicate(s.insertAlone(i))
		return s.checkServiceAddress(ctx, c, inserted, err)
	}
	if mine := s.inserts.add(i); mine != nil {
		go s.insertQueued(mine)
	}
	select {
	case is := <-i.done:
		return ignoreDuplicate(is.stored, s.fail("insert card", is.err))
	case <-ctx.Done():
		if s.inserts.remove(i) {
			return false, s.fail("insert card", ctx.Err())
		}
		return false, s.fail("insert card", fmt.Errorf("%w: %w", errUnknown, ctx.Err())) // it may still be stored
	}
}

// insertAlone inserts a card without sharing the statement.
func (s *Store) insertAlone(i *insertion) (stored bool, err error) {
	done, err := s.writing(i.ctx)
	if err != nil {
		return false, s.fail("insert card", err)
	}
	ended := make(chan inserted, 1)
	err = s.outlive(i.ctx, func(context.Context) error {
		defer done()
		stored, err := s.insertOne(i)
		ended <- inserted{stored, err}
		return err
	})
	if err != nil { // it may still be stored
		return false, s.fail("insert card", err)
	}
	return (<-ended).stored, nil
}

// insertQueued inserts the cards of the queue until it is empty.
func (s *Store) insertQueued(mine *slot) {
	n := 0
	for {
		done, _ := s.writing(context.Background()) // waits no longer than a transaction may last
		some := s.inserts.next(mine, n)
		if n = len(some); n > 0 {
			s.insertOrFail(some)
		}
		done()
		if n == 0 {
			return
		}
	}
}

// insertOrFail is insertTogether. After a panic, no caller is left waiting.
func (s *Store) insertOrFail(some []*insertion) {
	err := panics.Call(func() error { s.insertTogether(some); return nil })
	if err == nil {
		return
	}
	for _, i := range some {
		select {
		case i.done <- inserted{err: fmt.Errorf("%w: %w", errUnknown, err)}: // it may be stored
		default: // it was answered before
		}
	}
}

// insertTogether inserts cards by one statement. If the database refuses it
// because of a card, each has a statement of its own.
func (s *Store) insertTogether(some []*insertion) {
	if len(some) == 1 {
		stored, err := s.insertOne(some[0])
		some[0].done <- inserted{stored, err}
		return
	}
	stored, err := s.insertShared(some)
	if err != nil && s.dialect.badRow(err) {
		for _, i := range some {
			stored, err := s.insertOne(i)
			i.done <- inserted{stored, err}
		}
		return
	}
	for _, i := range some {
		i.done <- inserted{stored[i.card.UUID], err}
	}
}

// insertOne inserts a card alone.
func (s *Store) insertOne(i *insertion) (bool, error) {
	ctx, cancel := outliving(i.ctx)
	defer cancel()
	statement := s.statements.insertCard
	if i.card.RefundAddress != "" {
		statement = s.statements.insertRefundable
	}
	result, err := statement.to(i.limit).exec(ctx, i.args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// insertShared inserts cards by one statement, and returns which were stored.
func (s *Store) insertShared(some []*insertion) (map[uuid.UUID]bool, error) {
	// Statements that insert the same keys in the same order don't wait for
	// each other in a circle.
	slices.SortStableFunc(some, func(a, b *insertion) int {
		return cmp.Or(bytes.Compare(a.card.AccountID[:], b.card.AccountID[:]),
			strings.Compare(a.card.IdempotencyKey, b.card.IdempotencyKey))
	})
	values := make([][]any, len(some))
	columns := len(s.dialect.cardTypes())
	var limit card.USD
	for n, i := range some {
		values[n] = append(slices.Clone(i.args[:columns]), int64(i.limit), n)
		limit = max(limit, i.limit)
	}
	ctx, cancel := outliving(context.Background())
	defer cancel()
	types := s.dialect.batchTypes()
	var ids []uuid.UUID
	var err error
	if s.dialect.arrays {
		err = s.statements.insertCards.to(limit).list(ctx, &ids, arrays(values, len(types))...)
	} else {
		table, args := s.dialect.table(values, types...)
		err = s.w.SelectContext(ctx, &ids, s.w.Rebind(s.dialect.insertCards(limit > 0, table)), args...)
	}
	if err != nil {
		return nil, err
	}
	stored := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		stored[id] = true
	}
	return stored, nil
}
