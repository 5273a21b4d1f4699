package issue

import (
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Intent is the decision to have a card made. It is committed before the issuer is asked.
type Intent struct {
	CardUUID uuid.UUID
	Attempts int
	Fence    int64 // of the claim; a write with an older one is refused
}

// Issued is a card that was made, as it is stored.
type Issued struct {
	Intent     Intent
	Sealed     card.Sealed
	NumberHash []byte // keyed
}
