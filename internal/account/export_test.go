package account

import (
	"math/big"

	"github.com/cardmint/cardmint/internal/card"
)

// MadeUp returns a well-formed token that nobody created.
func MadeUp(n int64) string { return tokenText(card.TestMode, big.NewInt(n)).Reveal() }

// Seal seals a token as it is now.
func (s *Service) Seal(t *Token) error { return s.seal(t, s.cfg.Mode, t.Scopes.String()) }
