package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// ErrTokenEnded means that a token is revoked or has expired.
var ErrTokenEnded = errors.New("the token is revoked or has expired")

// RotatedError means that a token was rotated before.
type RotatedError struct{ To uuid.UUID } // its successor

func (e *RotatedError) Error() string {
	return fmt.Sprintf("the token was rotated before: %s replaces it", e.To)
}

// Rotation is a token with its successor.
type Rotation struct {
	Old, New Token
	Text     card.Secret // of the new token
}

// RotateToken creates the successor of a token, with the same account, name,
// scopes, mode and original time to live. The old token stays valid until
// overlap has passed or it expires. The text of the new one is not stored. The
// error is card.ErrNoRow if the token does not exist, ErrTokenChanged,
// ErrTokenEnded, or a *RotatedError: each token is rotated once, so that its
// overlap can't grow.
func (s *Service) RotateToken(ctx context.Context, id uuid.UUID, overlap time.Duration) (Rotation, error) {
	if overlap < 0 {
		return Rotation{}, errors.New("the overlap must not be negative")
	}
	old, sealed, err := s.rotatable(ctx, id)
	if err != nil {
		return Rotation{}, err
	}
	mode := cmp.Or(sealed.Mode, s.cfg.Mode)
	if old.Seal == nil {
		if mode, err = s.modeOf(ctx, id, s.cfg.Mode); err != nil {
			return Rotation{}, err
		}
	}
	text := newToken(mode)
	hash, err := s.tokenHash(text)
	if err != nil {
		return Rotation{}, err
	}
	now := s.cfg.Now()
	var expires *time.Time
	if old.ExpiresAt != nil {
		end := now.Add(old.ExpiresAt.Sub(old.CreatedAt))
		expires = &end
	}
	successor := s.tokenOf(Account{ID: old.AccountID, Name: old.Account}, old.Name, old.Scopes, hash, expires)
	if err := s.storeMode(ctx, &successor, mode); err != nil {
		return Rotation{}, err
	}
	if end := now.Add(overlap); old.ExpiresAt == nil || end.Before(*old.ExpiresAt) {
		old.ExpiresAt = &end
	}
	old.ReplacedBy = successor.ID
	if s.Sealed() {
		if err := s.seal(&old, sealed.Mode, sealed.Scopes); err != nil {
			return Rotation{}, err
		}
	}
	if err := s.store.RotateToken(ctx, old, successor, now); err != nil {
		if errors.Is(err, card.ErrNoRow) { // rotated or revoked concurrently
			if _, _, why := s.rotatable(ctx, id); why != nil {
				err = why
			}
		}
		return Rotation{}, err
	}
	return Rotation{Old: old, New: successor, Text: text}, nil
}

// rotatable returns a token that can be rotated, and the content of its seal.
func (s *Service) rotatable(ctx context.Context, id uuid.UUID) (Token, sealedToken, error) {
	t, err := s.store.TokenByID(ctx, id)
	if err != nil {
		return Token{}, sealedToken{}, err
	}
	sealed, err := s.verify(t)
	switch {
	case err != nil:
		return Token{}, sealedToken{}, err
	case t.ReplacedBy != uuid.Nil:
		return Token{}, sealedToken{}, &RotatedError{t.ReplacedBy}
	case t.ended(s.cfg.Now()):
		return Token{}, sealedToken{}, ErrTokenEnded
	}
	return t, sealed, nil
}
