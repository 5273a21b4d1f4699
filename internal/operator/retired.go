package operator

import (
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// RetiredCard is what is known of a card that was deleted because nobody paid
// for it. Money that still comes to its address is unattributed.
type RetiredCard struct {
	UUID      uuid.UUID
	Account   string
	USD       card.USD
	Amount    card.Amount // that was asked for
	ExpiredAt time.Time   // when its quote was over
	DeletedAt time.Time
}
