package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// A claim reads the bounded window that accounts take turns in, however many
// intents are due, and storing results reads only the claimed ones: even if all
// became due at once, and statistics were collected before. SQLite reads all
// due intents, but its databases have few.
func TestPlans_ClaimIntents_ReadsFewRows(t *testing.T) {
	t.Parallel()
	const due, window, batch = 20_000, 2048, 16
	for name, after := range map[string]string{
		"known to statistics": "ANALYZE",
		"due at once":         "UPDATE intents SET state = 'open', decided_at = NULL",
	} {
		t.Run(name, func(t *testing.T) {
			url := databases.Postgres(t)
			db := rig.OpenSQL(t, url)
			execPlans(t, db, "INSERT INTO accounts (id, name, last_seq, created_at) VALUES ('"+even.String()+"', 'only', 0, 0)")
			state := "open"
			if after != "ANALYZE" {
				state = "done"
			}
			for _, statement := range []string{`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
				confirmations_required, payment_state) SELECT gen_random_uuid(), '` + even.String() + `', 0, 15050, 'monero', 1, 'address ' || i, 1, 0, 'fixed', 0, 10, 'paid'
				FROM generate_series(1, ` + fmt.Sprint(due) + ") AS i", "INSERT INTO intents (card_uuid, due_at, state) SELECT uuid, 0, '" + state + "' FROM cards", "VACUUM ANALYZE", after} {
				execPlans(t, db, statement)
			}
			m := measure(t, url, due, func(c *calls) {
				var claimed []issue.Intent
				c.do("ClaimIntents", func(ctx context.Context) (err error) {
					claimed, err = c.s.ClaimIntents(ctx, claimOf("sandbox"), batch, time.Hour)
					return err
				})
				if len(claimed) != batch {
					t.Fatalf("%d intents are claimed", len(claimed))
				}
				done := make([]issue.IssuedCard, batch)
				for i, n := range claimed {
					done[i] = issued(n, n.Key)
				}
				c.do("ProlongIntents", func(ctx context.Context) error { return c.s.ProlongIntents(ctx, claimed, time.Hour) })
				c.tx("SaveIntents", func(ctx context.Context, tx *store.Tx) error { return tx.SaveIntents(ctx, claimed) })
				c.tx("SaveIssued", func(ctx context.Context, tx *store.Tx) error { return tx.SaveIssued(ctx, done) })
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
}

// When a receiver fails, far more deliveries become due than the statistics
// show. Claims, which run every second, and results must not read all of them.
func TestPlans_ClaimWebhooks_ReadsFewRows(t *testing.T) {
	t.Parallel()
	url := databases.Postgres(t)
	const cards = 5000
	fillPlans(t, url, cards)
	db := rig.OpenSQL(t, url)
	execPlans(t, db, "UPDATE deliveries SET state = 'delivered', due_at = NULL")
	execPlans(t, db, "VACUUM ANALYZE")
	// of two webhooks
	execPlans(t, db, "UPDATE deliveries SET state = 'pending', due_at = 0 WHERE seq <= "+fmt.Sprint(cards/4))
	m := measure(t, url, cards, func(c *calls) {
		c.do("ClaimWebhooks", func(ctx context.Context) error {
			return first(c.s.ClaimWebhooks(ctx, time.Now(), 1, time.Hour))
		})
		c.begin("") // with so few events, a full scan is faster
		due, err := c.s.DueDeliveries(t.Context(), evenHook, time.Now(), page)
		check(t, err)
		done := slices.Clone(due)
		for i := range done {
			done[i].State, done[i].DueAt = webhook.DeliveryDelivered, time.Time{}
		}
		c.tx("SaveDeliveries", func(ctx context.Context, tx *store.Tx) error {
			return tx.SaveDeliveries(ctx, evenHook, due, done)
		})
		if len(due) != page {
			t.Errorf("%d deliveries are due", len(due))
		}
	})
	for _, method := range []string{"ClaimWebhooks", "tx.SaveDeliveries"} {
		if !slices.ContainsFunc(slices.Collect(maps.Values(m.all)), func(s measured) bool { return s.method == method }) {
			t.Errorf("%s was not measured", method)
		}
	}
	for _, s := range m.dear() {
		t.Errorf("reads too much: %s", s)
	}
}
