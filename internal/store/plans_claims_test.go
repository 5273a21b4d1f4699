package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// A claim reads as many intents as the accounts take turns among, however many are due. SQLite reads them all, but has few.
func TestPlans_AClaimDoesNotReadAllThatIsDue(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, "sqlite:") {
			return
		}
		db := rig.OpenSQL(t, url)
		execPlans(t, db, "INSERT INTO accounts (id, name, last_seq, created_at) VALUES ('"+even.String()+"', 'only', 0, 0)")
		const due, window = 20_000, 2048
		for _, statement := range []string{`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
			confirmations_required, payment_state) SELECT gen_random_uuid(), '` + even.String() + `', 0, 15050, 'monero', 1, 'address ' || i, 1, 0, 'fixed', 0, 10, 'paid'
			FROM generate_series(1, ` + fmt.Sprint(due) + ") AS i", "INSERT INTO intents (card_uuid, due_at) SELECT uuid, 0 FROM cards", "ANALYZE"} {
			execPlans(t, db, statement)
		}
		m := measure(t, url, due, func(c *calls) {
			c.do("ClaimIntents", func(ctx context.Context) error {
				return first(c.s.ClaimIntents(ctx, claimOf("sandbox"), 16, time.Hour))
			})
		})
		if len(m.all) == 0 {
			t.Error("nothing was measured")
		}
		for _, s := range m.all {
			if s.rows > 3*window { // intents, and their cards
				t.Errorf("reads too much: %s", s)
			}
		}
	})
}
