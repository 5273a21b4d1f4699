package rate_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rate"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func decimal(t testing.TB, text string) card.Decimal {
	t.Helper()
	d, err := card.ParseDecimal(text, card.RateScale)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// percent parses a percentage, and keeps its number of decimals.
func percent(t testing.TB, text string) (p card.Decimal) {
	t.Helper()
	if err := p.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

// clock is a clock that only the test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time       { return c.Time }
func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

// script is a source whose quotes the test sets.
type script struct {
	name   string
	serves []string // coins that it serves; empty for all
	fetch  func(ctx context.Context, coins []string) (map[string]rate.Quote, error)
}

func (s *script) Name() string { return s.name }

func (s *script) Serves(coin string) bool {
	return len(s.serves) == 0 || slices.Contains(s.serves, coin)
}

func (s *script) Fetch(ctx context.Context, coins []string) (map[string]rate.Quote, error) {
	return s.fetch(ctx, coins)
}

// quotes sets the prices of a source, by coin.
func (s *script) quotes(t testing.TB, at time.Time, usdPerCoin map[string]string) {
	t.Helper()
	quotes := map[string]rate.Quote{}
	for coin, price := range usdPerCoin {
		quotes[coin] = rate.Quote{USD: decimal(t, price), At: at}
	}
	s.fetch = func(context.Context, []string) (map[string]rate.Quote, error) { return quotes, nil }
}

func (s *script) fails(err error) {
	s.fetch = func(context.Context, []string) (map[string]rate.Quote, error) { return nil, err }
}

// newLive returns rates of monero from n scripts, named a, b and so on, that
// quote 150 at noon.
func newLive(t testing.TB, n int, cfg rate.Config) (*rate.Live, *clock, []*script) {
	t.Helper()
	c := &clock{noon}
	if cfg.Now == nil {
		cfg.Now = c.now
	}
	if cfg.Coins == nil {
		cfg.Coins = []string{"monero"}
	}
	scripts, sources := make([]*script, n), make([]rate.Source, n)
	for i := range scripts {
		scripts[i] = &script{name: string(rune('a' + i))}
		scripts[i].quotes(t, noon, map[string]string{"monero": "150"})
		sources[i] = scripts[i]
	}
	live, err := rate.New(sources, slog.Default(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return live, c, scripts
}

// site is the HTTP server of a rate source. It sends the same response to every
// request.
type site struct {
	*httptest.Server
	asked []string // request paths with queries
}

// answering returns a site that responds with body at noon.
func answering(t testing.TB, body string) *site {
	return playing(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
}

func playing(t testing.TB, handle http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r.URL.RequestURI())
		w.Header().Set("Date", noon.Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		handle(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// open returns a source with its URL replaced by address.
func open(t testing.TB, name, address string) rate.Source {
	t.Helper()
	sources, err := rate.Sources([]string{name}, map[string]string{name: address}, chain.Markets())
	if err != nil {
		t.Fatal(err)
	}
	return sources[0]
}

// show formats quotes as "coin=price@time" or "coin: error", and a failure as
// its error.
func show(coins []string, quotes map[string]rate.Quote, err error) string {
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, coin := range coins {
		switch q, there := quotes[coin]; {
		case !there:
			texts = append(texts, coin+" absent")
		case q.Err != nil:
			texts = append(texts, coin+": "+q.Err.Error())
		default:
			texts = append(texts, fmt.Sprintf("%s=%s@%s", coin, q.USD, q.At.UTC().Format("15:04:05")))
		}
	}
	return strings.Join(texts, ", ")
}
