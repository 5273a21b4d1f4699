package account

import (
	"math/big"

	"github.com/cardmint/cardmint/internal/card"
)

// MadeUp returns a well-formed token that does not exist.
func MadeUp(n int64) string { return tokenText(card.TestMode, big.NewInt(n)).Reveal() }

// Seal seals a token with its current fields.
func (s *Service) Seal(t *Token) error { return s.seal(t, s.cfg.Mode, t.Scopes.String()) }
