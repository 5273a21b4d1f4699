package cli

import (
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
)

type accountJSON struct {
	ID        uuid.UUID `json:"id"`
	Name      string    `json:"name"`
	CreatedAt instant   `json:"created_at"`
}

// tokenJSON is a token for programs, without its text.
type tokenJSON struct {
	ID        uuid.UUID `json:"id"`
	Account   string    `json:"account"`
	Name      string    `json:"name"`
	Scopes    []string  `json:"scopes"`
	CreatedAt instant   `json:"created_at"`
	UsedAt    instant   `json:"used_at"` // null if it never was
	ExpiresAt instant   `json:"expires_at"`
	RevokedAt instant   `json:"revoked_at"`
}

// createdTokenJSON is a token with its text, which is shown once.
type createdTokenJSON struct {
	tokenJSON
	Token string `json:"token"`
}

// rotatedTokenJSON is a token that replaces another one.
type rotatedTokenJSON struct {
	createdTokenJSON
	Replaces replacedTokenJSON `json:"replaces"`
}

type replacedTokenJSON struct {
	ID        uuid.UUID `json:"id"`
	ExpiresAt instant   `json:"expires_at"`
}

func newTokenJSON(t account.Token, uses map[uuid.UUID]time.Time) tokenJSON {
	return tokenJSON{t.ID, t.Account, t.Name, t.Scopes.Names(), instant{t.CreatedAt}, instant{uses[t.ID]},
		maybe(t.ExpiresAt), maybe(t.RevokedAt)}
}
