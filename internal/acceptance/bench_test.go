package acceptance_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
	cardserver "github.com/cardmint/cardmint/server"
)

// Each benchmark measures once, for a fixed time, and reports its figure next
// to its limit. Run them with make bench, which sets -benchtime 1x. Compared
// loads alternate, so that changes of the machine affect both.

// pool is the number of addresses made before a benchmark begins.
const pool = 300_000

// connections is the default number of clients, and of connections to the
// database.
const connections = 16

// bench is the service, running in this process on PostgreSQL. It does not use
// the wiring of package app, because benchmarks run each pass themselves.
type bench struct {
	store   *store.Store
	vault   *vault.Vault
	orders  *order.Service
	handler http.Handler
	account uuid.UUID
	token   string
	chain   *simulated.Chain
	watcher *settle.Watcher
	issuer  *issue.Issuer
	rates   order.Rates
	ahead   time.Duration // of the watcher's clock
}

func newBench(b testing.TB, url string, pool int) *bench {
	b.Helper()
	app.Tune() // as serve does
	ctx := b.Context()
	s, v := openStore(b, url)
	rates, err := rate.NewFixed(map[string]string{"monero": "152.52"}, time.Now)
	must(b, err)
	orders, err := order.New(s, v, rates, nil, func() {}, order.Config{Currencies: chain.Currencies()})
	must(b, err)
	quiet := slog.New(slog.NewJSONHandler(io.Discard, nil))
	slog.SetDefault(quiet)
	accounts, err := account.New(s, v, account.Config{})
	must(b, err)
	handler, err := cardserver.New(cardserver.Config{Orders: orders, Accounts: accounts, Log: quiet})
	must(b, err)
	shop, err := accounts.CreateAccount(ctx, "shop")
	must(b, err)
	_, token, err := accounts.CreateToken(ctx, "shop", account.TokenRequest{Name: "bench", Scopes: account.AllScopes})
	must(b, err)
	sim := simulated.New(chain.Currencies()[0], s, time.Now)
	issuer, err := issue.New(s, v, issue.Wake{}, quiet,
		issue.Config{Routes: issue.Only(supplier.NewSandbox("sandbox", supplier.Prompt, time.Now))})
	must(b, err)
	all := &bench{store: s, vault: v, orders: orders, rates: rates, handler: handler, account: shop.ID,
		token: token.Reveal(), chain: sim, issuer: issuer}
	// The lease must outlast the filling of the pool.
	all.watcher, err = settle.New(s, rates, sim, quietWake(), quiet,
		settle.Config{PoolSize: pool, FillBatch: pool, LeaseTTL: time.Hour,
			Now: func() time.Time { return time.Now().Add(all.ahead) }})
	must(b, err)
	must(b, all.watcher.Tick(ctx))
	return all
}

// openStore migrates a database and opens it, with a new key file.
func openStore(tb testing.TB, url string) (*store.Store, *vault.Vault) {
	tb.Helper()
	keys := filepath.Join(tb.TempDir(), "x.keys")
	must(tb, vault.Create(keys))
	v, err := vault.Open(keys)
	must(tb, err)
	_, err = store.Migrate(tb.Context(), url)
	must(tb, err)
	s, err := store.Open(tb.Context(), url, connections, chain.Currencies())
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s, v
}

// quietWake ignores all wake-ups.
func quietWake() settle.Wake {
	return settle.Wake{Pass: func() {}, Orders: func() {}, Issuer: func() {}, Sender: func() {}}
}

func must(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCreateCard compares createCard with a bare gin handler in the same
// process that only decodes the body and inserts the same row. Both run one
// statement per request.
func BenchmarkCreateCard(b *testing.B) {
	for connections, limit := range map[int]string{16: "of-bare(min:0.85)", 64: "of-bare", 256: "of-bare(min:2)"} {
		b.Run(fmt.Sprint(connections, "-connections"), func(b *testing.B) {
			url := rig.Postgres(b)
			s := newBench(b, url, pool)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			go func() { // the loops of serve that write marks and prepare addresses
				for ctx.Err() == nil {
					_ = s.watcher.Mark(ctx)
					_ = s.orders.Prepare(ctx)
					time.Sleep(50 * time.Millisecond)
				}
			}()
			body := `{"usd_amount": "150.50", "currency": "monero"}`
			full := load{handler: s.handler, method: "POST", path: "/api/cards", token: s.token, body: body,
				want: http.StatusCreated, connections: connections}
			bare := load{handler: s.bare(b, url), method: "POST", path: "/api/cards", body: body, want: http.StatusCreated,
				connections: connections}
			ours, theirs, ratio := alternate(b, full, bare)
			b.ReportMetric(ours, "req/s")
			b.ReportMetric(theirs, "bare-req/s")
			b.ReportMetric(ratio, limit)
			reportMaximum(b, connections)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// bare returns the bare handler of BenchmarkCreateCard.
func (s *bench) bare(b *testing.B, url string) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	// Addresses are indexed. Therefore their length and random order must match
	// the service's.
	made, err := simulated.New(card.Currency{Code: "bare"}, s.store, time.Now).NewAddresses(b.Context(),
		settle.NoPosition, 2*pool)
	must(b, err)
	db := rig.OpenSQL(b, url)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	insert, err := db.Prepare(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required, credit_due)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING`)
	must(b, err)
	var next atomic.Int64
	engine := gin.New()
	engine.POST("/api/cards", func(c *gin.Context) {
		var request struct {
			USDAmount string `json:"usd_amount"`
			Currency  string `json:"currency"`
		}
		if err := c.ShouldBindJSON(&request); err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		id, now := uuid.Must(uuid.NewV7()), time.Now().UnixMilli()
		_, err := insert.ExecContext(c.Request.Context(), id, s.account, now, 150_50, "monero", 986755835300,
			made[next.Add(1)].Address,
			152_52000000, now, "fixed", now+3_600_000, 10, 986755835300)
		if err != nil {
			c.Status(http.StatusInternalServerError)
			return
		}
		c.JSON(http.StatusCreated, gin.H{"uuid": id})
	})
	return engine
}

// BenchmarkGetCard compares getCard with a bare gin handler in the same process
// that only reads the same row. Both run one statement per request. Each
// connection polls its own card.
func BenchmarkGetCard(b *testing.B) {
	for _, connections := range []int{16, 64, 256} {
		b.Run(fmt.Sprint(connections, "-connections"), func(b *testing.B) {
			url := rig.Postgres(b)
			s := newBench(b, url, pool)
			paths := make([]string, connections)
			for i := range paths {
				c, err := create(b.Context(), s.orders, s.account, "150.50")
				must(b, err)
				paths[i] = "/api/cards/" + c.UUID.String()
			}
			ours, theirs, ratio := alternate(b,
				load{handler: s.handler, method: "GET", paths: paths, token: s.token, want: http.StatusOK,
					connections: connections},
				load{handler: s.bareRead(b, url), method: "GET", paths: paths, want: http.StatusOK, connections: connections})
			b.ReportMetric(ours, "req/s")
			b.ReportMetric(theirs, "bare-req/s")
			b.ReportMetric(ratio, "of-bare")
			reportMaximum(b, connections)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// bareRead returns the bare handler of BenchmarkGetCard.
func (s *bench) bareRead(b *testing.B, url string) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	db := rig.OpenSQL(b, url)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	read, err := db.Prepare(`SELECT uuid, created_at, usd_cents, currency, amount, address, rate, expires_at, confirmations_required, status, payment_state,
		received, settled, height, accepted, refunded, written_off, canceled_at, reference, metadata FROM cards WHERE account_id = $1 AND uuid = $2`)
	must(b, err)
	engine := gin.New()
	engine.GET("/api/cards/:uuid", func(c *gin.Context) {
		row, fields := make([]any, 20), make([]any, 20)
		for i := range row {
			fields[i] = &row[i]
		}
		if err := read.QueryRowContext(c.Request.Context(), s.account, c.Param("uuid")).Scan(fields...); err != nil {
			c.Status(http.StatusInternalServerError)
			return
		}
		c.JSON(http.StatusOK, gin.H{"uuid": c.Param("uuid"), "address": row[5], "amount": row[4]})
	})
	return engine
}

const manyCards = 100_000

// fill inserts n unpaid cards in one statement.
func fill(b *testing.B, url string, account uuid.UUID, n int) {
	b.Helper()
	db := rig.OpenSQL(b, url)
	_, err := db.Exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required)
		SELECT gen_random_uuid(), $1, $2::BIGINT, 15050, 'monero', 986755835300, 'filled ' || i, 15252000000, $2::BIGINT, 'fixed', $2::BIGINT + 86400000, 10
		FROM generate_series(1, $3) AS i`, account, time.Now().UnixMilli(), n)
	must(b, err)
	_, err = db.Exec("ANALYZE")
	must(b, err)
}

// BenchmarkListCards streams the whole list from the real binary and reports
// its memory growth.
func BenchmarkListCards(b *testing.B) {
	url := rig.Postgres(b)
	p := newProgram(b, url)
	token := p.account(b)
	var account uuid.UUID
	must(b, rig.OpenSQL(b, url).QueryRow("SELECT id FROM accounts").Scan(&account))
	fill(b, url, account, manyCards)
	s := p.serve(b, "serve", "--simulated", "--rate", "monero=152.52")
	list := func(query string) (cards int) {
		r, _ := http.NewRequest("GET", s.url+"/api/cards"+query, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		must(b, err)
		defer func() { _ = response.Body.Close() }()
		chunk := make([]byte, 64<<10)
		for {
			n, err := response.Body.Read(chunk)
			cards += bytes.Count(chunk[:n], []byte("\n"))
			if err != nil {
				return cards
			}
		}
	}
	list("?limit=1000")
	before := memory(b, s.PID(), "VmRSS")
	start := time.Now()
	cards := list("")
	took := time.Since(start)
	if cards < manyCards {
		b.Errorf("%d cards were listed", cards)
	}
	b.ReportMetric(float64(memory(b, s.PID(), "VmHWM")-before)/1024, "MiB-growth(max:32)")
	b.ReportMetric(float64(cards)/took.Seconds(), "cards/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWatcherTick compares passes while 100 cards wait with passes while
// 100,000 do. Each pass sees 10 new transfers, and 10 that become confirmed.
func BenchmarkWatcherTick(b *testing.B) {
	var took [2]time.Duration
	for i, waiting := range []int{100, manyCards} {
		url := rig.Postgres(b)
		s := newBench(b, url, pool)
		fill(b, url, s.account, waiting)
		took[i] = s.passCost(b).took
	}
	b.ReportMetric(float64(took[0].Microseconds()), "µs/100-waiting")
	b.ReportMetric(float64(took[1].Microseconds()), "µs/100000-waiting")
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio(same:1)")
	b.ReportMetric(0, "ns/op")
}

// cost is the cost of a pass.
type cost struct {
	took      time.Duration
	allocated uint64 // bytes, by this process
}

// tick runs a pass and adds its cost.
func (c *cost) tick(b *testing.B, s *bench) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	must(b, s.watcher.Tick(b.Context()))
	c.took += time.Since(start)
	runtime.ReadMemStats(&after)
	c.allocated += after.TotalAlloc - before.TotalAlloc
}

func (c cost) perPass(n int) cost { return cost{c.took / time.Duration(n), c.allocated / uint64(n)} }

// sliceCost returns the cost of a pass that compares a twelfth of the newest
// blocks.
func (s *bench) sliceCost(b *testing.B) cost {
	b.Helper()
	const round = 12
	var all cost
	for range round {
		s.ahead += 5 * time.Second
		all.tick(b, s)
	}
	return all.perPass(round)
}

// passCost returns the cost of a pass with ten new payments.
func (s *bench) passCost(b *testing.B) cost {
	b.Helper()
	must(b, s.watcher.Tick(b.Context())) // filling took longer than a mark lasts
	const passes, warm = 200, 20
	var all, warming cost
	for pass := range passes + warm {
		for range 10 {
			c, err := create(b.Context(), s.orders, s.account, "150.50")
			must(b, err)
			_, err = s.chain.Pay(b.Context(), c.Address, c.Amount, 1)
			must(b, err)
		}
		if pass < warm {
			warming.tick(b, s)
		} else {
			all.tick(b, s)
		}
	}
	return all.perPass(passes)
}

// BenchmarkPastTransfers measures passes with ten new payments each, and passes
// that compare a slice, with 1,000 and with 1,000,000 transfers in the last
// hundred blocks.
func BenchmarkPastTransfers(b *testing.B) {
	const most = 1_000_000
	var pass, slice [2]cost
	for i, past := range []int{1000, most} {
		url := rig.Postgres(b)
		s := newBench(b, url, 5000)
		db := rig.OpenSQL(b, url)
		for _, statement := range []string{
			"UPDATE simulated_chains SET height = 200",
			`INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at)
				SELECT 'monero', 'past ' || i, 'past ' || i, 1, 101 + i % 100, 1 FROM generate_series(1, ` + strconv.Itoa(past) + `) AS i`,
			`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at)
				SELECT currency, txid, 0, address, amount, height, FALSE, TRUE, seen_at FROM simulated_transfers`,
			"ANALYZE",
		} {
			_, err := db.Exec(statement)
			must(b, err)
		}
		must(b, s.watcher.Tick(b.Context())) // filling took longer than a mark lasts
		slice[i], pass[i] = s.sliceCost(b), s.passCost(b)
	}
	for i, past := range []string{"1000-past", "1000000-past"} {
		b.ReportMetric(float64(pass[i].took.Microseconds()), "µs/"+past)
		b.ReportMetric(float64(pass[i].allocated)/(1<<10), "KiB/"+past)
		b.ReportMetric(float64(slice[i].took.Microseconds())/1000, "ms-slice/"+past)
		b.ReportMetric(float64(slice[i].allocated)/(1<<20), "MiB-slice/"+past)
	}
	b.ReportMetric(float64(pass[1].took)/float64(pass[0].took), "ratio(same:1)")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDev starts the real binary and reports its startup time, and its
// memory and CPU use when idle.
func BenchmarkDev(b *testing.B) {
	p := newProgram(b, "")
	start := time.Now()
	s := p.serve(b, "dev")
	ready := time.Since(start)
	time.Sleep(2 * time.Second) // startup work is not idle use
	before := cpu(b, s.PID())
	const idle = 10 * time.Second
	time.Sleep(idle)
	used := cpu(b, s.PID()) - before
	b.ReportMetric(ready.Seconds(), "s-to-ready(max:1)")
	b.ReportMetric(float64(memory(b, s.PID(), "VmRSS"))/1024, "MiB-idle(max:60)")
	b.ReportMetric(100*used.Seconds()/idle.Seconds(), "%-of-a-core-idle(max:1)")
	b.ReportMetric(0, "ns/op")
	s.stop(b)
}

// memory returns a field of /proc/PID/status, in KiB.
func memory(b *testing.B, pid int, line string) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	for text := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(text, line+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			must(b, err)
			return kib
		}
	}
	b.Fatalf("no %s", line)
	return 0
}

// cpu returns the CPU time of a process. A tick in /proc/PID/stat is 10 ms.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	must(b, err)
	system, err := strconv.Atoi(fields[12])
	must(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// create orders a card with the given balance in US dollars.
func create(ctx context.Context, s *order.Service, account uuid.UUID, usd string) (*card.Card, error) {
	o, wrong := s.Check(order.Request{USDAmount: usd, Currency: "monero"})
	if len(wrong) > 0 {
		return nil, card.ErrInvalidRequest.WithFields(wrong...)
	}
	c, _, err := s.CreateCard(ctx, account, o, "")
	return c, err
}
