package operator

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Books is everything added up, as of one moment.
type Books struct {
	Coins []CoinBooks // by currency
	// Doubts are what should not be, by card, account or webhook, at most some of each kind.
	Doubts []Doubt
}

// CoinBooks adds up one currency. What cards hold is taken from the cards, what was counted from the transfers: that both agree
// is what is to be shown. The sums
// are exact, whatever their size.
type CoinBooks struct {
	Currency     string
	Counted      card.Total // of all transfers that are in the chain or the mempool
	Unattributed card.Total // of these, to addresses of no card
	Returned     card.Total // likewise, and given back by operators

	Made       card.Total // credited to cards that are made
	Open       card.Total // credited to cards that wait, for more money, confirmations or the supplier
	Held       card.Total // of late payments, for an operator to settle
	Surplus    card.Total // beyond what a card was asked for
	Refunded   card.Total // given back by operators
	Lost       card.Total // credited to cards that are made, or given back, and no longer in the chain
	WrittenOff card.Total // of that, what operators bear

	Paid   int64 // cards whose payment was confirmed
	Issued int64 // cards that are made
	Late   int64 // cards that wait for an operator because their money is late or too little
}

// Credited returns what the cards hold of what was received.
func (b CoinBooks) Credited() card.Total { return b.Made.Add(b.Open, b.Held, b.Refunded) }

// Doubt is something that should not be.
type Doubt struct {
	ID   uuid.UUID // of a card, an account or a webhook
	Text string
}

// Reconcile adds up everything that was received and issued, and says what does not agree: no doubts mean that for each currency what
// was counted on the chain is what was credited to cards, is surplus, came to no card's address or was given back of that, and that the
// cards which were made are those that were paid.
func (s *Service) Reconcile(ctx context.Context) (Books, error) {
	b, err := s.store.Books(ctx)
	if err != nil {
		return Books{}, fmt.Errorf("reconcile: %w", err)
	}
	for _, c := range b.Coins {
		if is := c.Credited().Add(c.Surplus, c.Unattributed, c.Returned); !is.Equal(c.Counted) {
			b.Doubts = append(b.Doubts, Doubt{Text: fmt.Sprintf("%s: %s were counted, but %s credited, %s surplus, %s unattributed and %s returned make %s",
				c.Currency, c.Counted, c.Credited(), c.Surplus, c.Unattributed, c.Returned, is)})
		}
	}
	return b, nil
}

const (
	checkedAtOnce = 500 // cards whose credentials are read together
	someDamaged   = 20  // the most cards that CheckCredentials names
)

// CheckCredentials decrypts the credentials of every card, and returns the cards of which that is not possible, at most some.
func (s *Service) CheckCredentials(ctx context.Context, vault Vault) ([]Doubt, error) {
	var doubts []Doubt
	for after := uuid.Nil; ; {
		page, err := s.store.SealedCredentials(ctx, after, checkedAtOnce)
		if err != nil {
			return nil, fmt.Errorf("check credentials: %w", err)
		}
		for _, c := range page {
			if _, err := vault.OpenCredentials(c.UUID, c.AccountID, c.Sealed); err != nil {
				doubts = append(doubts, Doubt{ID: c.UUID, Text: "its credentials can't be decrypted"})
			}
			if len(doubts) == someDamaged {
				return doubts, nil
			}
			after = c.UUID
		}
		if len(page) < checkedAtOnce {
			return doubts, nil
		}
	}
}
