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

// After tokenFresh one request refreshes a cached token, while concurrent
// requests still use the cache. After tokenStale none does. The API contract
// promises that a revoked token is rejected everywhere within five seconds.
const (
	tokenFresh = 2 * time.Second
	tokenStale = 4 * time.Second
)

const (
	// unknownFor is how long an unknown token is rejected without another
	// lookup. It is below the five seconds that a new token may take to work.
	unknownFor = 3 * time.Second
	maxUnknown = 10_000 // cached unknown tokens
)

// tokenCache caches known tokens, by an unkeyed hash that never leaves the
// process. Its zero value is ready for use.
type tokenCache struct{ entries sync.Map }

type tokenEntry struct {
	token      Token
	askedAt    time.Time
	refreshing atomic.Bool
}

// unknownTokens caches the times of unsuccessful lookups, by the same hash.
// Clients can send any number of invalid tokens, so it keeps only the newest,
// in two generations. Its zero value is ready for use.
type unknownTokens struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]time.Time
}

// has reports whether a lookup failed less than unknownFor ago.
func (u *unknownTokens) has(key [sha256.Size]byte, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	askedAt, known := u.young[key]
	if !known {
		askedAt, known = u.old[key]
	}
	return known && now.Sub(askedAt) < unknownFor
}

func (u *unknownTokens) add(key [sha256.Size]byte, askedAt time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.young == nil || len(u.young) == maxUnknown/2 {
		u.young, u.old = map[[sha256.Size]byte]time.Time{}, u.young
	}
	u.young[key] = askedAt
}

// Authenticate returns the identity of a token. The error is
// card.ErrUnauthorized if the token is unknown, expired or revoked, or if its
// row was changed without the keys. The first use of a token costs a round trip
// to the store; after that one every two seconds, or every three if the token
// is unknown.
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
			return s.identity(entry.token, now)
		}
	}
	if s.unknown.has(key, now) {
		return Identity{}, card.ErrUnauthorized
	}
	hash, err := s.tokenHash(card.Secret(token))
	if err != nil {
		return Identity{}, err
	}
	found, err := s.store.TokenByHash(ctx, hash)
	if errors.Is(err, card.ErrNoRow) {
		s.tokens.entries.Delete(key)
		s.unknown.add(key, now)
		return Identity{}, card.ErrUnauthorized
	}
	if err == nil {
		_, err = s.verify(found)
	}
	if errors.Is(err, ErrTokenChanged) {
		s.tokens.entries.Delete(key)
		s.unknown.add(key, now)
		s.cfg.Changed()
		s.store.ReportCorrupt(ctx, "token", found.ID, err)
		return Identity{}, card.ErrUnauthorized
	}
	if err != nil {
		return Identity{}, err
	}
	s.tokens.entries.Store(key, &tokenEntry{token: found, askedAt: now})
	return s.identity(found, now)
}

// Recognizes reports whether the token is cached and has not expired. It never
// calls the store.
func (s *Service) Recognizes(token string) bool {
	cached, ok := s.tokens.entries.Load(sha256.Sum256([]byte(token)))
	return ok && !cached.(*tokenEntry).token.ended(s.cfg.Now())
}

// tokenHash returns the keyed hash under which a token is stored.
func (s *Service) tokenHash(text card.Secret) ([]byte, error) {
	return s.vault.Digest("token", []byte(text.Reveal()))
}

// identity returns the identity of a token that has not ended, and records its
// use.
func (s *Service) identity(t Token, now time.Time) (Identity, error) {
	if t.ended(now) {
		return Identity{}, card.ErrUnauthorized
	}
	s.uses.record(t.ID, now)
	return Identity{TokenID: t.ID, AccountID: t.AccountID, Scopes: t.Scopes}, nil
}
