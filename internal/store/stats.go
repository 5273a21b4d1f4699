package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
)

// Pools returns the statistics of the store's connection pools: "write" and
// "read" if they are separate, otherwise "all".
func (s *Store) Pools() map[string]sql.DBStats {
	if s.SingleWriter() {
		return map[string]sql.DBStats{"write": s.w.Stats(), "read": s.r.Stats()}
	}
	return map[string]sql.DBStats{"all": s.w.Stats()}
}

// Stats returns statistics of the database from one snapshot. It reads only open
// and waiting rows, each by an index that contains nothing else.
func (s *Store) Stats(ctx context.Context) (operator.Stats, error) {
	var f operator.Stats
	offers, err := s.Offers(ctx)
	if err != nil {
		return f, err
	}
	err = s.inSnapshot(ctx, func(t *tx) error {
		for _, read := range []func(context.Context, *operator.Stats) error{
			t.coinStats, t.moneyStats, t.intentStats, t.quoteStats, t.deliveryStats} {
			if err := read(ctx, &f); err != nil {
				return err
			}
		}
		return nil
	})
	for _, of := range offers {
		for _, o := range of.Offers {
			if o.Life > 0 && o.Left != card.Unlimited { // orders reserve what is in stock
				f.Stock = append(f.Stock, operator.StockStats{Supplier: of.Supplier, USD: o.Min, Left: o.Left})
			}
		}
	}
	return f, err
}

func (t *tx) coinStats(ctx context.Context, f *operator.Stats) error {
	var found []struct {
		Currency string `db:"currency"`
		Free     int64  `db:"free"`
		Epoch    int64  `db:"epoch"`
	}
	err := t.s.list(ctx, t.t, &found, "count addresses", `SELECT p.currency,
		COALESCE((SELECT MAX(a.position) FROM addresses a WHERE a.currency = p.currency) + 1, p.next_position)
			- p.next_position AS free,
		COALESCE((SELECT l.epoch FROM leases l WHERE l.name = '`+settle.LeaseName("")+`' || p.currency), 0) AS epoch
		FROM address_pools p ORDER BY p.currency`)
	for _, x := range found {
		if coin, known := t.s.coins[x.Currency]; known {
			f.Coins = append(f.Coins, operator.CoinStats{Coin: coin, FreeAddresses: max(0, x.Free), Epoch: x.Epoch})
		}
	}
	return err
}

// moneyStats adds up the money that needs a decision of an operator.
func (t *tx) moneyStats(ctx context.Context, f *operator.Stats) error {
	type row struct {
		Currency string `db:"currency"`
		Sum      string `db:"sum"`
		Rows     int64  `db:"n"`
	}
	coins := map[string]*operator.CoinStats{}
	for i := range f.Coins {
		coins[f.Coins[i].Coin.Code] = &f.Coins[i]
	}
	for _, of := range []struct {
		query string
		to    func(*operator.CoinStats, card.Total, int64)
	}{
		{"SELECT t.currency, " + sumOf("t.amount", "TRUE") +
			" AS sum, COUNT(*) AS n FROM transfers t WHERE t.counted AND NOT t.attributed AND " + isStray +
			" AND NOT " + isAttributed + " GROUP BY t.currency", func(c *operator.CoinStats, sum card.Total, _ int64) {
			c.Unattributed = sum
		}},
		{"SELECT c.currency, " + sumOf("c.credit_held", "TRUE") +
			" AS sum, COUNT(*) AS n FROM cards c WHERE c.payment_state = 'late' GROUP BY c.currency",
			func(c *operator.CoinStats, sum card.Total, n int64) { c.Held, c.HeldCards = sum, n }},
		{"SELECT c.currency, " + sumOf("c.credit_lost", "TRUE") + " AS sum, COUNT(*) AS n FROM cards c WHERE " + isLost +
			" GROUP BY c.currency",
			func(c *operator.CoinStats, _ card.Total, n int64) { c.ReversedCards = n }},
	} {
		var found []row
		if err := t.s.list(ctx, t.t, &found, "add up what waits", of.query); err != nil {
			return err
		}
		for _, x := range found {
			sums, err := totals(x.Sum)
			if err != nil {
				return err
			}
			if c := coins[x.Currency]; c != nil {
				of.to(c, sums[0], x.Rows)
			}
		}
	}
	return nil
}

func (t *tx) intentStats(ctx context.Context, f *operator.Stats) error {
	var found []struct {
		State string `db:"state"`
		Rows  int64  `db:"n"`
		Age   int64  `db:"age"`
	}
	now := "(SELECT " + t.s.dialect.now + ")"
	err := t.s.list(ctx, t.t, &found, "count intents", `SELECT state, COUNT(*) AS n,
		COALESCE(`+now+` - MIN(CASE WHEN decided_at BETWEEN 0 AND `+now+` THEN decided_at END), 0) AS age FROM intents
		WHERE state IN ('open', 'pending') GROUP BY state
		UNION ALL SELECT state, COUNT(*) AS n, 0 AS age FROM intents
			WHERE state IN ('parked', 'refund_due') GROUP BY state`)
	f.Intents = map[string]int64{"open": 0, "pending": 0, "parked": 0, "refund_due": 0}
	for _, x := range found {
		f.Intents[x.State] = x.Rows
		f.OldestIntent = max(f.OldestIntent, time.Duration(x.Age)*time.Millisecond)
	}
	return err
}

func (t *tx) quoteStats(ctx context.Context, f *operator.Stats) error {
	var row struct {
		Cents int64 `db:"cents"`
		Rows  int64 `db:"n"`
	}
	err := t.s.get(ctx, t.t, &row, "add up quotes", "SELECT CAST(COALESCE(SUM("+countedUSD("usd_cents")+
		"), 0) AS BIGINT) AS cents, COUNT(*) AS n FROM cards WHERE payment_state IN ('unpaid', 'underpaid')")
	f.OpenQuotes, f.OpenCards = card.USD(row.Cents), row.Rows
	return err
}

// deliveryStats counts deliveries. A delivery without attempts is due since its
// event.
func (t *tx) deliveryStats(ctx context.Context, f *operator.Stats) error {
	var row struct {
		Backlog int64         `db:"backlog"`
		Oldest  sql.NullInt64 `db:"oldest"`
		Now     int64         `db:"now"`
	}
	now := "(SELECT " + t.s.dialect.now + ")"
	err := t.s.get(ctx, t.t, &row, "count deliveries", `SELECT
		(SELECT COUNT(*) FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id
			WHERE w.enabled AND d.due_at IS NOT NULL) AS backlog,
		(SELECT MIN(x.since) FROM (
			SELECT (SELECT MIN(d.due_at) FROM deliveries d WHERE d.webhook_id = w.id AND d.due_at > 0) AS since
				FROM webhooks w WHERE w.enabled
			UNION ALL SELECT (SELECT e.created_at
				FROM deliveries d JOIN events e ON e.account_id = d.account_id AND e.seq = d.seq
				WHERE d.webhook_id = w.id AND d.due_at = 0 ORDER BY d.seq LIMIT 1) AS since FROM webhooks w WHERE w.enabled) x
			WHERE x.since <= `+now+`) AS oldest, `+t.s.dialect.now+" AS now")
	f.Backlog = row.Backlog
	if row.Oldest.Valid {
		f.OldestDelivery = max(0, time.Duration(row.Now-row.Oldest.Int64)*time.Millisecond)
	}
	return err
}
