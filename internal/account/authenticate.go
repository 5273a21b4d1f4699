package account

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// A cached token is looked up again after tokenFresh, by one request while the others go on with it, and never used after
// tokenStale. The contract promises that a revoked token is refused everywhere within five seconds.
const (
	tokenFresh = 2 * time.Second
	tokenStale = 4 * time.Second
)

// tokenCache remembers tokens that exist, by a plain hash that never leaves the process. Its zero value is ready for use.
type tokenCache struct{ entries sync.Map }

type tokenEntry struct {
	token      Token
	askedAt    time.Time
	refreshing atomic.Bool
}

// Authenticate returns who a token speaks for, or card.ErrUnauthorized. It costs a round trip to the store at the first use, and
// one in two seconds afterwards.
func (s *Service) Authenticate(ctx context.Context, token string) (Identity, error) {
	if !wellFormed(token, s.cfg.Mode) {
		return Identity{}, card.ErrUnauthorized
	}
	key := sha256.Sum256([]byte(token))
	now := s.cfg.Now()
	if cached, ok := s.tokens.entries.Load(key); ok {
		entry := cached.(*tokenEntry)
		age := now.Sub(entry.askedAt)
		if age < tokenFresh || age < tokenStale && !entry.refreshing.CompareAndSwap(false, true) {
			return identity(entry.token, now)
		}
	}
	hash, err := s.tokenHash(card.Secret(token))
	if err != nil {
		return Identity{}, err
	}
	found, err := s.store.TokenByHash(ctx, hash)
	if errors.Is(err, card.ErrNotFound) {
		s.tokens.entries.Delete(key)
		return Identity{}, card.ErrUnauthorized
	}
	if err != nil {
		return Identity{}, err
	}
	s.tokens.entries.Store(key, &tokenEntry{token: found, askedAt: now})
	return identity(found, now)
}

// tokenHash returns what the store knows a token by.
func (s *Service) tokenHash(text card.Secret) ([]byte, error) {
	return s.vault.Digest("token", []byte(text.Reveal()))
}

func identity(t Token, now time.Time) (Identity, error) {
	if t.RevokedAt != nil || t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) {
		return Identity{}, card.ErrUnauthorized
	}
	return Identity{TokenID: t.ID, AccountID: t.AccountID}, nil
}
