package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// scopesSchema is the first version of the schema whose programs check scopes.
const scopesSchema = 20

// ifScoped is the condition that there is a token without all scopes.
const ifScoped = " AND EXISTS (SELECT 1 FROM tokens WHERE scopes IS NOT NULL)"

// demandScopes makes programs without scopes refuse the database if a condition
// holds.
func (s *Store) demandScopes(ctx context.Context, on runner, condition string) error {
	_, err := s.exec(ctx, on, "raise schema compatibility",
		"UPDATE schema_compatibility SET oldest = ? WHERE oldest < ?"+condition, scopesSchema, scopesSchema)
	return err
}

// sealsSchema is the first version of the schema whose programs check seals.
const sealsSchema = 27

// ifSealed is the condition that there is a token with a seal.
const ifSealed = " AND EXISTS (SELECT 1 FROM tokens WHERE seal IS NOT NULL)"

// demandSeals makes programs without seals refuse the database if a condition
// holds.
func (s *Store) demandSeals(ctx context.Context, on runner, condition string) error {
	_, err := s.exec(ctx, on, "raise schema compatibility",
		"UPDATE schema_compatibility SET oldest = ? WHERE oldest < ?"+condition, sealsSchema, sealsSchema)
	return err
}

// InsertToken implements account.Store.
func (s *Store) InsertToken(ctx context.Context, t account.Token) error {
	if t.Scopes == account.AllScopes && t.Seal == nil {
		return s.insertToken(ctx, s.w, t)
	}
	return s.inTx(ctx, func(x *tx) error {
		if err := s.insertToken(ctx, x.t, t); err != nil {
			return err
		}
		if t.Seal != nil {
			return s.demandSeals(ctx, x.t, "")
		}
		return s.demandScopes(ctx, x.t, "")
	})
}

func (s *Store) insertToken(ctx context.Context, on runner, t account.Token) error {
	var scopes any
	if t.Scopes != account.AllScopes {
		scopes = t.Scopes.String()
	}
	_, err := s.exec(ctx, on, "insert token", `INSERT INTO tokens (id, account_id, name, hash, scopes, created_at, expires_at, seal)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`, t.ID, t.AccountID, t.Name, t.Hash, scopes, t.CreatedAt.UnixMilli(), nullMillis(t.ExpiresAt), t.Seal)
	return err
}

// TokenByID implements account.Store.
func (s *Store) TokenByID(ctx context.Context, id uuid.UUID) (account.Token, error) {
	var row tokenRow
	err := s.get(ctx, s.r, &row, "select token", selectTokens+" WHERE t.id = ?", id)
	if err != nil {
		return account.Token{}, err
	}
	return row.token(), nil
}

// RotateToken implements account.Store. Running it twice is harmless: the
// successor is the same.
func (s *Store) RotateToken(ctx context.Context, old, successor account.Token, now time.Time) error {
	return s.inTx(ctx, func(x *tx) error {
		n, err := s.exec(ctx, x.t, "rotate token", `UPDATE tokens SET replaced_by = ?, expires_at = ?, seal = ?
			WHERE id = ? AND (replaced_by IS NULL OR replaced_by = ?) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)`,
			successor.ID, nullMillis(old.ExpiresAt), old.Seal, old.ID, successor.ID, now.UnixMilli())
		if err == nil && n == 0 {
			err = card.ErrNoRow
		}
		if err != nil {
			return err
		}
		return s.insertToken(ctx, x.t, successor)
	})
}

// RevokeToken implements account.Store. It writes every changeable column that
// the seal covers, so that the row matches the seal even if another process has
// just rotated the token.
func (s *Store) RevokeToken(ctx context.Context, t account.Token) error {
	n, err := s.exec(ctx, s.w, "revoke token",
		"UPDATE tokens SET revoked_at = ?, expires_at = ?, replaced_by = ?, seal = ? WHERE id = ?",
		nullMillis(t.RevokedAt), nullMillis(t.ExpiresAt), uuid.NullUUID{UUID: t.ReplacedBy, Valid: t.ReplacedBy != uuid.Nil},
		t.Seal, t.ID)
	if err == nil && n == 0 {
		return card.ErrNoRow
	}
	return err
}

// SealTokens implements account.Store.
func (s *Store) SealTokens(ctx context.Context, all []account.Token, before, after string) error {
	return s.inTx(ctx, func(x *tx) error {
		n, err := s.exec(ctx, x.t, "replace key check",
			"UPDATE settings SET value = ? WHERE name = 'key_check' AND value = ?", after, before)
		if err == nil && n == 0 {
			err = card.ErrNoRow
		}
		if err != nil {
			return err
		}
		for _, t := range all {
			if _, err := s.exec(ctx, x.t, "seal token", "UPDATE tokens SET seal = ? WHERE id = ? AND seal IS NULL", t.Seal,
				t.ID); err != nil {
				return err
			}
		}
		return s.demandSeals(ctx, x.t, "")
	})
}

// SaveUses implements account.Store. It writes rows in order, so that
// concurrent processes cannot deadlock.
func (s *Store) SaveUses(ctx context.Context, uses map[uuid.UUID]time.Time) error {
	type use struct {
		token uuid.UUID
		at    time.Time
	}
	all := make([]use, 0, len(uses))
	for token, at := range uses {
		all = append(all, use{token, at})
	}
	slices.SortFunc(all, func(a, b use) int { return bytes.Compare(a.token[:], b.token[:]) })
	return inChunks(all, func(some []use) error {
		var args []any
		for _, u := range some {
			args = append(args, u.token, u.at.UnixMilli())
		}
		_, err := s.exec(ctx, s.w, "save uses of tokens",
			"INSERT INTO token_uses (token_id, used_at) VALUES "+rows("(?, ?)", len(some))+
				" ON CONFLICT (token_id) DO UPDATE SET used_at = excluded.used_at WHERE token_uses.used_at < excluded.used_at",
			args...)
		return err
	})
}

// TokenUses returns when each token was last used, as saved by all processes.
func (s *Store) TokenUses(ctx context.Context) (map[uuid.UUID]time.Time, error) {
	var found []struct {
		Token uuid.UUID `db:"token_id"`
		At    int64     `db:"used_at"`
	}
	err := s.list(ctx, s.r, &found, "select uses of tokens", "SELECT token_id, used_at FROM token_uses")
	uses := make(map[uuid.UUID]time.Time, len(found))
	for _, u := range found {
		uses[u.Token] = fromMillis(u.At)
	}
	return uses, err
}
