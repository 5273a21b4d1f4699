package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
)

// sealedSet is one kind of encrypted data: columns that are always sealed
// together, with one key.
type sealedSet struct {
	keys.Set
	table, id string
	// an expression for the account that the data is bound to, in terms of the
	// table x; "" for none
	account string
	columns []string
}

// also the names of the fields
var credentialColumns = []string{"card_number", "expiration_date", "security_code", "url", "url_password"}

// sealedSets is everything that a vault has sealed. A set that is missing here
// becomes unreadable when its key is retired. A new set needs an index on
// SUBSTR(first column, 1, 5) and the id.
var sealedSets = []sealedSet{
	{keys.Set{Name: "credentials", Fields: credentialColumns},
		"credentials", "card_uuid", "(SELECT c.account_id FROM cards c WHERE c.uuid = x.card_uuid)", credentialColumns},
	{keys.Set{Name: "refund address", Fields: []string{card.RefundAddressField}}, "cards", "uuid", "x.account_id",
		[]string{"refund_address"}},
	{keys.Set{Name: "stock", Fields: credentialColumns}, "stock", "id", "", credentialColumns}, // until it is wiped
	{keys.Set{Name: "webhook secret", Fields: []string{"webhook_secret"}}, "webhooks", "id", "x.account_id",
		[]string{"secret"}},
	{keys.Set{Name: "previous webhook secret", Fields: []string{"webhook_secret"}}, "webhooks", "id", "x.account_id",
		[]string{"old_secret"}},
	{keys.Set{Name: "reply", Fields: []string{"reply"}}, "idempotency_keys", "id", "x.account_id",
		[]string{"reply"}},
	{keys.Set{Name: "token", Fields: []string{account.SealField}}, "tokens", "id", "x.account_id", []string{"seal"}},
}

// prefixOf is an expression for the key's name in a ciphertext:
// card.KeyID.Prefix.
func prefixOf(column string) string { return "SUBSTR(" + column + ", 1, 5)" }

// SealedSets implements keys.Store.
func (s *Store) SealedSets() []keys.Set {
	sets := make([]keys.Set, len(sealedSets))
	for i, set := range sealedSets {
		sets[i] = set.Set
	}
	return sets
}

func setNamed(name string) (sealedSet, error) {
	for _, set := range sealedSets {
		if set.Name == name {
			return set, nil
		}
	}
	return sealedSet{}, fmt.Errorf("nothing is sealed as %q", name)
}

// SealedBy implements keys.Store. It reads the first column in the order of its
// index.
func (s *Store) SealedBy(ctx context.Context, set string, key card.KeyID, after uuid.UUID, n int) ([]keys.Row,
	error) {
	x, err := setNamed(set)
	if err != nil {
		return nil, err
	}
	by, account := prefixOf("x."+x.columns[0]), x.account
	if account == "" {
		account = "NULL"
	}
	query := "SELECT x." + x.id + ", " + account + ", x." + strings.Join(x.columns, ", x.") + " FROM " + x.table +
		" x WHERE x." + x.columns[0] +
		" IS NOT NULL AND " + by + " >= ? AND " + by + " <= ? AND (" + by + ", x." + x.id + ") > (?, ?) ORDER BY " + by +
		", x." + x.id + " LIMIT ?"
	found, err := s.r.QueryxContext(ctx, s.r.Rebind(query), key.Prefix(), key.Prefix(), key.Prefix(), after, n)
	if err != nil {
		return nil, s.fail("select sealed rows", err)
	}
	defer func() { _ = found.Close() }()
	var all []keys.Row
	for found.Next() {
		row, of := keys.Row{Sealed: make([][]byte, len(x.columns))}, uuid.NullUUID{}
		dest := []any{&row.ID, &of}
		for i := range row.Sealed {
			dest = append(dest, &row.Sealed[i])
		}
		if err := found.Scan(dest...); err != nil {
			return nil, s.fail("select sealed rows", err)
		}
		row.AccountID = of.UUID
		all = append(all, row)
	}
	return all, s.fail("select sealed rows", found.Err())
}

// ReplaceSealed implements keys.Store. It locks the rows first, in the order of
// their ids.
func (s *Store) ReplaceSealed(ctx context.Context, set string, before, after []keys.Row) (replaced int64,
	err error) {
	x, err := setNamed(set)
	if err != nil {
		return 0, err
	}
	types, sets, same := []string{s.dialect.uuidType}, make([]string, len(x.columns)), ""
	for i, column := range x.columns {
		types = append(types, s.dialect.bytes, s.dialect.bytes)
		sets[i] = fmt.Sprintf("%s = v.column%d", column, 2*i+3)
		same += fmt.Sprintf(" AND %s.%s = v.column%d", x.table, column, 2*i+2)
	}
	values := make([][]any, len(before))
	for i, row := range before {
		values[i] = []any{row.ID}
		for j := range x.columns {
			values[i] = append(values[i], row.Sealed[j], after[i].Sealed[j])
		}
	}
	err = inChunks(values, func(some [][]any) error {
		ids := make([]any, len(some))
		for i, row := range some {
			ids[i] = row[0]
		}
		n := int64(0)
		err := s.inTx(ctx, func(t *tx) error {
			var locked []uuid.UUID
			err := s.list(ctx, t.t, &locked, "lock sealed rows",
				"SELECT "+x.id+" FROM "+x.table+" WHERE "+x.id+" IN ("+rows("?", len(ids))+") ORDER BY "+x.id+
					s.dialect.forUpdate, ids...)
			if err != nil {
				return err
			}
			table, args := s.dialect.table(some, types...)
			n, err = s.exec(ctx, t.t, "replace sealed rows", "UPDATE "+x.table+" SET "+strings.Join(sets, ", ")+" FROM "+table+
				" WHERE "+x.table+"."+x.id+" = v.column1"+same, args...)
			return err
		})
		replaced += n
		return err
	})
	return replaced, err
}

// CountSealed implements keys.Store.
func (s *Store) CountSealed(ctx context.Context) (map[card.KeyID]int64, error) {
	all := map[card.KeyID]int64{}
	for _, set := range sealedSets {
		by := prefixOf(set.columns[0])
		var found []struct {
			Prefix []byte `db:"prefix"`
			N      int64  `db:"n"`
		}
		err := s.list(ctx, s.r, &found, "count sealed rows",
			"SELECT "+by+" AS prefix, COUNT(*) AS n FROM "+set.table+" WHERE "+set.columns[0]+" IS NOT NULL GROUP BY "+by)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if key, named := card.KeyOf(f.Prefix); named {
				all[key] += f.N
			}
		}
	}
	return all, nil
}

// UsersOf implements keys.Store.
func (s *Store) UsersOf(ctx context.Context, set string, key card.KeyID, after uuid.UUID, n int) (users int64,
	last uuid.UUID, looked int, err error) {
	x, err := setNamed(set)
	if err != nil {
		return 0, after, 0, err
	}
	conditions, args := make([]string, len(x.columns)), []any{}
	for i, column := range x.columns {
		conditions[i], args = "x."+column+" IS NOT NULL AND "+prefixOf("x."+column)+" = ?", append(args, key.Prefix())
	}
	var found []struct {
		ID   uuid.UUID `db:"id"`
		Uses int64     `db:"uses"`
	}
	err = s.list(ctx, s.r, &found, "look at sealed rows",
		"SELECT x."+x.id+" AS id, CASE WHEN "+strings.Join(conditions, " OR ")+" THEN 1 ELSE 0 END AS uses FROM "+
			x.table+" x WHERE x."+x.id+" > ? ORDER BY x."+x.id+" LIMIT ?", append(args, after, n)...)
	last = after
	for _, f := range found {
		users, last = users+f.Uses, f.ID
	}
	return users, last, len(found), err
}
