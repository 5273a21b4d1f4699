// Package account manages accounts and their tokens, and authenticates
// requests.
//
// It may import package card only. The store contains a keyed hash of each
// token. Known and unknown tokens are cached in memory for a few seconds. A
// crash loses the cache, and up to a minute of the times of last use.
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

// Identity is the result of authenticating a request.
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
	// ReplacedBy is the token that this one was rotated to; zero if none.
	ReplacedBy uuid.UUID
	// Seal authenticates the fields above that grant access; nil if the row has
	// none.
	Seal []byte
}

// ended reports whether the token is revoked or has expired.
func (t Token) ended(now time.Time) bool {
	return t.RevokedAt != nil || t.ExpiresAt != nil && !now.Before(*t.ExpiresAt)
}

// Store stores accounts and tokens. Every method is harmless when it runs
// twice. The error is card.ErrNoRow if a row does not exist, and
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
	// RotateToken inserts the successor of old, and stores the new expiry,
	// successor and seal of old. The error is card.ErrNoRow if old has ended at
	// now, or already has a successor.
	RotateToken(ctx context.Context, old, successor Token, now time.Time) error
	// SaveUses stores the times of last use of tokens, unless later ones are
	// stored.
	SaveUses(ctx context.Context, uses map[uuid.UUID]time.Time) error
	// RevokeToken stores the revocation and the seal of a token. It rewrites
	// the other mutable fields as they were read.
	RevokeToken(ctx context.Context, t Token) error
	// SealTokens changes the setting key_check from before to after, and stores
	// the seals of tokens that have none. The error is card.ErrNoRow if the
	// setting has another value.
	SealTokens(ctx context.Context, all []Token, before, after string) error
	// Setting returns the value of a setting. If there is none, it first stores
	// proposed.
	Setting(ctx context.Context, name, proposed string) (string, error)
	// ReportCorrupt reports a corrupt row to the operator, once.
	ReportCorrupt(ctx context.Context, kind string, id uuid.UUID, err error)
}

// Vault hashes secrets, and seals rows against changes without its keys.
type Vault interface {
	// Digest returns a keyed hash. Different labels give different hashes of
	// the same data.
	Digest(label string, data []byte) ([]byte, error)
	// Seal encrypts a text, and binds it to the id, the account and the field.
	Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error)
	// Open decrypts it. The error is card.ErrUnavailable if the key is missing
	// here but may exist in another process.
	Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
}

// Config configures a service.
type Config struct {
	// Mode is part of every token: card.TestMode or card.LiveMode. Defaults to
	// card.TestMode.
	Mode string
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Changed is called when a token is rejected because its row was changed
	// without the keys. Defaults to no call.
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
	// unsealed is true from the use of a database by a version without seals
	// until SealTokens.
	unsealed atomic.Bool
}

// New returns a service. It returns an error if cfg is not valid.
func New(store Store, vault Vault, cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Service{store: store, vault: vault, cfg: cfg}, nil
}

// CheckKeys returns card.ErrWrongKeys if the vault's keys are not the ones of
// the store's first use. With other keys, tokens would not be recognized and
// credentials could not be decrypted. It also determines whether the tokens are
// sealed.
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

// printable reports whether a name is valid UTF-8 without control characters,
// which a terminal would interpret.
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
	Name      string        // its purpose
	Scopes    Scopes        // at least one
	TTL       time.Duration // time to live; 0 for unlimited, or if ExpiresAt is set
	ExpiresAt *time.Time    // alternative to TTL
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
// which is not stored. The error is card.ErrNoRow if the account does not
// exist.
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
	if err := s.storeMode(ctx, &t, s.cfg.Mode); err != nil {
		return Token{}, "", err
	}
	return t, text, s.store.InsertToken(ctx, t)
}

// storeMode stores the mode of a new token: in its seal, or in a setting while
// the tokens of the database are not sealed.
func (s *Service) storeMode(ctx context.Context, t *Token, mode string) error {
	if s.Sealed() {
		return s.seal(t, mode, t.Scopes.String())
	}
	_, err := s.modeOf(ctx, t.ID, mode)
	return err
}

// modeOf returns the mode of a token from the settings. If there is none, as
// for tokens of old versions, it stores the proposed one. The token's row
// contains only a hash, and not the mode.
func (s *Service) modeOf(ctx context.Context, token uuid.UUID, proposed string) (string, error) {
	return s.store.Setting(ctx, "token_mode:"+token.String(), proposed)
}

// tokenOf returns a new token of an account.
func (s *Service) tokenOf(owner Account, name string, scopes Scopes, hash []byte, expires *time.Time) Token {
	return Token{ID: uuid.Must(uuid.NewV7()), AccountID: owner.ID, Account: owner.Name, Name: name, Hash: hash,
		Scopes:    scopes,
		CreatedAt: s.cfg.Now().UTC().Truncate(time.Millisecond), ExpiresAt: expires}
}

// DevToken returns the token of the sandbox's own account, and creates both if
// necessary. The token is derived from the vault's keys, so that it is the same
// after a restart without being stored.
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
	if err := s.storeMode(ctx, &t, s.cfg.Mode); err != nil {
		return "", err
	}
	return text, s.store.InsertToken(ctx, t)
}

// RevokeToken revokes a token; a no-op if it is already revoked. All processes
// reject the token within five seconds. The error is card.ErrNoRow if it does
// not exist.
func (s *Service) RevokeToken(ctx context.Context, id uuid.UUID) error {
	t, err := s.store.TokenByID(ctx, id)
	if err != nil {
		return err
	}
	sealed, err := s.verify(t)
	if err == nil && t.RevokedAt != nil {
		return nil
	}
	if err != nil { // a changed row is sealed as is: once revoked, its other fields grant nothing
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
