package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
)

const stockColumns = "id, supplier, usd_cents, state, expires_at, number_hash, card_number, expiration_date, security_code, url, url_password"

type stockRow struct {
	ID             uuid.UUID       `db:"id"`
	Supplier       string          `db:"supplier"`
	USDCents       int64           `db:"usd_cents"`
	State          card.StockState `db:"state"`
	ExpiresAt      int64           `db:"expires_at"`
	NumberHash     []byte          `db:"number_hash"`
	CardNumber     []byte          `db:"card_number"`
	ExpirationDate []byte          `db:"expiration_date"`
	SecurityCode   []byte          `db:"security_code"`
	URL            []byte          `db:"url"`
	URLPassword    []byte          `db:"url_password"`
}

func (r *stockRow) item() card.StockItem {
	item := card.StockItem{ID: r.ID, Supplier: r.Supplier, USD: card.USD(r.USDCents), State: r.State,
		ExpiresAt: fromMillis(r.ExpiresAt), NumberHash: r.NumberHash}
	if r.CardNumber != nil {
		item.Sealed = &card.Sealed{CardNumber: r.CardNumber, ExpirationDate: r.ExpirationDate, SecurityCode: r.SecurityCode,
			URL: r.URL, URLPassword: r.URLPassword}
	}
	return item
}

// freeItem selects the next item q of a supplier's stock: free, of an amount,
// and valid until after a time. The first to expire comes first.
const freeItem = "SELECT q.id FROM stock q WHERE q.supplier = ? AND q.usd_cents = ? AND q.state = 'free' AND q.expires_at > ? ORDER BY q.expires_at, q.id LIMIT 1"

// reserveCard returns insertCard combined with the reservation of an item, as
// one statement. It returns whether there was an item, and whether both were
// stored. and is a further condition, as for insertCard.
func (d dialect) reserveCard(limited bool, and string) string {
	return `WITH item AS MATERIALIZED (` + freeItem + d.skipLocked + `),
		made AS (` + d.insertCard(limited, " AND EXISTS (SELECT 1 FROM item)"+and) + ` RETURNING uuid, expires_at),
		reserved AS (UPDATE stock SET state = 'reserved', card_uuid = made.uuid, reserved_until = made.expires_at FROM item, made
			WHERE stock.id = item.id RETURNING 1)
		SELECT (SELECT COUNT(*) FROM item) > 0 AS found, (SELECT COUNT(*) FROM reserved) > 0 AS done`
}

// InsertCardReserving implements order.Store. It takes one round trip, as
// InsertCard does. SQLite cannot change two tables in one statement, but needs
// no round trips.
func (s *Store) InsertCardReserving(ctx context.Context, c *card.Card, limit card.USD, supplier string,
	life time.Duration) (bool, error) {
	inserted, err := ignoreDuplicate(s.insertReserving(ctx, c, limit, supplier, life))
	return s.checkServiceAddress(ctx, c, inserted, err)
}

func (s *Store) insertReserving(ctx context.Context, c *card.Card, limit card.USD, supplier string,
	life time.Duration) (bool, error) {
	args, err := insertCardArgs(ctx, c, limit)
	if err != nil {
		return false, err
	}
	statement, and := s.statements.reserveCard, ""
	if c.RefundAddress != "" {
		statement, and = s.statements.reserveRefundable, exceptServiceAddress
	}
	wanted := []any{supplier, int64(c.USD), c.CreatedAt.Add(life).UnixMilli()}
	if !s.dialect.arrays {
		return s.reserveInTx(ctx, c, wanted, s.dialect.insertCard(limit > 0, and), args)
	}
	done, err := s.acquireWriter(ctx)
	if err != nil {
		return false, s.fail("insert card", err)
	}
	var row struct{ Found, Done bool }
	err = s.runDetached(ctx, func(ctx context.Context) error {
		defer done()
		return statement.to(limit).get(ctx, &row, append(wanted, args...)...)
	})
	switch {
	case err != nil: // row may still be written
		return false, s.fail("insert card", err)
	case !row.Found:
		return false, card.ErrOutOfStock
	}
	return row.Done, nil
}

func (s *Store) reserveInTx(ctx context.Context, c *card.Card, wanted []any, insert string, args []any) (inserted bool,
	err error) {
	err = s.inTx(ctx, func(t *tx) error {
		var id uuid.UUID
		err := s.get(ctx, t.t, &id, "select stock", freeItem, wanted...)
		if errors.Is(err, card.ErrNoRow) {
			return card.ErrOutOfStock
		}
		if err != nil {
			return err
		}
		n, err := s.exec(ctx, t.t, "insert card", insert, args...)
		if inserted = n == 1; err != nil || !inserted {
			return err
		}
		_, err = s.exec(ctx, t.t, "reserve stock",
			"UPDATE stock SET state = 'reserved', card_uuid = ?, reserved_until = ? WHERE id = ?",
			c.UUID, c.ExpiresAt.UnixMilli(), id)
		return err
	})
	return inserted && err == nil, err
}

// StockItem implements supplier.Store.
func (s *Store) StockItem(ctx context.Context, supplier string, id uuid.UUID) (card.StockItem, error) {
	var row stockRow
	err := s.get(ctx, s.r, &row, "select stock", selectItem, supplier, id)
	return row.item(), err
}

const selectItem = "SELECT " + stockColumns + " FROM stock WHERE supplier = ? AND card_uuid = ?"

// TakeStock implements supplier.Store. Two concurrent calls for one card may
// both find that it has no item. One of them then violates the constraint that
// a card has one item.
func (s *Store) TakeStock(ctx context.Context, supplier string, id uuid.UUID, usd card.USD,
	after time.Time) (card.StockItem, error) {
	item, err := s.takeStock(ctx, supplier, id, usd, after)
	if errors.Is(err, card.ErrDuplicate) {
		return s.takeStock(ctx, supplier, id, usd, after)
	}
	return item, err
}

func (s *Store) takeStock(ctx context.Context, supplier string, id uuid.UUID, usd card.USD,
	after time.Time) (item card.StockItem, err error) {
	err = s.inTx(ctx, func(t *tx) error {
		if err := t.attested(ctx); err != nil {
			return err
		}
		var row stockRow
		err := s.get(ctx, t.t, &row, "select stock", selectItem+s.dialect.forUpdate, supplier, id)
		switch {
		case errors.Is(err, card.ErrNoRow):
		case err != nil:
			return err
		case row.State != card.StockReserved:
			item = row.item()
			return nil
		case row.ExpiresAt <= after.UnixMilli() || row.USDCents != int64(usd):
			if _, err := s.exec(ctx, t.t, "free stock", freeStock+" WHERE id = ?", row.ID); err != nil {
				return err
			}
		default:
			return t.issueStock(ctx, &item, id, "?", row.ID)
		}
		// A held item may have been issued to this card, in a transaction that
		// the database lost.
		if held, err := t.hasStock(ctx, "state = 'held'", supplier, int64(usd)); err != nil || held {
			return cmp.Or(err, card.ErrStockHeld)
		}
		err = t.issueStock(ctx, &item, id, freeItem+s.dialect.skipLocked, supplier, int64(usd), after.UnixMilli())
		if !errors.Is(err, card.ErrNoRow) {
			return err
		}
		item = card.StockItem{}
		// An item that is locked by another transaction may be freed by it, or
		// may be issued to this card by an attempt that is still committing.
		locked, err := t.hasStock(ctx, "state = 'free' AND expires_at > ?", supplier, int64(usd), after.UnixMilli())
		if err == nil && locked {
			err = card.ErrUnavailable
		}
		return err // without one, the item that expires too soon is free
	})
	if err == nil && item.ID == uuid.Nil {
		err = card.ErrOutOfStock
	}
	return item, err
}

// hasStock reports whether a supplier has items of an amount that meet a
// condition, including locked ones.
func (t *tx) hasStock(ctx context.Context, condition string, args ...any) (yes bool, err error) {
	err = t.s.get(ctx, t.t, &yes, "look for stock",
		"SELECT EXISTS (SELECT 1 FROM stock WHERE supplier = ? AND usd_cents = ? AND "+condition+")", args...)
	return yes, err
}

const freeStock = "UPDATE stock SET state = 'free', card_uuid = NULL, reserved_until = NULL"

// issueStock issues the item that a query selects to a card.
func (t *tx) issueStock(ctx context.Context, item *card.StockItem, id uuid.UUID, query string, args ...any) error {
	var row stockRow
	err := t.s.get(ctx, t.t, &row, "issue stock",
		"UPDATE stock SET state = 'issued', card_uuid = ? WHERE id = ("+query+") RETURNING "+stockColumns,
		append([]any{id}, args...)...)
	*item = row.item()
	return err
}

// attested returns an error if the store requires an attestation that the
// database did not go back in time, and there is none. In a database that went
// back, a free item may have been issued already.
func (t *tx) attested(ctx context.Context) error {
	if !t.s.requireAttestation.Load() {
		return nil
	}
	condition, err := t.s.attested(ctx)
	if err != nil {
		return err
	}
	var yes bool
	if err := t.s.get(ctx, t.t, &yes, "look for an epoch", "SELECT "+condition); err != nil {
		return err
	}
	if !yes {
		return card.ErrUnavailable.WithCause(errNotAttested)
	}
	return nil
}

// CancelStock implements supplier.Store.
func (s *Store) CancelStock(ctx context.Context, supplier string, id uuid.UUID) error {
	_, err := s.exec(ctx, s.w, "free stock", freeStock+" WHERE supplier = ? AND card_uuid = ? AND state = 'reserved'",
		supplier, id)
	return err
}

// TidyStock implements supplier.Store. It also frees the item of a late card:
// if an operator accepts the payment, the card gets another item, or none.
// PostgreSQL estimates that most issued items are not wiped, and would read all
// intents for a join.
func (s *Store) TidyStock(ctx context.Context) error {
	now := "(SELECT " + s.dialect.now + ")"
	_, err := s.exec(ctx, s.w, "free stock", freeStock+` WHERE id IN (SELECT q.id FROM stock q JOIN cards c ON c.uuid = q.card_uuid
		WHERE q.state = 'reserved' AND q.reserved_until <= `+now+` AND (c.status = 'generated' OR c.payment_state IN ('expired', 'late'))`+s.dialect.skipLocked+")")
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, s.w, "wipe stock", wipeStock+" WHERE id IN ("+unwipedStock+s.dialect.skipLocked+")")
	return err
}

// wipeStock deletes the credentials of items. It keeps the hash of the card
// number, so that the number cannot be imported again.
const wipeStock = "UPDATE stock SET card_number = NULL, expiration_date = NULL, security_code = NULL, url = NULL, url_password = NULL"

// unwipedStock selects the items q that were issued and still have their card's
// credentials. It omits an item if another supplier issued the card.
const unwipedStock = `SELECT q.id FROM stock q WHERE q.state = 'issued' AND q.card_number IS NOT NULL
	AND (SELECT i.state FROM intents i WHERE i.card_uuid = q.card_uuid AND i.card_number_hash = q.number_hash) = 'done'`

// holdStock holds every item that is not issued until an operator releases it.
const holdStock = "UPDATE stock SET state = 'held' WHERE state IN ('free', 'reserved')"

// HoldStock holds the items of a supplier until ReleaseStock, as a stale epoch
// does, and returns how many.
func (s *Store) HoldStock(ctx context.Context, supplier string) (int64, error) {
	return s.exec(ctx, s.w, "hold stock", holdStock+" AND supplier = ?", supplier)
}

// FreeStock implements supplier.Store.
func (s *Store) FreeStock(ctx context.Context, supplier string, after time.Time) ([]card.Offer, error) {
	var found []struct {
		Cents int64 `db:"cents"`
		Items int64 `db:"items"`
	}
	// Stepping from amount to amount by the index skips the issued items.
	err := s.list(ctx, s.r, &found, "count stock", `WITH RECURSIVE a (cents) AS (
			SELECT MIN(usd_cents) FROM stock WHERE supplier = ?
			UNION ALL SELECT (SELECT MIN(s.usd_cents) FROM stock s WHERE s.supplier = ? AND s.usd_cents > a.cents) FROM a WHERE a.cents IS NOT NULL)
		SELECT a.cents, (SELECT COUNT(*) FROM stock f WHERE f.supplier = ? AND f.usd_cents = a.cents AND f.state = 'free' AND f.expires_at > ?) AS items
			FROM a WHERE a.cents IS NOT NULL ORDER BY a.cents`, supplier, supplier, supplier, after.UnixMilli())
	offers := make([]card.Offer, len(found))
	for i, f := range found {
		offers[i] = card.Offer{Min: card.USD(f.Cents), Max: card.USD(f.Cents), Left: f.Items}
	}
	return offers, err
}

// StockCounts counts the items of all stocks, by supplier, amount, state and
// expiry.
func (s *Store) StockCounts(ctx context.Context) ([]card.StockCount, error) {
	var found []struct {
		stockRow
		Items int64 `db:"items"`
	}
	err := s.list(ctx, s.r, &found, "count stock", `SELECT supplier, usd_cents, state, expires_at, COUNT(*) AS items FROM stock
		GROUP BY supplier, usd_cents, state, expires_at ORDER BY supplier, usd_cents, state, expires_at`)
	counts := make([]card.StockCount, len(found))
	for i, f := range found {
		counts[i] = card.StockCount{Supplier: f.Supplier, USD: card.USD(f.USDCents), State: f.State,
			ExpiresAt: fromMillis(f.ExpiresAt), Items: f.Items}
	}
	return counts, err
}

// KnownNumbers implements supplier.Shelf.
func (s *Store) KnownNumbers(ctx context.Context, hashes [][]byte) (known [][]byte, err error) {
	err = inChunks(hashes, func(some [][]byte) error {
		query, args, err := sqlx.In(`SELECT number_hash FROM stock WHERE number_hash IN (?)
			UNION SELECT card_number_hash FROM intents WHERE card_number_hash IN (?)`, some, some)
		if err != nil {
			return err
		}
		var found [][]byte
		if err := s.list(ctx, s.r, &found, "look for card numbers", query, args...); err != nil {
			return err
		}
		known = append(known, found...)
		return nil
	})
	return known, err
}

// ImportStock implements supplier.Shelf. A long import seals its items before
// they are visible to a rotation of keys. So the keys are checked last, and
// locked only for the commit.
func (s *Store) ImportStock(ctx context.Context, f func(add func([]card.StockItem) error) error) error {
	return s.inTx(ctx, func(t *tx) error {
		keys := map[card.KeyID]bool{}
		err := f(func(items []card.StockItem) error {
			for _, item := range items {
				if key, named := card.KeyOf(item.Sealed.CardNumber); named {
					keys[key] = true
				}
			}
			return inChunks(items, func(some []card.StockItem) error { return t.insertStock(ctx, some) })
		})
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) { // the same order everywhere
			if err := t.notRetired(ctx, key); err != nil {
				return fmt.Errorf("import stock: %w", err)
			}
		}
		return nil
	})
}

func (t *tx) insertStock(ctx context.Context, items []card.StockItem) error {
	d := t.s.dialect
	values := make([][]any, len(items))
	for i, item := range items {
		x := item.Sealed
		values[i] = []any{item.ID, item.Supplier, int64(item.USD), item.ExpiresAt.UnixMilli(), item.NumberHash, x.CardNumber,
			x.ExpirationDate, x.SecurityCode, x.URL, x.URLPassword}
	}
	table, args := d.table(values, d.uuidType, "TEXT", "BIGINT", "BIGINT", d.bytes, d.bytes, d.bytes, d.bytes, d.bytes,
		d.bytes)
	_, err := t.s.exec(ctx, t.t, "insert stock", `INSERT INTO stock (id, supplier, usd_cents, expires_at, number_hash, card_number, expiration_date, security_code,
		url, url_password, imported_at) SELECT v.column1, v.column2, v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, v.column9, v.column10, `+d.now+
		" FROM "+table, args...)
	return err
}

// neverReceived is 1 for an item q that was issued to a card without
// credentials, if no intent will still deliver them.
const neverReceived = `CASE WHEN q.state = 'issued' AND q.card_number IS NOT NULL THEN COALESCE((SELECT CASE WHEN i.state IN ('open', 'pending')
	OR i.state = 'done' AND i.card_number_hash = q.number_hash THEN 0 ELSE 1 END FROM intents i WHERE i.card_uuid = q.card_uuid), 1) ELSE 0 END`

// DoubtfulStock returns the items of all stocks that an operator must check:
// held items, and items whose card never got their credentials. They are sorted
// by supplier, amount and expiry.
func (s *Store) DoubtfulStock(ctx context.Context) ([]card.UnresolvedItem, error) {
	var found []struct {
		stockRow
		CardUUID uuid.NullUUID `db:"card_uuid"`
	}
	err := s.list(ctx, s.r, &found, "look for doubtful stock",
		"SELECT "+stockColumns+", card_uuid FROM stock q WHERE q.state = 'held' OR "+neverReceived+
			" = 1 ORDER BY supplier, usd_cents, expires_at, id")
	items := make([]card.UnresolvedItem, len(found))
	for i := range found {
		items[i] = card.UnresolvedItem{StockItem: found[i].item(), CardUUID: found[i].CardUUID.UUID}
	}
	return items, err
}

// ReleaseStock releases a supplier's held items except some, and returns how
// many.
func (s *Store) ReleaseStock(ctx context.Context, supplier string, except []uuid.UUID) (int64, error) {
	query, args := `UPDATE stock SET state = CASE WHEN card_uuid IS NULL THEN 'free' ELSE 'reserved' END WHERE supplier = ? AND state = 'held'`, []any{supplier}
	if len(except) > 0 {
		var err error
		if query, args, err = sqlx.In(query+" AND id NOT IN (?)", supplier, except); err != nil {
			return 0, err
		}
	}
	return s.exec(ctx, s.w, "release stock", query, args...)
}
