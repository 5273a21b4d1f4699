package acceptance_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/supplier"
)

// recordingSupplier is a supplier that records the keys of its requests.
type recordingSupplier struct {
	*supplier.Sandbox
	mu   sync.Mutex
	keys []string // uuids of the cards
}

func (c *recordingSupplier) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	c.mu.Lock()
	c.keys = append(c.keys, r.Key)
	c.mu.Unlock()
	return c.Sandbox.Submit(ctx, r)
}

// Six accounts have ten thousand orders. A thousand of these are paid in one
// block, nearly all by one account. One pass must find the payments, the
// supplier's rate limit must be kept, and the small accounts must not wait for
// the large one.
func TestOverload_ThousandPaymentsInOneBlock_SmallAccountsFirst(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { burst(t, "sqlite:"+t.TempDir()+"/x.db", "%s") })
	t.Run("postgres", func(t *testing.T) {
		burst(t, rig.Postgres(t), "CAST(%s AS UUID)")
	})
}

func burst(t *testing.T, url, uuidOf string) {
	t.Parallel()
	const orders, loud, quiet, each, perSecond = 10_000, 990, 5, 2, 100
	const paid = loud + quiet*each
	ctx := t.Context()
	s := newBench(t, url, 100)
	accounts := []uuid.UUID{s.account}
	for range quiet {
		accounts = append(accounts, uuid.Must(uuid.NewV7()))
	}
	db := rig.OpenSQL(t, url)
	now := time.Now().UnixMilli()
	for i, a := range accounts[1:] {
		_, err := db.Exec("INSERT INTO accounts (id, name, created_at) VALUES ($1, $2, $3)", a, fmt.Sprint("quiet ", i), now)
		must(t, err)
	}
	// The orders of the large account are the oldest.
	first := map[uuid.UUID]int{s.account: 0}
	for i, a := range accounts[1:] {
		first[a] = orders - quiet*each + i*each
	}
	for a, from := range first {
		to := from + each
		if a == s.account {
			to = orders - quiet*each
		}
		_, err := db.Exec(`WITH RECURSIVE n (i) AS (SELECT CAST($1 AS INTEGER) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
			INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required, credit_due)
			SELECT `+fmt.Sprintf(uuidOf, "'019aa1c9-f868-7cef-8e4e-' || CAST(100000000000 + i AS TEXT)")+`, $3, CAST($4 AS BIGINT), 15050, 'monero', 986755835300, 'order ' || CAST(100000 + i AS TEXT),
				15252000000, $4, 'fixed', CAST($4 AS BIGINT) + 86400000, 10, 986755835300 FROM n`, from, to, a, now)
		must(t, err)
	}
	_, err := db.Exec(`INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at)
		SELECT 'monero', 'payment of ' || address, address, amount, 2, $1 FROM cards WHERE address < $2 OR address >= $3`, now,
		fmt.Sprint("order ", 100_000+loud), fmt.Sprint("order ", 100_000+orders-quiet*each))
	must(t, err)
	must(t, s.store.SimulatedMine(ctx, "monero", 20))
	must(t, s.watcher.Tick(ctx))
	count := func(where string) (n int) {
		must(t, db.QueryRow("SELECT COUNT(*) FROM "+where).Scan(&n))
		return n
	}
	if n := count("intents"); n != paid {
		t.Fatalf("one pass created %d intents, want %d", n, paid)
	}

	clock := time.Now()
	press := &recordingSupplier{Sandbox: supplier.NewSandbox("press", supplier.Prompt, func() time.Time { return clock })}
	issuer, err := issue.New(s.store, s.vault, issue.Wake{}, slog.New(slog.DiscardHandler),
		issue.Config{Now: func() time.Time { return clock },
			Routes: issue.Routes{{Supplier: press, Min: card.MinUSD, Max: card.MaxUSD, PerSecond: perSecond}}})
	must(t, err)
	for second := 1; second <= paid/perSecond; second++ {
		must(t, issuer.Tick(ctx))
		if n := len(press.keys); n != second*perSecond {
			t.Fatalf("%d requests to the supplier within %d seconds, want %d", n, second, second*perSecond)
		}
		if n := count("cards WHERE status = 'generated'"); n != second*perSecond {
			t.Fatalf("%d cards are issued after %d seconds", n, second)
		}
		if second == 1 {
			if n := count("cards WHERE status = 'generated' AND address >= '" +
				fmt.Sprint("order ", 100_000+orders-quiet*each) + "'"); n != quiet*each {
				t.Errorf("%d of the %d cards of the small accounts were issued in the first second", n, quiet*each)
			}
		}
		clock = clock.Add(time.Second)
	}
	seen := map[string]bool{}
	for _, key := range press.keys {
		if seen[key] {
			t.Errorf("card %s was requested twice", key)
		}
		seen[key] = true
	}
	if open := count("cards WHERE status = 'awaiting_payment' AND payment_state = 'unpaid'"); open != orders-paid {
		t.Errorf("%d orders are open, want %d", open, orders-paid)
	}
	books, err := operator.New(s.store, s.rates, slog.New(slog.DiscardHandler)).Reconcile(ctx, operator.Audit{})
	if must(t, err); len(books.Discrepancies) > 0 || books.Coins[0].Issued != paid {
		t.Errorf("reconcile: %s", strings.TrimSpace(fmt.Sprintf("%+v", books)))
	}
}
