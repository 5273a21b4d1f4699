package card

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// A token is cm_MODE_ followed by 27 random characters (160 bits) and 6 that are a checksum, so that a mistyped token, or a
// leaked one in somebody's repository, is recognised without asking the store.
const (
	tokenRandom   = 27
	tokenChecksum = 6
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// A cached token is looked up again after tokenFresh, by one request while the others go on with it, and never used after
// tokenStale. The contract promises that a revoked token is refused everywhere within five seconds.
const (
	tokenFresh = 2 * time.Second
	tokenStale = 4 * time.Second
)

func newToken(mode string) Secret {
	limit := new(big.Int).Exp(big.NewInt(62), big.NewInt(tokenRandom), nil)
	n, _ := rand.Int(rand.Reader, limit) // never fails (crypto/rand)
	return tokenText(mode, n)
}

func tokenText(mode string, random *big.Int) Secret {
	token := "cm_" + mode + "_" + encode62(random, tokenRandom)
	return Secret(token + checksum(token))
}

func checksum(s string) string {
	text, n := make([]byte, tokenChecksum), crc32.ChecksumIEEE([]byte(s))
	for i := tokenChecksum - 1; i >= 0; i-- {
		text[i] = base62[n%62]
		n /= 62
	}
	return string(text)
}

func encode62(n *big.Int, width int) string {
	text := make([]byte, width)
	digit, base := new(big.Int), big.NewInt(62)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}

// wellFormed reports whether a text can be a token of this mode at all.
func wellFormed(token, mode string) bool {
	random, ok := strings.CutPrefix(token, "cm_"+mode+"_")
	if !ok || len(random) != tokenRandom+tokenChecksum {
		return false
	}
	body := len(token) - tokenChecksum
	return checksum(token[:body]) == token[body:]
}

// tokenCache remembers tokens that exist, by a plain hash that never leaves the process. Its zero value is ready for use.
type tokenCache struct{ entries sync.Map }

type tokenEntry struct {
	token      Token
	askedAt    time.Time
	refreshing atomic.Bool
}

// Authenticate returns who a token speaks for, or ErrUnauthorized. It costs a round trip to the store at the first use, and
// one in two seconds afterwards.
func (s *Service) Authenticate(ctx context.Context, token string) (Identity, error) {
	if !wellFormed(token, s.cfg.Mode) {
		return Identity{}, ErrUnauthorized
	}
	key := sha256.Sum256([]byte(token))
	now := s.cfg.Now()
	if cached, ok := s.tokens.entries.Load(key); ok {
		entry := cached.(*tokenEntry)
		age := now.Sub(entry.askedAt)
		if age < tokenFresh || age < tokenStale && !entry.refreshing.CompareAndSwap(false, true) {
			return entry.token.identity(now)
		}
	}
	hash, err := s.tokenHash(Secret(token))
	if err != nil {
		return Identity{}, err
	}
	found, err := s.store.TokenByHash(ctx, hash)
	if errors.Is(err, ErrNotFound) {
		s.tokens.entries.Delete(key)
		return Identity{}, ErrUnauthorized
	}
	if err != nil {
		return Identity{}, err
	}
	s.tokens.entries.Store(key, &tokenEntry{token: found, askedAt: now})
	return found.identity(now)
}

// tokenHash returns what the store knows a token by.
func (s *Service) tokenHash(text Secret) ([]byte, error) {
	return s.vault.Digest("token", []byte(text.Reveal()))
}

func (t Token) identity(now time.Time) (Identity, error) {
	if t.RevokedAt != nil || t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) {
		return Identity{}, ErrUnauthorized
	}
	return Identity{TokenID: t.ID, AccountID: t.AccountID}, nil
}

// CreateAccount stores a new account; ErrDuplicate if the name is taken.
func (s *Service) CreateAccount(ctx context.Context, name string) (Account, error) {
	if name == "" || len(name) > 100 || strings.TrimSpace(name) != name {
		return Account{}, errors.New("an account's name has 1 to 100 characters, and no spaces around it")
	}
	id, at := newID()
	a := Account{ID: id, Name: name, CreatedAt: at}
	return a, s.store.InsertAccount(ctx, a)
}

// CreateToken stores a new token of an account and returns its text, which can't be read again.
// A ttl of 0 means that it does not expire.
func (s *Service) CreateToken(ctx context.Context, account, name string, ttl time.Duration) (Token, Secret, error) {
	owner, err := s.store.AccountByName(ctx, account)
	if err != nil {
		return Token{}, "", fmt.Errorf("account %q: %w", account, err)
	}
	text := newToken(s.cfg.Mode)
	hash, err := s.tokenHash(text)
	if err != nil {
		return Token{}, "", err
	}
	var expires *time.Time
	if ttl > 0 {
		end := s.cfg.Now().Add(ttl)
		expires = &end
	}
	t, err := s.insertToken(ctx, owner, name, hash, expires)
	return t, text, err
}

func (s *Service) insertToken(ctx context.Context, owner Account, name string, hash []byte, expires *time.Time) (Token, error) {
	id, at := newID()
	t := Token{ID: id, AccountID: owner.ID, Account: owner.Name, Name: name, Hash: hash, CreatedAt: at, ExpiresAt: expires}
	return t, s.store.InsertToken(ctx, t)
}

// DevToken returns the token of the sandbox's own account, and makes both if need be. The token is derived from the vault's
// keys: it is the same at each start, and stored nowhere.
func (s *Service) DevToken(ctx context.Context) (Secret, error) {
	const name = "dev"
	owner, err := s.store.AccountByName(ctx, name)
	if errors.Is(err, ErrNotFound) {
		owner, err = s.CreateAccount(ctx, name)
	}
	if err != nil {
		return "", err
	}
	seed, err := s.vault.Digest("dev token", nil)
	if err != nil {
		return "", err
	}
	text := tokenText(s.cfg.Mode, new(big.Int).SetBytes(seed[:20]))
	hash, err := s.tokenHash(text)
	if err != nil {
		return "", err
	}
	if _, err := s.store.TokenByHash(ctx, hash); !errors.Is(err, ErrNotFound) {
		return text, err
	}
	_, err = s.insertToken(ctx, owner, name, hash, nil)
	return text, err
}

// Tokens returns all tokens, without their texts, oldest first.
func (s *Service) Tokens(ctx context.Context) ([]Token, error) { return s.store.Tokens(ctx) }

// RevokeToken makes a token invalid, everywhere within five seconds. Revoking it again changes nothing.
func (s *Service) RevokeToken(ctx context.Context, id uuid.UUID) error {
	return s.store.RevokeToken(ctx, id, s.cfg.Now())
}
