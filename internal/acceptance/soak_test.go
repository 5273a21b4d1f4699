//go:build drill

package acceptance_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"golang.org/x/time/rate"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/outbound"
	rates "github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
	cardserver "github.com/cardmint/cardmint/server"
)

var soakFor = flag.Duration("soak", 30*time.Second,
	"have TestSoak run for so long; its clock runs 120 times as fast, so that 12 minutes are a day")

const (
	soakSpeed   = 120 // of the clock
	soakCards   = 40  // a second of real time
	soakSamples = 40
)

// soak is a service in this process, on PostgreSQL, whose clock runs fast.
type soak struct {
	t       *testing.T
	began   time.Time
	db      *store.Store
	sql     *sql.DB
	url     string
	token   string
	clients sync.WaitGroup

	cards, posts, refused atomic.Int64
}

func (s *soak) now() time.Time { return s.began.Add(soakSpeed * time.Since(s.began)) }

// TestSoak sells cards for a day of the service's clock. Some of them expire,
// are canceled, or are underpaid. It fails if memory, other resources, or
// tables grow without bound.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: takes its time")
	}
	s := newSoak(t)
	ctx, stop := context.WithTimeout(t.Context(), *soakFor)
	defer stop()
	limit := rate.NewLimiter(soakCards, soakCards)
	for n := range 8 {
		s.clients.Go(func() { s.buyCards(ctx, limit, n) })
	}
	var samples []soakSample
	every := time.NewTicker(*soakFor / soakSamples)
	defer every.Stop()
	for ctx.Err() == nil {
		select {
		case <-every.C:
			samples = append(samples, s.takeSample())
		case <-ctx.Done():
		}
	}
	s.clients.Wait()
	if s.cards.Load() < int64(soakFor.Seconds()) || s.posts.Load() < s.cards.Load()/2 ||
		s.refused.Load() > s.cards.Load()/10 {
		t.Errorf("only %d cards and %d webhooks, %d failed requests: too little load", s.cards.Load(), s.posts.Load(),
			s.refused.Load())
	}
	t.Logf("%d cards and %d webhooks in %s of the service's clock; %d failed requests", s.cards.Load(), s.posts.Load(),
		s.now().Sub(s.began).Round(time.Minute), s.refused.Load())
	report, grows := findGrowth(samples)
	t.Log("\n" + report)
	for _, g := range grows {
		t.Error(g)
	}
}

func newSoak(t *testing.T) *soak {
	app.Tune()
	s := &soak{t: t, began: time.Now()}
	database := rig.Postgres(t)
	db, v := openStore(t, database)
	s.db, s.sql = db, rig.OpenSQL(t, database)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	accounts, err := account.New(s.db, v, account.Config{Now: s.now})
	must(t, err)
	_, err = accounts.CreateAccount(t.Context(), "shop")
	must(t, err)
	_, token, err := accounts.CreateToken(t.Context(), "shop",
		account.TokenRequest{Name: "soak", Scopes: account.AllScopes})
	must(t, err)
	s.token = token.Reveal()
	s.wire(v, accounts, log)
	return s
}

// wire creates the actors like serve, and runs their loops until the test ends.
func (s *soak) wire(v *vault.Vault, accounts *account.Service, log *slog.Logger) {
	t, coin := s.t, chain.Currencies()[0]
	fixed, err := rates.NewFixed(map[string]string{coin.Code: "150"}, s.now)
	must(t, err)
	sim := simulated.New(coin, s.db, s.now)
	passes := make(chan struct{}, 1)
	wake := func() {
		select {
		case passes <- struct{}{}:
		default:
		}
	}
	watcher, err := settle.New(s.db, fixed, sim,
		settle.Wake{Pass: wake, Orders: func() {}, Issuer: func() {}, Sender: func() {}}, log,
		settle.Config{PoolSize: 1000, FillBatch: 500, LeaseTTL: time.Hour, Now: s.now})
	must(t, err)
	routes := issue.Only(supplier.NewSandbox("sandbox", supplier.Prompt, s.now))
	issuer, err := issue.New(s.db, v, issue.Wake{}, log, issue.Config{Routes: routes, Now: s.now})
	must(t, err)
	offers, err := issue.NewOffers(s.db, routes, 0)
	must(t, err)
	orders, err := order.New(s.db, v, fixed, map[string]order.Sandbox{coin.Code: sim}, wake,
		order.Config{Currencies: chain.Currencies()[:1], Now: s.now, Log: log})
	must(t, err)
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: true, Timeout: 5 * time.Second})
	t.Cleanup(poster.Close)
	cfg := webhook.Config{Now: s.now, Rate: 1000}
	sender, err := webhook.NewSender(s.db, v, poster, func() {}, log, cfg)
	must(t, err)
	webhooks, err := webhook.New(s.db, v, poster, func() {}, cfg)
	must(t, err)
	handler, err := cardserver.New(cardserver.Config{Orders: orders, Accounts: accounts, Webhooks: webhooks, Log: log})
	must(t, err)
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	s.url = web.URL
	ctx, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for _, tick := range []func(context.Context) error{
		watcher.Tick, issuer.Tick, offers.Tick, orders.Prepare, orders.RefreshOffers, sender.Tick, sender.Prune,
		webhooks.Tick, accounts.SaveUses} {
		loops.Go(func() {
			again := time.NewTicker(50 * time.Millisecond)
			defer again.Stop()
			for ctx.Err() == nil {
				if err := tick(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("loop: %v", err)
				}
				select {
				case <-again.C:
				case <-passes:
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		loops.Wait()
		_ = sender.Close(context.Background())
	})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.posts.Add(1) }))
	t.Cleanup(receiver.Close)
	_, err = s.client().CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: receiver.URL})
	must(t, err)
}

func (s *soak) client() *client.Client {
	c, err := client.New(s.url, s.token)
	must(s.t, err)
	return c
}

// buyCards orders cards until ctx ends. Seven of ten are paid and read, one is
// underpaid, one is canceled, and one expires.
func (s *soak) buyCards(ctx context.Context, limit *rate.Limiter, n int) {
	shop := s.client()
	for ; limit.Wait(ctx) == nil; n++ {
		err := func() error {
			order := client.CreateCardRequest{USDAmount: decimal.NewFromInt(int64(50 + n%700)), Currency: "monero"}
			made, err := shop.CreateCard(ctx, order,
				client.WithIdempotencyKey(fmt.Sprint("soak-", n, "-", time.Now().UnixNano())))
			if err != nil {
				return err
			}
			s.cards.Add(1)
			switch n % 10 {
			case 0:
				return nil
			case 1:
				_, err = shop.CancelCard(ctx, made.UUID)
				return err
			case 2:
				half := made.Payment.Amount.Div(decimal.NewFromInt(2)).Truncate(12)
				_, err = shop.SimulatePayment(ctx, made.UUID, client.SimulatePaymentRequest{Amount: &half})
				return err
			}
			if _, err = shop.SimulatePayment(ctx, made.UUID, client.SimulatePaymentRequest{}); err != nil {
				return err
			}
			if _, err = shop.WaitForCard(ctx, made.UUID); err != nil {
				return err
			}
			_, err = shop.GetCard(ctx, made.UUID)
			return err
		}()
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			if s.refused.Add(1) < 4 {
				s.t.Logf("request: %v", err)
			}
		}
	}
}

// soakSample holds the measurements of one time.
type soakSample struct {
	hours  float64 // of the service's clock
	cards  float64
	values map[string]float64 // in bytes, or counts
}

func (s *soak) takeSample() soakSample {
	runtime.GC() // leaves only memory in use
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	files, err := os.ReadDir("/proc/self/fd")
	must(s.t, err)
	x := soakSample{s.now().Sub(s.began).Hours(), float64(s.cards.Load()),
		map[string]float64{"heap": float64(heap.HeapAlloc), "resident": resident(s.t),
			"goroutines": float64(runtime.NumGoroutine()), "descriptors": float64(len(files))}}
	rows, err := s.sql.Query(`SELECT CASE relkind WHEN 'i' THEN 'index ' ELSE 'table ' END || relname AS name, pg_relation_size(oid) AS size
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`)
	must(s.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var size float64
		must(s.t, rows.Scan(&name, &size))
		x.values[name] = size
	}
	must(s.t, rows.Err())
	return x
}

// resident returns the memory of this process, in bytes.
func resident(t *testing.T) float64 {
	text, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	must(t, err)
	return float64(pages * os.Getpagesize())
}

// slope returns the slope of y over x, by least squares.
func slope(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	n := float64(len(x))
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}

// medianSlope returns the slope of y over x: the median of the slopes between
// all pairs of points (Theil 1950, Sen 1968). A few outliers change it little.
func medianSlope(x, y []float64) float64 {
	var slopes []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	return median(slopes)
}

// findGrowth returns a table of all slopes, and the measurements that grow
// without bound. It skips the first quarter, while pools and caches fill.
// Resources of the process must not grow. The database may grow with the number
// of cards, but its size per card must not.
func findGrowth(samples []soakSample) (report string, grows []string) {
	samples = samples[len(samples)/4:]
	if len(samples) < 8 {
		return "", []string{"too few samples"}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s %14s %14s %16s %12s\n", "what", "first", "last", "slope per hour", "per card")
	var names []string
	for name := range samples[0].values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		hours, cards, values := series(samples, name)
		half := len(values) / 2
		first, last := values[0], values[len(values)-1]
		perHour := medianSlope(hours, values)
		grown := perHour * (hours[len(hours)-1] - hours[0])
		early, late := slope(cards[:half], values[:half]), slope(cards[half:], values[half:])
		if first != last || !strings.Contains(name, " ") { // skips tables that did not change
			fmt.Fprintf(&b, "%-44s %14.0f %14.0f %16.1f %12.1f\n", name, first, last, perHour, slope(cards, values))
		}
		switch {
		case strings.Contains(name, " "): // tables grow in pages, which are larger than a card
			if n := cards[len(cards)-1] - cards[half]; late > 1.5*early && (late-early)*n > 1<<20 {
				grows = append(grows, fmt.Sprintf("%s: %.0f bytes per card at first, %.0f later", name, early, late))
			}
		default:
			least := map[string]float64{"heap": 8 << 20, "resident": 48 << 20, "goroutines": 24, "descriptors": 24}[name]
			if grown > least && grown > 0.25*first {
				grows = append(grows, fmt.Sprintf("%s: from %.0f to %.0f", name, first, last))
			}
		}
	}
	return b.String(), grows
}

func series(samples []soakSample, name string) (hours, cards, values []float64) {
	for _, s := range samples {
		hours, cards, values = append(hours, s.hours), append(cards, s.cards), append(values, s.values[name])
	}
	return hours, cards, values
}

// TestSoak_UnboundedGrowth_IsReported tests findGrowth.
func TestSoak_UnboundedGrowth_IsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		what  string
		grows bool
		at    func(n float64) float64
	}{
		"a flat heap":       {"heap", false, func(n float64) float64 { return 30<<20 + float64(int(n)%3)*(2<<20) }},
		"a heap that leaks": {"heap", true, func(n float64) float64 { return 30<<20 + n*(1<<20) }},
		"a goroutine each":  {"goroutines", true, func(n float64) float64 { return 50 + 2*n }},
		"a few goroutines":  {"goroutines", false, func(n float64) float64 { return 50 + float64(int(n)%10) }},
		"a busy machine in the end": {"goroutines", false, func(n float64) float64 {
			if n >= 28 && int(n)%4 == 0 {
				return 214
			}
			return 94
		}},
		"descriptors that leak":  {"descriptors", true, func(n float64) float64 { return 20 + n }},
		"a table of cards":       {"table cards", false, func(n float64) float64 { return n * (1 << 20) }},
		"an index that bloats":   {"index cards_due", true, func(n float64) float64 { return n * n * (1 << 18) }},
		"a table of one row":     {"table leases", false, func(float64) float64 { return 8192 }},
		"a table that was small": {"table rates", false, func(n float64) float64 { return float64(int(n)/20) * 65536 }},
	} {
		var samples []soakSample
		for n := range soakSamples {
			samples = append(samples, soakSample{float64(n), float64(n) * 100, map[string]float64{tt.what: tt.at(float64(n))}})
		}
		if _, grows := findGrowth(samples); (len(grows) > 0) != tt.grows {
			t.Errorf("%s: %v", name, grows)
		}
	}
}
