package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
)

// forgetHolders is how long a process is remembered if it did not shut down
// properly.
const forgetHolders = 24 * time.Hour

// SaveHolder implements keys.Store.
func (s *Store) SaveHolder(ctx context.Context, h keys.Holder) error {
	now, names := s.dialect.now, make([]string, len(h.Keys.IDs))
	return s.inTx(ctx, func(t *tx) error {
		for i, id := range h.Keys.IDs {
			names[i] = id.String()
			if _, err := s.exec(ctx, t.t, "insert key",
				"INSERT INTO encryption_keys (id, known_since) VALUES (?, "+now+") ON CONFLICT (id) DO NOTHING",
				int64(id)); err != nil {
				return err
			}
		}
		_, err := s.exec(ctx, t.t, "save key holder", `INSERT INTO key_holders (process, key_ids, primary_key, primary_since, seen_at) VALUES (?, ?, ?, `+now+`, `+now+`)
			ON CONFLICT (process) DO UPDATE SET key_ids = excluded.key_ids, primary_key = excluded.primary_key, seen_at = excluded.seen_at,
			primary_since = CASE WHEN key_holders.primary_key = excluded.primary_key THEN key_holders.primary_since ELSE excluded.primary_since END`,
			h.Process, strings.Join(names, " "), int64(h.Keys.Primary))
		if err != nil {
			return err
		}
		_, err = s.exec(ctx, t.t, "forget key holders", "DELETE FROM key_holders WHERE seen_at < "+now+" - ?",
			forgetHolders.Milliseconds())
		return err
	})
}

// DeleteHolder implements keys.Store.
func (s *Store) DeleteHolder(ctx context.Context, process string) error {
	_, err := s.exec(ctx, s.w, "delete key holder", "DELETE FROM key_holders WHERE process = ?", process)
	return err
}

// Holders implements keys.Store.
func (s *Store) Holders(ctx context.Context, within time.Duration) ([]keys.Holder, error) {
	var found []struct {
		Process string `db:"process"`
		Keys    string `db:"key_ids"`
		Primary int64  `db:"primary_key"`
		Ago     int64  `db:"ago"`
		Since   int64  `db:"since"`
	}
	now := s.dialect.now
	err := s.list(ctx, s.r, &found, "select key holders",
		"SELECT process, key_ids, primary_key, "+now+" - seen_at AS ago, "+now+
			" - primary_since AS since FROM key_holders WHERE seen_at > "+now+
			" - ? ORDER BY process", within.Milliseconds())
	all := make([]keys.Holder, len(found))
	for i, f := range found {
		all[i] = keys.Holder{Process: f.Process, Keys: keys.Ring{Primary: card.KeyID(f.Primary)},
			SeenAgo:    time.Duration(f.Ago) * time.Millisecond,
			PrimaryFor: time.Duration(f.Since) * time.Millisecond}
		for _, text := range strings.Fields(f.Keys) {
			if id, err := card.ParseKeyID(text); err == nil {
				all[i].Keys.IDs = append(all[i].Keys.IDs, id)
			}
		}
	}
	return all, err
}

// KnownKeys implements keys.Store.
func (s *Store) KnownKeys(ctx context.Context) ([]keys.KnownKey, error) {
	var found []struct {
		ID         int64  `db:"id"`
		Since      int64  `db:"known_since"`
		PromotedAt *int64 `db:"promoted_at"`
		RetiredAt  *int64 `db:"retired_at"`
	}
	err := s.list(ctx, s.r, &found, "select keys",
		"SELECT id, known_since, promoted_at, retired_at FROM encryption_keys ORDER BY known_since, id")
	all := make([]keys.KnownKey, len(found))
	for i, f := range found {
		all[i] = keys.KnownKey{ID: card.KeyID(f.ID), Since: fromMillis(f.Since), PromotedAt: fromNullMillis(f.PromotedAt),
			RetiredAt: fromNullMillis(f.RetiredAt)}
	}
	return all, err
}

// PromoteKey implements keys.Store. Two promotions within a millisecond keep
// their order.
func (s *Store) PromoteKey(ctx context.Context, id card.KeyID) error {
	now := s.dialect.now
	next := "(SELECT CASE WHEN MAX(k.promoted_at) >= " + now + " THEN MAX(k.promoted_at) + 1 ELSE " + now +
		" END FROM encryption_keys k)"
	_, err := s.exec(ctx, s.w, "promote key",
		"INSERT INTO encryption_keys (id, known_since, promoted_at) VALUES (?, "+now+", "+next+
			") ON CONFLICT (id) DO UPDATE SET promoted_at = excluded.promoted_at, retired_at = NULL", int64(id))
	return err
}

// MarkRetired implements keys.Store. An unknown key is inserted, so that this
// transaction and an import that uses the key wait for each other.
func (s *Store) MarkRetired(ctx context.Context, id card.KeyID, retired bool) error {
	now := s.dialect.now
	if !retired {
		_, err := s.exec(ctx, s.w, "unretire key", "UPDATE encryption_keys SET retired_at = NULL WHERE id = ?", int64(id))
		return err
	}
	_, err := s.exec(ctx, s.w, "retire key",
		"INSERT INTO encryption_keys (id, known_since, retired_at) VALUES (?, "+now+", "+now+
			") ON CONFLICT (id) DO UPDATE SET retired_at = COALESCE(encryption_keys.retired_at, excluded.retired_at)", int64(id))
	return err
}

// notRetired returns card.ErrRetiredKey if a key is retired. Otherwise it locks
// the key's row, and inserts it if there is none, so that the key is not
// retired before the transaction ends. The statement changes nothing else.
func (t *tx) notRetired(ctx context.Context, id card.KeyID) error {
	n, err := t.s.exec(ctx, t.t, "check key", "INSERT INTO encryption_keys (id, known_since) VALUES (?, "+t.s.dialect.now+
		") ON CONFLICT (id) DO UPDATE SET known_since = encryption_keys.known_since WHERE encryption_keys.retired_at IS NULL", int64(id))
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s", card.ErrRetiredKey, id)
	}
	return err
}
