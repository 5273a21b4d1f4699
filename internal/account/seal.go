package account

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// SealField is the field of a token's seal in its associated data.
const SealField = "token"

var (
	// ErrTokenChanged means that a token's row does not match its seal.
	ErrTokenChanged = errors.New("the token's row was changed without the keys")
	// ErrSealed means that the tokens are already sealed.
	ErrSealed = errors.New("the tokens were sealed before")
)

// sealedToken is the plaintext of a seal: the fields of a token that grant
// access. The token's id and account are in the associated data.
type sealedToken struct {
	Mode       string    `json:"mode,omitempty"` // empty if it was never stored
	Hash       string    `json:"hash"`
	Scopes     string    `json:"scopes"` // as text, because a later version may know more scopes
	CreatedAt  string    `json:"created_at"`
	ExpiresAt  string    `json:"expires_at,omitempty"`
	RevokedAt  string    `json:"revoked_at,omitempty"`
	ReplacedBy uuid.UUID `json:"replaced_by,omitzero"`
}

// toSeal returns the plaintext of t's seal.
func (t Token) toSeal(mode, scopes string) sealedToken {
	millis := func(at *time.Time) string {
		if at == nil {
			return ""
		}
		return strconv.FormatInt(at.UnixMilli(), 10)
	}
	return sealedToken{Mode: mode, Hash: hex.EncodeToString(t.Hash), Scopes: scopes, CreatedAt: millis(&t.CreatedAt),
		ExpiresAt: millis(t.ExpiresAt), RevokedAt: millis(t.RevokedAt), ReplacedBy: t.ReplacedBy}
}

// seal seals the current fields of t.
func (s *Service) seal(t *Token, mode, scopes string) error {
	text, err := json.Marshal(t.toSeal(mode, scopes))
	if err == nil {
		t.Seal, err = s.vault.Seal(t.ID, t.AccountID, SealField, card.Secret(text))
	}
	return err
}

// verify returns the content of a token's seal. The error is ErrTokenChanged if
// the row does not match it, or has no seal although the database is sealed. A
// valid seal proves that it is, also to a process that started before.
func (s *Service) verify(t Token) (sealedToken, error) {
	if t.Seal == nil && s.unsealed.Load() {
		return sealedToken{Scopes: t.Scopes.String()}, nil
	}
	text, err := s.vault.Open(t.ID, t.AccountID, SealField, t.Seal)
	switch {
	case errors.Is(err, card.ErrUnavailable): // another process may have the key
		return sealedToken{}, err
	case err != nil:
		return sealedToken{}, ErrTokenChanged
	}
	var sealed sealedToken
	if err := json.Unmarshal([]byte(text.Reveal()), &sealed); err != nil {
		return sealedToken{}, fmt.Errorf("read the seal of token %s: %w", t.ID, err)
	}
	if sealed != t.toSeal(sealed.Mode, sealed.Scopes) || ReadScopes(sealed.Scopes) != t.Scopes {
		return sealedToken{}, ErrTokenChanged
	}
	s.unsealed.Store(false)
	return sealed, nil
}

// keyChecks returns the two values of the setting key_check: for a sealed
// database, and for one before SealTokens. Neither can be computed without the
// keys. A new database never contains the second one, so tokens are sealed once
// at most.
func (s *Service) keyChecks() (sealed, before string, err error) {
	for label, check := range map[string]*string{"key check, tokens sealed": &sealed, "key check": &before} {
		digest, err := s.vault.Digest(label, nil)
		if err != nil {
			return "", "", err
		}
		*check = hex.EncodeToString(digest)
	}
	return sealed, before, nil
}

// Sealed reports whether the tokens of the database are sealed, according to
// CheckKeys or to the first valid seal after it.
func (s *Service) Sealed() bool { return !s.unsealed.Load() }

// SealTokens seals the tokens that versions without seals have stored, and
// returns them. It trusts the rows as they are. After that those versions can't
// use the database, and tokens without a seal are rejected. The error is
// ErrSealed if the tokens are already sealed.
func (s *Service) SealTokens(ctx context.Context) ([]Token, error) {
	if err := s.CheckKeys(ctx); err != nil {
		return nil, err
	}
	if s.Sealed() {
		return nil, ErrSealed
	}
	sealed, before, err := s.keyChecks()
	if err != nil {
		return nil, err
	}
	all, err := s.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		mode, err := s.modeOf(ctx, all[i].ID, "")
		if err == nil {
			err = s.seal(&all[i], mode, all[i].Scopes.String())
		}
		if err != nil {
			return nil, err
		}
	}
	switch err = s.store.SealTokens(ctx, all, before, sealed); {
	case errors.Is(err, card.ErrNoRow): // sealed concurrently
		return nil, ErrSealed
	case err != nil:
		return nil, err
	}
	s.unsealed.Store(false)
	return all, nil
}

// ChangedToken is a token whose row was changed without the keys, or whose seal
// can't be checked.
type ChangedToken struct {
	ID  uuid.UUID
	Err error // ErrTokenChanged, or card.ErrUnavailable if this process lacks the key
}

// ChangedTokens verifies all tokens, and returns the invalid ones.
func (s *Service) ChangedTokens(ctx context.Context) (changed []ChangedToken, err error) {
	all, err := s.store.Tokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("check tokens: %w", err)
	}
	// Sealed rows come first: a valid seal proves that every row needs one.
	slices.SortStableFunc(all, func(a, b Token) int { return min(1, len(b.Seal)) - min(1, len(a.Seal)) })
	for _, t := range all {
		if _, err := s.verify(t); err != nil {
			changed = append(changed, ChangedToken{t.ID, err})
		}
	}
	return changed, nil
}
