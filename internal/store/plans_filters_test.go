package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// filters calls Cards with everything that filters combine to, so that many cards match, few, or none.
func (c *calls) filters() {
	for name, account := range map[string]uuid.UUID{"even": even, "odd": odd} {
		for _, status := range []card.Status{"", card.AwaitingPayment, card.Generated} {
			for _, state := range []card.PaymentState{"", card.Paid, card.Late, card.Expired} {
				for _, currency := range []string{"", "monero", "none"} {
					for _, reference := range []card.Secret{"", "shop", card.Secret(fmt.Sprintf("order %d", c.n/8*4+2)), "nothing"} {
						for where, filter := range c.places() {
							filter.AccountID, filter.Status, filter.State, filter.Currency, filter.Reference = account, status, state, currency, reference
							what := fmt.Sprintf("Filtered %s %q %q %q %q%s", name, status, state, currency, reference.Reveal(), where)
							c.do(what, func(ctx context.Context) error { return first(c.s.Cards(ctx, filter)) })
						}
					}
				}
			}
		}
	}
}

// places are where lists begin and end.
func (c *calls) places() map[string]order.Filter {
	at := func(i int) time.Time { return card.TimeOf(numbered(cardKind, i)) }
	return map[string]order.Filter{
		"":            {Limit: page},
		" further":    {Limit: page, Before: numbered(cardKind, c.n-c.n/10)},
		" of a time":  {Limit: page, CreatedAfter: at(c.n - c.n/8), CreatedBefore: at(c.n - c.n/10)},
		" of no time": {Limit: page, CreatedAfter: at(c.n - c.n/10), CreatedBefore: at(c.n - c.n/10), Before: numbered(cardKind, c.n-c.n/10)},
	}
}
