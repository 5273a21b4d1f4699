package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/store"
)

// deletedCards are the cards that were deleted because nobody paid, by currency
// and address.
type deletedCards map[[2]string]operator.RetiredCard

// deletedAt returns the deleted cards whose addresses transfers came to.
func deletedAt(ctx context.Context, db *store.Store, found []operator.Arrival) (deletedCards, error) {
	transfers := make([]card.Transfer, len(found))
	for i, a := range found {
		transfers[i] = a.Transfer
	}
	return db.RetiredCards(ctx, transfers)
}

// deletedCardJSON is what is known of a deleted card for programs.
type deletedCardJSON struct {
	UUID      uuid.UUID    `json:"uuid"`
	Account   string       `json:"account"`
	USDAmount card.USD     `json:"usd_amount"`
	Amount    card.Decimal `json:"amount"`
	ExpiredAt instant      `json:"expired_at"`
	DeletedAt instant      `json:"deleted_at"`
}

func (all deletedCards) json(t card.Transfer, coin card.Currency) *deletedCardJSON {
	c, known := all[[2]string{t.Currency, t.Address}]
	if !known {
		return nil
	}
	return &deletedCardJSON{UUID: c.UUID, Account: c.Account, USDAmount: c.USD, Amount: coin.Decimal(c.Amount),
		ExpiredAt: instant{c.ExpiredAt}, DeletedAt: instant{c.DeletedAt}}
}

// text says whose address a transfer came to; nothing if it is that of no card
// that was deleted.
func (all deletedCards) text(t card.Transfer) string {
	c, known := all[[2]string{t.Currency, t.Address}]
	if !known {
		return ""
	}
	return fmt.Sprintf("for card %s of %s, %s USD, which expired %s and was deleted", c.UUID, oneLine(c.Account), c.USD,
		day(&c.ExpiredAt))
}
