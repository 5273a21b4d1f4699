package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/batch"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

// Cards that are ordered concurrently share INSERT statements, so that one
// commit stores many of them.
const (
	insertWorkers  = 2 // one batch is written to disk while the next is run; more workers would get smaller batches
	minInsertBatch = 3 // an INSERT of several cards takes as long as two and a half of one
)

// insertion is a card that waits for its INSERT.
type insertion struct {
	card  *card.Card
	limit card.USD
	args  []any // of insertCard
}

func (s *Store) newInsertBatcher() *batch.Batcher[insertion, bool] {
	return batch.New(batch.Config[insertion, bool]{
		One:      s.insertOne,
		Many:     s.insertMany,
		BadItem:  s.dialect.isBadRow,
		Workers:  min(cap(s.writers), insertWorkers), // 1 on SQLite
		MinItems: minInsertBatch,
		Acquire: func() (release func()) {
			release, _ = s.acquireWriter(context.Background()) // can't fail: the context never ends
			return release
		},
	})
}

// InsertCard implements order.Store. It takes one round trip, which concurrent
// calls share. Once the statement is sent, it continues even if ctx ends.
func (s *Store) InsertCard(ctx context.Context, c *card.Card, limit card.USD) (bool, error) {
	args, err := insertCardArgs(ctx, c, limit)
	if err != nil {
		return false, err
	}
	insert := s.inserts.Do
	if c.RefundAddress != "" {
		insert = s.insertAlone // its statement has an additional condition
	}
	inserted, err := insert(ctx, insertion{c, limit, args})
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		err = fmt.Errorf("%w: %w", errUnknown, err) // the card may be stored
	}
	inserted, err = ignoreDuplicate(inserted, s.fail("insert card", err))
	return s.checkServiceAddress(ctx, c, inserted, err)
}

// insertAlone inserts a card that does not share its statement.
func (s *Store) insertAlone(ctx context.Context, i insertion) (bool, error) {
	release, err := s.acquireWriter(ctx)
	if err != nil {
		return false, err
	}
	inserted := make(chan bool, 1)
	err = s.runDetached(ctx, func(context.Context) error {
		defer release()
		n, err := s.insertOne(ctx, i)
		inserted <- n
		return err
	})
	if err != nil {
		return false, err
	}
	return <-inserted, nil
}

// insertOne inserts a single card. It reports whether the card was stored.
func (s *Store) insertOne(ctx context.Context, i insertion) (bool, error) {
	ctx, cancel := detach(ctx)
	defer cancel()
	insert := s.statements.insertCard
	if i.card.RefundAddress != "" {
		insert = s.statements.insertRefundable
	}
	result, err := insert.to(i.limit).exec(ctx, i.args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// insertMany inserts cards with one statement. For each card it reports whether
// the card was stored.
func (s *Store) insertMany(all []insertion) ([]bool, error) {
	// Two statements that insert the same keys must do so in the same order:
	// otherwise they deadlock.
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b insertion) int {
		return cmp.Or(
			bytes.Compare(a.card.AccountID[:], b.card.AccountID[:]),
			strings.Compare(a.card.IdempotencyKey, b.card.IdempotencyKey),
		)
	})
	rows := make([][]any, len(sorted))
	columns := len(s.dialect.cardTypes())
	var limit card.USD
	for n, i := range sorted {
		rows[n] = append(slices.Clone(i.args[:columns]), int64(i.limit), n)
		limit = max(limit, i.limit)
	}
	ids, err := s.insertRows(rows, limit)
	if err != nil {
		return nil, err
	}
	inserted := make([]bool, len(all))
	for n, i := range all {
		inserted[n] = slices.Contains(ids, i.card.UUID)
	}
	return inserted, nil
}

// insertRows inserts rows of insertCards, and returns the UUIDs of the cards
// that were stored.
func (s *Store) insertRows(rows [][]any, limit card.USD) (ids []uuid.UUID, err error) {
	ctx, cancel := detach(context.Background())
	defer cancel()
	types := s.dialect.batchTypes()
	if s.dialect.arrays {
		err = s.statements.insertCards.to(limit).list(ctx, &ids, postgres.Columns(rows, len(types))...)
	} else {
		table, args := s.dialect.table(rows, types...)
		err = s.w.SelectContext(ctx, &ids, s.w.Rebind(s.dialect.insertCards(limit > 0, table)), args...)
	}
	return ids, err
}
