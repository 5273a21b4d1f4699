package store

import (
	"context"
	"database/sql"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/operator"
)

// notes are the changes that triggers recorded since the last reading, and the
// cards that it doubted.
type notes struct {
	read     []int64            // their numbers
	days     map[dayID]bool     // whose rows changed
	cards    map[uuid.UUID]bool // to check, of stored days
	doubted  []uuid.UUID        // by the last reading
	accounts map[uuid.UUID]bool // whose events changed
}

// readNotes reads the notes, and determines which stored days to read again.
func (r *reading) readNotes(ctx context.Context) error {
	r.notes = notes{days: map[dayID]bool{}, cards: map[uuid.UUID]bool{}, accounts: map[uuid.UUID]bool{}}
	for after := int64(0); ; {
		var found []struct {
			ID        int64         `db:"id"`
			CardUUID  uuid.NullUUID `db:"card_uuid"`
			SeenAt    sql.NullInt64 `db:"seen_at"`
			AccountID uuid.NullUUID `db:"account_id"`
		}
		err := r.list(ctx, &found, "select notes",
			"SELECT id, card_uuid, seen_at, account_id FROM books_notes WHERE id > ? ORDER BY id LIMIT ?", after, booksPage)
		if err != nil {
			return err
		}
		for _, f := range found {
			after = f.ID
			r.notes.read = append(r.notes.read, f.ID)
			if f.CardUUID.Valid {
				r.noteCard(f.CardUUID.UUID)
				r.noteDay(dayID{ofCards, dayOfCard(f.CardUUID.UUID)})
			}
			if f.SeenAt.Valid {
				r.noteDay(dayID{ofTransfers, dayAt(f.SeenAt.Int64)})
			}
			if f.AccountID.Valid {
				r.notes.accounts[f.AccountID.UUID] = true
			}
		}
		if len(found) < booksPage {
			break
		}
	}
	for after := uuid.Nil; ; {
		var found []uuid.UUID
		if err := r.list(ctx, &found, "select doubted cards",
			"SELECT card_uuid FROM books_doubts WHERE card_uuid > ? ORDER BY card_uuid LIMIT ?", after, booksPage); err != nil {
			return err
		}
		for _, id := range found {
			after = id
			r.noteCard(id)
		}
		r.notes.doubted = append(r.notes.doubted, found...)
		if len(found) < booksPage {
			return nil
		}
	}
}

// noteCard marks a card to be checked unless its day is read anyway.
func (r *reading) noteCard(id uuid.UUID) {
	if dayOfCard(id) < r.from {
		r.notes.cards[id] = true
	}
}

func (r *reading) noteDay(d dayID) {
	r.notes.days[d] = true
	r.readAgain(d)
}

// noteOwners marks the cards that transfers count toward to be checked.
func (r *reading) noteOwners(ctx context.Context, from string, args ...any) error {
	if r.from == 0 {
		return nil
	}
	var found []uuid.UUID
	err := r.list(ctx, &found, "select owners of transfers", `SELECT x.uuid FROM (
		SELECT (SELECT c.uuid FROM cards c WHERE c.currency = t.currency AND c.address = t.address) AS uuid FROM `+from+`UNION ALL
		SELECT (SELECT a.card_uuid FROM attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) AS uuid FROM `+from+
		") x WHERE x.uuid < ?", append(append(append([]any{}, args...), args...), firstOf(r.from))...)
	for _, id := range found {
		r.noteCard(id)
	}
	return err
}

// KeepBooks implements operator.Store.
func (s *Store) KeepBooks(ctx context.Context, read operator.Reading) error {
	r, ok := read.State.(*reading)
	if !ok || len(read.Recheck) > mostDoubted {
		return nil
	}
	kept := int64(0)
	err := s.inTx(ctx, func(t *tx) (err error) {
		kept, err = s.exec(ctx, t.t, "keep books",
			"UPDATE books SET version = version + 1, kept_until = ? WHERE version = ?", r.keepUntil, r.version)
		if err != nil || kept == 0 {
			return err
		}
		if err := t.keepDays(ctx, r); err != nil {
			return err
		}
		if err := s.deleteAll(ctx, t.t, "books_doubts", "card_uuid", anyOf(r.notes.doubted)); err != nil {
			return err
		}
		if err := insertAll(ctx, t, "keep doubts", "books_doubts (card_uuid)", []string{s.dialect.uuidType}, "",
			"ON CONFLICT DO NOTHING", read.Recheck,
			func(id uuid.UUID) []any { return []any{id} }); err != nil {
			return err
		}
		return insertAll(ctx, t, "keep feeds", "books_feeds (account_id, seq)", []string{s.dialect.uuidType, "BIGINT"}, "",
			"ON CONFLICT (account_id) DO UPDATE SET seq = excluded.seq", r.feeds, func(f feed) []any {
				return []any{f.AccountID, f.Checked}
			})
	})
	if err != nil || kept == 0 {
		return err
	}
	// There may be many notes. If one remains, its day is read again.
	return s.deleteAll(ctx, s.w, "books_notes", "id", anyOf(r.notes.read))
}

// keepDays replaces the stored sums of the days that were read.
func (t *tx) keepDays(ctx context.Context, r *reading) error {
	type row struct {
		of dayOf
		daySums
	}
	var old []dayOf
	var all []row
	for of, sums := range r.kept {
		if !r.wasRead(of.dayID) {
			continue
		}
		old = append(old, of)
		if r.wrong[of.dayID] && !r.full { // all its rows are lost: doubted until a full reading has reported it
			all = append(all, row{of, daySums{rows: sums.rows, sums: sums.sums, doubted: true}})
		}
	}
	for of, sums := range r.found {
		if of.day < r.keepUntil {
			sums.doubted = r.wrong[of.dayID]
			all = append(all, row{of, sums})
		}
	}
	for _, of := range old {
		if _, err := t.s.exec(ctx, t.t, "forget kept day",
			"DELETE FROM books_days WHERE part = ? AND day = ? AND currency = ?", of.part, of.day, of.currency); err != nil {
			return err
		}
	}
	return insertAll(ctx, t, "keep days", "books_days (part, day, currency, rows, sums, doubted)",
		[]string{"TEXT", "BIGINT", "TEXT", "BIGINT", "TEXT", "BOOLEAN"}, "", "", all, func(k row) []any {
			return []any{k.of.part, k.of.day, k.of.currency, k.rows, k.text(), k.doubted}
		})
}

// deleteAll deletes rows by their keys.
func (s *Store) deleteAll(ctx context.Context, on runner, table, column string, keys []any) error {
	return inChunks(keys, func(some []any) error {
		_, err := s.exec(ctx, on, "delete from "+table,
			"DELETE FROM "+table+" WHERE "+column+" IN ("+rows("?", len(some))+")", some...)
		return err
	})
}

func anyOf[T any](all []T) []any {
	some := make([]any, len(all))
	for i, one := range all {
		some[i] = one
	}
	return some
}
