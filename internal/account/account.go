// Package account manages who may use the service: accounts, their tokens, and
// authentication.
//
// It may import package card only. The store has a keyed hash of each token.
// Tokens, known and unknown, are cached in memory for a few seconds. A crash
// loses that, and which tokens were used within the last minute.
package account

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Identity is the account, and the token, that a request is authenticated as.
type Identity struct {
	TokenID   uuid.UUID
	AccountID uuid.UUID
	Scopes    Scopes
}

// Account is a customer of the operator.
type Account struct {
	ID        uuid.UUID
	Name      string
	CreatedAt time.Time
}

// Token is an API token without its secret.
type Token struct {
	ID        uuid.UUID
	AccountID uuid.UUID
	Account   string // the account's name
	Name      string
	Hash      []byte // a keyed hash of the token's text
	Scopes    Scopes
	CreatedAt time.Time
	ExpiresAt *time.Time
	RevokedAt *time.Time
	// ReplacedBy is the token that this one was rotated to, the zero UUID if it
	// was not.
	ReplacedBy uuid.UUID
	// Seal vouches for the fields above that grant power. Nil if the row has
	// none.
	Seal []byte
}

// ended reports whether the token is revoked or has expired.
func (t Token) ended(now time.Time) bool {
	return t.RevokedAt != nil || t.ExpiresAt != nil && !now.Before(*t.ExpiresAt)
}

// Store keeps accounts and tokens. Running any of its methods twice is
// harmless. The error is card.ErrNoRow if a row does not exist, and
// card.ErrUnavailable if the database can't be reached.
type Store interface {
	// InsertAccount returns card.ErrDuplicate if the name is taken.
	InsertAccount(ctx context.Context, a Account) error
	AccountByName(ctx context.Context, name string) (Account, error)
	InsertToken(ctx context.Context, t Token) error
	TokenByHash(ctx context.Context, hash []byte) (Token, error)
	TokenByID(ctx context.Context, id uuid.UUID) (Token, error)
	// Tokens returns all tokens, oldest first.
	Tokens(ctx context.Context) ([]Token, error)
	// RotateToken inserts a token that replaces old, and stores the new end,
	// successor and seal of old. The error is card.ErrNoRow if old has ended at
	// now, or another token replaces it.
	RotateToken(ctx context.Context, old, successor Token, now time.Time) error
	// SaveUses stores when tokens were used, unless a later use of theirs is
	// stored.
	SaveUses(ctx context.Context, uses map[uuid.UUID]time.Time) error
	// RevokeToken stores the revocation of a token and its seal, with the other
	// fields that can change as they were read.
	RevokeToken(ctx context.Context, t Token) error
	// SealTokens replaces the setting key_check, and stores the seals of tokens
	// that have none. The error is card.ErrNoRow if the setting is not before.
	SealTokens(ctx context.Context, all []Token, before, after string) error
	// Setting returns the value stored under name. If there is none, it stores
	// proposed first.
	Setting(ctx context.Context, name, proposed string) (string, error)
	// ReportCorrupt reports a damaged row to the operator, once.
	ReportCorrupt(ctx context.Context, what string, id uuid.UUID, err error)
}

// Vault hashes secrets that the database must not contain, and seals rows that
// must not be changed without its keys.
type Vault interface {
	// Digest returns a keyed hash. Different labels give different hashes of
	// the same data.
	Digest(label string, data []byte) ([]byte, error)
	// Seal encrypts a text, and binds it to the id, the account and the name of
	// the field.
	Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error)
	// Open decrypts it. The error is card.ErrUnavailable if only another
	// process may have the key.
	Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
}

// Config configures a service.
type Config struct {
	// Mode is part of every token: card.TestMode or card.LiveMode. Defaults to
	// card.TestMode.
	Mode string
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Changed is called when a token is refused because its row was changed
	// without the keys. Defaults to nothing.
	Changed func()
}

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *Config) Validate() error {
	if c.Mode == "" {
		c.Mode = card.TestMode
	}
	if c.Mode != card.TestMode && c.Mode != card.LiveMode {
		return fmt.Errorf("mode must be %s or %s", card.TestMode, card.LiveMode)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return nil
}

// Service creates accounts and tokens, and authenticates requests. It is safe
// for concurrent use.
type Service struct {
	store   Store
	vault   Vault
	cfg     Config
	tokens  tokenCache
	unknown unknownTokens
	uses    tokenUses
	// unsealed is true if versions without seals have used the database, until
	// SealTokens.
	unsealed atomic.Bool
}

// New returns a service. It returns an error if cfg is not valid.
func New(store Store, vault Vault, cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Service{store: store, vault: vault, cfg: cfg}, nil
}

// CheckKeys returns card.ErrWrongKeys if the vault's keys are not those with
// which the store was first used. With other keys, tokens would not be
// recognised and credentials could not be decrypted. It also finds out whether
// the tokens are sealed.
func (s *Service) CheckKeys(ctx context.Context) error {
	sealed, before, err := s.keyChecks()
	if err != nil {
		return err
	}
	stored, err := s.store.Setting(ctx, "key_check", sealed)
	if err != nil {
		return fmt.Errorf("check keys: %w", err)
	}
	if stored != sealed && stored != before {
		return card.ErrWrongKeys
	}
	s.unsealed.Store(stored == before)
	return nil
}

// printable reports whether a name can be shown as it is: it has no control
// characters, which a terminal would obey.
func printable(name string) bool {
	return utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// CreateAccount stores a new account. The error is card.ErrDuplicate if the
// name is taken.
func (s *Service) CreateAccount(ctx context.Context, name string) (Account, error) {
	if name == "" || utf8.RuneCountInString(name) > 100 || strings.TrimSpace(name) != name || !printable(name) {
		return Account{}, errors.New("an account's name has 1 to 100 printable characters, and no spaces around it")
	}
	id := uuid.Must(uuid.NewV7())
	a := Account{ID: id, Name: name, CreatedAt: card.TimeOf(id)}
	return a, s.store.InsertAccount(ctx, a)
}

// TokenRequest describes a token to create.
type TokenRequest struct {
	Name      string        // what it is for
	Scopes    Scopes        // at least one
	TTL       time.Duration // how long it is valid; 0 for ever, unless ExpiresAt says otherwise
	ExpiresAt *time.Time    // when it expires, instead of TTL
}

// expiry returns when the token expires, or nil.
func (r TokenRequest) expiry(now time.Time) (*time.Time, error) {
	switch {
	case r.TTL < 0:
		return nil, errors.New("a token's time to live must not be negative")
	case r.ExpiresAt != nil && !now.Before(*r.ExpiresAt):
		return nil, errors.New("the token would have expired already")
	case r.ExpiresAt != nil || r.TTL == 0:
		return r.ExpiresAt, nil
	}
	end := now.Add(r.TTL)
	return &end, nil
}

// CreateToken stores a new token of the account, and returns it with its text,
// which can't be read again. The error is card.ErrNoRow if there is no such
// account.
func (s *Service) CreateToken(ctx context.Context, account string, r TokenRequest) (Token, card.Secret, error) {
	expires, err := r.expiry(s.cfg.Now())
	if err != nil {
		return Token{}, "", err
	}
	if r.Scopes == 0 {
		return Token{}, "", errors.New("a token needs at least one scope")
	}
	if !printable(r.Name) {
		return Token{}, "", errors.New("a token's name has printable characters only")
	}
	owner, err := s.store.AccountByName(ctx, account)
	if err != nil {
		return Token{}, "", fmt.Errorf("account %q: %w", account, err)
	}
	text := newToken(s.cfg.Mode)
	hash, err := s.tokenHash(text)
	if err != nil {
		return Token{}, "", err
	}
	t := s.tokenOf(owner, r.Name, r.Scopes, hash, expires)
	if err := s.keepMode(ctx, &t, s.cfg.Mode); err != nil {
		return Token{}, "", err
	}
	return t, text, s.store.InsertToken(ctx, t)
}

// keepMode keeps the mode of a new token: in its seal, or in a setting while
// the tokens of the database are not sealed.
func (s *Service) keepMode(ctx context.Context, t *Token, mode string) error {
	if s.Sealed() {
		return s.seal(t, mode, t.Scopes.String())
	}
	_, err := s.modeOf(ctx, t.ID, mode)
	return err
}

// modeOf returns the mode of a token. If it is not stored, as for tokens of
// before it was, it stores the proposed one. Nobody could tell it from a
// token's row, which has no more of its text than a hash.
func (s *Service) modeOf(ctx context.Context, token uuid.UUID, proposed string) (string, error) {
	return s.store.Setting(ctx, "token_mode:"+token.String(), proposed)
}

// tokenOf returns a new token of an account.
func (s *Service) tokenOf(owner Account, name string, scopes Scopes, hash []byte, expires *time.Time) Token {
	return Token{ID: uuid.Must(uuid.NewV7()), AccountID: owner.ID, Account: owner.Name, Name: name, Hash: hash,
		Scopes:    scopes,
		CreatedAt: s.cfg.Now().UTC().Truncate(time.Millisecond), ExpiresAt: expires}
}

// DevToken returns the text of the token of the sandbox's own account, and
// creates both if need be. The text is derived from the vault's keys, so that
// it is the same at each start without being stored.
func (s *Service) DevToken(ctx context.Context) (card.Secret, error) {
	const name = "dev"
	owner, err := s.store.AccountByName(ctx, name)
	if errors.Is(err, card.ErrNoRow) {
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
	if _, err := s.store.TokenByHash(ctx, hash); !errors.Is(err, card.ErrNoRow) {
		return text, err
	}
	t := s.tokenOf(owner, name, AllScopes, hash, nil)
	if err := s.keepMode(ctx, &t, s.cfg.Mode); err != nil {
		return "", err
	}
	return text, s.store.InsertToken(ctx, t)
}

// RevokeToken revokes a token; a no-op if it is already revoked. All processes
// refuse the token within five seconds. The error is card.ErrNoRow if there is
// no such token.
func (s *Service) RevokeToken(ctx context.Context, id uuid.UUID) error {
	t, err := s.store.TokenByID(ctx, id)
	if err != nil {
		return err
	}
	sealed, err := s.verify(t)
	if err == nil && t.RevokedAt != nil {
		return nil
	}
	if err != nil { // a changed row is sealed as it is: it stays revoked, so its other fields grant nothing
		sealed = sealedToken{Scopes: t.Scopes.String()}
	}
	if t.RevokedAt == nil {
		t.RevokedAt = new(s.cfg.Now())
	}
	if s.Sealed() {
		if err := s.seal(&t, sealed.Mode, sealed.Scopes); err != nil {
			return err
		}
	}
	return s.store.RevokeToken(ctx, t)
}
