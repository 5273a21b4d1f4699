package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
)

// filters calls Cards with every combination of filters, so that many cards
// match, few, or none.
func (c *calls) filters() {
	for name, account := range map[string]uuid.UUID{"even": even, "odd": odd} {
		for _, status := range []card.Status{"", card.AwaitingPayment, card.Generated} {
			for _, state := range []card.PaymentState{"", card.Paid, card.Late, card.Expired} {
				for _, currency := range []string{"", "monero", "none"} {
					for _, reference := range []card.Secret{"", "shop", card.Secret(fmt.Sprintf("order %d", c.n/8*4+2)), "nothing"} {
						for where, filter := range c.places() {
							filter.AccountID, filter.Status, filter.State, filter.Currency, filter.Reference = account, status, state,
								currency, reference
							what := fmt.Sprintf("Filtered %s %q %q %q %q%s", name, status, state, currency, reference.Reveal(), where)
							c.do(what, func(ctx context.Context) error { return first(c.s.Cards(ctx, filter)) })
						}
					}
				}
			}
		}
	}
}

// places are the positions where lists begin and end.
func (c *calls) places() map[string]order.Filter {
	at := func(i int) time.Time { return card.TimeOf(numbered(cardKind, i)) }
	return map[string]order.Filter{
		"":           {Limit: page},
		" further":   {Limit: page, Before: numbered(cardKind, c.n-c.n/10)},
		" of a time": {Limit: page, CreatedAfter: at(c.n - c.n/8), CreatedBefore: at(c.n - c.n/10)},
		" of no time": {Limit: page, CreatedAfter: at(c.n - c.n/10), CreatedBefore: at(c.n - c.n/10),
			Before: numbered(cardKind, c.n-c.n/10)},
	}
}

// PostgreSQL does not collect statistics of a table with fewer than fifty rows,
// and assumes that it has ten pages. If one account has most cards, it expects
// few cards after any position.
func TestPlans_SmallTableStatistics_PageReadsFewRows(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, "sqlite:") {
			return // does not collect statistics
		}
		const n = 5000
		db := rig.OpenSQL(t, url)
		execPlans(t, db, "INSERT INTO accounts (id, name, last_seq, created_at) VALUES ('"+even.String()+"', 'only', 0, 0)")
		execPlans(t, db, `INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required)
			SELECT gen_random_uuid(), '`+even.String()+`', 0, 15050, 'monero', 1, 'address ' || i, 1, 0, 'fixed', 0, 10 FROM generate_series(1, `+fmt.Sprint(n)+") AS i")
		execPlans(t, db, "ANALYZE")
		execPlans(t, db, "INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', 'x', 1, 'x', 0)")
		filter := order.Filter{AccountID: even, Limit: page}
		check(t, db.QueryRow("SELECT uuid FROM cards ORDER BY uuid LIMIT 1 OFFSET $1", n*9/10).Scan(&filter.Before))
		for _, s := range measure(t, url, n, func(c *calls) {
			c.do("Cards", func(ctx context.Context) error { return first(c.s.Cards(ctx, filter)) })
			c.do("PageTags", func(ctx context.Context) error { return first(c.s.PageTags(ctx, filter)) })
		}).dear() {
			t.Errorf("reads too much: %s", s)
		}
	})
}
