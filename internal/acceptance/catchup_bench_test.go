package acceptance_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
)

const backlog = 10_000

// BenchmarkCatchUp confirms 10,000 payments for 10,000 cards while no worker
// runs, and measures how fast they are settled and issued. It compares this
// with bare statements that write the same rows in as many statements and
// transactions.
func BenchmarkCatchUp(b *testing.B) {
	const turns = 3
	var ours, bare, ratios []float64
	for range turns {
		settle, made := catchUp(b)
		write := bareCatchUp(b)
		ours, bare = append(ours, backlog/(settle+made).Seconds()), append(bare, backlog/write.Seconds())
		ratios = append(ratios, write.Seconds()/(settle+made).Seconds())
		b.Logf("settled in %s, made in %s; bare writes %s", settle.Round(time.Millisecond), made.Round(time.Millisecond),
			write.Round(time.Millisecond))
	}
	b.ReportMetric(median(ours), "cards/s")
	b.ReportMetric(median(bare), "bare-cards/s")
	b.ReportMetric(median(ratios), "of-bare(min:0.85)")
	b.ReportMetric(0, "ns/op")
}

// catchUp returns the time to settle all payments, and then to issue all cards.
func catchUp(b *testing.B) (settled, made time.Duration) {
	b.Helper()
	ctx, url := b.Context(), rig.Postgres(b)
	s := newBench(b, url, pool)
	fill(b, url, s.account, backlog)
	db := rig.OpenSQL(b, url)
	_, err := db.Exec(`INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at)
		SELECT 'monero', md5(address) || md5(uuid::TEXT), address, amount, 2, $1 FROM cards`, time.Now().UnixMilli())
	must(b, err)
	must(b, s.store.SimulatedMine(ctx, "monero", 20))

	start := time.Now()
	must(b, s.watcher.Tick(ctx))
	settled = time.Since(start)
	start = time.Now()
	must(b, s.issuer.Tick(ctx))
	made = time.Since(start)
	books, err := operator.New(s.store, s.rates, slog.New(slog.DiscardHandler)).Reconcile(ctx, operator.Audit{})
	must(b, err)
	if len(books.Discrepancies) > 0 || books.Coins[0].Issued != backlog {
		b.Fatalf("reconcile: %+v", books)
	}
	return settled, made
}

// bareCatchUp returns the time to write the same rows with bare statements.
func bareCatchUp(b *testing.B) time.Duration {
	b.Helper()
	url := rig.Postgres(b)
	s := newBench(b, url, pool)
	fill(b, url, s.account, backlog)
	db := rig.OpenSQL(b, url)
	var cards []*card.Card
	must(b, s.orders.ListCards(b.Context(), order.Filter{AccountID: s.account}, func(c *card.Card) error {
		cards = append(cards, c)
		return nil
	}))
	random := func(n int) []byte {
		text := make([]byte, n)
		_, _ = rand.Read(text)
		return text
	}
	seq := 0
	event := func(c *card.Card) []any {
		seq++
		return []any{s.account, seq, uuid.Must(uuid.NewV7()), "card.generated", c.UUID, "generated", "paid",
			time.Now().UnixMilli()}
	}
	const (
		events = "INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, created_at) VALUES "
		sealed = 64 // bytes of a ciphertext
	)
	start := time.Now()
	transaction(b, db, func(ctx context.Context, tx *sql.Tx) {
		for some := range slices.Chunk(cards, 500) {
			write(b, ctx, tx,
				"INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ",
				"", some, func(c *card.Card) []any {
					return []any{"monero", hex.EncodeToString(random(32)), 0, c.Address, int64(c.Amount), 2, false, true,
						time.Now().UnixMilli()}
				})
		}
		for some := range slices.Chunk(cards, 500) {
			write(b, ctx, tx,
				"UPDATE cards SET payment_state = v.column2, received = CAST(v.column3 AS BIGINT), settled = CAST(v.column3 AS BIGINT), height = 2 FROM (VALUES ",
				") AS v WHERE cards.uuid = CAST(v.column1 AS UUID)", some, func(c *card.Card) []any {
					return []any{c.UUID, "paid", int64(c.Amount)}
				})
		}
		for some := range slices.Chunk(cards, 500) {
			write(b, ctx, tx, "INSERT INTO intents (card_uuid, due_at) VALUES ", "", some, func(c *card.Card) []any {
				return []any{c.UUID, 0}
			})
		}
		for some := range slices.Chunk(cards, 500) {
			write(b, ctx, tx, events, "", some, event)
		}
	})
	for some := range slices.Chunk(cards, 64) {
		transaction(b, db, func(ctx context.Context, tx *sql.Tx) {
			write(b, ctx, tx,
				"UPDATE intents SET state = 'done', attempts = 1, fence = 1, card_number_hash = CAST(v.column2 AS BYTEA) FROM (VALUES ",
				") AS v WHERE intents.card_uuid = CAST(v.column1 AS UUID)", some, func(c *card.Card) []any {
					return []any{c.UUID, fmt.Sprintf(`\x%x`, random(32))}
				})
			write(b, ctx, tx,
				"INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) VALUES ", "",
				some, func(c *card.Card) []any {
					return []any{c.UUID, random(sealed), random(sealed), random(sealed), random(sealed), random(sealed)}
				})
			write(b, ctx, tx, "UPDATE cards SET status = 'generated' WHERE uuid IN (", ")", some, func(c *card.Card) []any {
				return []any{c.UUID}
			})
			write(b, ctx, tx, events, "", some, event)
		})
	}
	return time.Since(start)
}

func transaction(b *testing.B, db *sql.DB, f func(context.Context, *sql.Tx)) {
	b.Helper()
	tx, err := db.BeginTx(b.Context(), nil)
	must(b, err)
	f(b.Context(), tx)
	must(b, tx.Commit())
}

// write runs one statement, with a group of values for each card between head
// and tail.
func write(b *testing.B, ctx context.Context, tx *sql.Tx, head, tail string, cards []*card.Card,
	values func(*card.Card) []any) {
	b.Helper()
	var groups []string
	var args []any
	for _, c := range cards {
		var group []string
		for _, v := range values(c) {
			args = append(args, v)
			group = append(group, fmt.Sprintf("$%d", len(args)))
		}
		groups = append(groups, "("+strings.Join(group, ", ")+")")
	}
	_, err := tx.ExecContext(ctx, head+strings.Join(groups, ", ")+tail, args...)
	must(b, err)
}
