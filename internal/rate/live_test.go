package rate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
)

func wantRate(t testing.TB, rates order.Rates, want string) {
	t.Helper()
	if got, err := rates.Rate("monero"); err != nil || got.USD.String() != want {
		t.Errorf("rate: %s, %v; want %s", got.USD, err, want)
	}
}

// wantNoRate checks that there is no rate of monero, and that the reason is
// logged and reported by Health.
func wantNoRate(t testing.TB, live *rate.Live, why string) {
	t.Helper()
	got, err := live.Rate("monero")
	var public *card.Error
	if !errors.As(err, &public) || !errors.Is(err, card.ErrNoRate) || public.RetryAfter == 0 || got != (card.Rate{}) {
		t.Errorf("rate: %+v, %v", got, err)
	}
	if !strings.Contains(err.Error(), why) || strings.Contains(public.Message, why) {
		t.Errorf("rate: %v; want the reason %q only in the log", err, why)
	}
	if health := live.Health(); health == nil || !strings.Contains(health.Error(), why) ||
		!strings.Contains(health.Error(), "rate of monero: ") {
		t.Errorf("health: %v, want %q", health, why)
	}
}

func TestLive_Rate_IsMedianOfSources(t *testing.T) {
	live, _, s := newLive(t, 3, rate.Config{})
	wantNoRate(t, live, "no source was fetched yet")
	s[0].quotes(t, noon.Add(-time.Minute), map[string]string{"monero": "152.6"})
	s[1].quotes(t, noon, map[string]string{"monero": "152.4"})
	s[2].quotes(t, noon, map[string]string{"monero": "152.52"})
	if err := live.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := live.Rate("monero")
	want := card.Rate{USD: decimal(t, "152.52"), At: noon.Add(-time.Minute), Source: "median a=152.6 b=152.4 c=152.52"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if err := live.Health(); err != nil {
		t.Error(err)
	}
	if _, err := live.Rate("bitcoin"); !errors.Is(err, card.ErrNoRate) {
		t.Errorf("unconfigured currency: %v", err)
	}
}

func TestLive_Rate_Expires(t *testing.T) {
	live, clock, _ := newLive(t, 2, rate.Config{})
	if err := live.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.pass(5 * time.Minute)
	wantRate(t, live, "150")
	clock.pass(time.Second)
	wantNoRate(t, live, "the last one is 5m1s old, more than 5m0s, and the sources have not been fetched since")
	// A clock that was set back does not make the rate fresh again.
	clock.Time = noon.Add(-31 * time.Second)
	wantNoRate(t, live, "31s in the future")
}

func TestLive_OldQuote_Dropped(t *testing.T) {
	live, _, s := newLive(t, 2, rate.Config{})
	s[0].quotes(t, noon.Add(-24*time.Hour), map[string]string{"monero": "150"})
	if err := live.Tick(t.Context()); err == nil {
		t.Error("no error")
	}
	wantNoRate(t, live, "1 of 2 sources can be used, and 2 are needed: a: quote is 24h0m0s old, more than 5m0s")
}

func TestLive_FutureQuote_Dropped(t *testing.T) {
	live, _, s := newLive(t, 2, rate.Config{})
	s[0].quotes(t, noon.Add(time.Hour), map[string]string{"monero": "150"})
	_ = live.Tick(t.Context())
	wantNoRate(t, live, "a: quote is from 1h0m0s in the future, more than 30s")
}

func TestLive_BelowQuorum_NoRate(t *testing.T) {
	live, clock, s := newLive(t, 3, rate.Config{})
	_ = live.Tick(t.Context())
	s[0].fails(errors.New("HTTP status 500"))
	s[1].quotes(t, noon, nil)
	clock.pass(time.Minute)
	const why = "1 of 3 sources can be used, and 2 are needed: a: HTTP status 500; b: answer has no quote for it"
	if err := live.Tick(t.Context()); err == nil || err.Error() != "rate of monero: "+why {
		t.Errorf("Tick: %v", err)
	}
	wantRate(t, live, "150") // until it expires
	if err := live.Health(); err != nil {
		t.Error(err)
	}
	clock.pass(5 * time.Minute)
	_ = live.Tick(t.Context())
	wantNoRate(t, live, "the last one is 6m0s old, more than 5m0s; since then: 0 of 3")
	s[0].quotes(t, clock.now(), map[string]string{"monero": "151"})
	s[1].quotes(t, clock.now(), map[string]string{"monero": "151"})
	if err := live.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRate(t, live, "151")
}

func TestLive_Jump_HeldUntilConfirmed(t *testing.T) {
	live, clock, s := newLive(t, 2, rate.Config{})
	tick := func(usd string) {
		clock.pass(time.Minute)
		for _, s := range s {
			s.quotes(t, clock.now(), map[string]string{"monero": usd})
		}
		_ = live.Tick(t.Context())
	}
	tick("150")
	tick("180")
	wantRate(t, live, "150")
	tick("181")
	wantRate(t, live, "150")
	tick("182")
	wantRate(t, live, "182")
	tick("150")
	wantNoRate(t, live,
		"150 is more than 15 percent from the last rate 182, and is held until seen 3 times (now 1; median a=150 b=150)")
	tick("150")
	wantNoRate(t, live, "now 2")
	tick("150")
	wantRate(t, live, "150")
}

func TestLive_HeldJump_OldRateExpires(t *testing.T) {
	live, clock, s := newLive(t, 2, rate.Config{HoldTicks: 100})
	_ = live.Tick(t.Context())
	for range 6 {
		clock.pass(time.Minute)
		for _, s := range s {
			s.quotes(t, clock.now(), map[string]string{"monero": "300"})
		}
		_ = live.Tick(t.Context())
	}
	wantNoRate(t, live, "the last one is 6m0s old, more than 5m0s; since then: 300 is more than 15 percent")
}

func TestLive_BelowFloor_NoRate(t *testing.T) {
	live, clock, s := newLive(t, 2, rate.Config{Floor: map[string]card.Decimal{"monero": {Units: 145}}})
	_ = live.Tick(t.Context())
	wantRate(t, live, "150")
	clock.pass(time.Second)
	for _, s := range s {
		s.quotes(t, noon, map[string]string{"monero": "144.99999999"})
	}
	for range 5 {
		_ = live.Tick(t.Context())
		wantNoRate(t, live, "144.99999999 is below the floor of 145")
	}
}

func TestLive_AboveCeiling_NoRate(t *testing.T) {
	live, clock, s := newLive(t, 2, rate.Config{Ceiling: map[string]card.Decimal{"monero": {Units: 1555, Scale: 1}}})
	_ = live.Tick(t.Context())
	wantRate(t, live, "150")
	clock.pass(time.Second)
	for _, s := range s {
		s.quotes(t, noon, map[string]string{"monero": "155.50000001"})
	}
	for range 5 {
		_ = live.Tick(t.Context())
		wantNoRate(t, live, "155.50000001 is above the ceiling of 155.5")
	}
}

func TestLive_OneCoinFails_OthersHaveRates(t *testing.T) {
	live, _, s := newLive(t, 2, rate.Config{Coins: []string{"monero", "bitcoin", "litecoin"}})
	s[0].fetch = func(context.Context, []string) (map[string]rate.Quote, error) {
		return map[string]rate.Quote{
			"monero": {USD: decimal(t, "150"), At: noon}, "bitcoin": {Err: errors.New("truncated")},
			"litecoin": {USD: decimal(t, "80"), At: noon}}, nil
	}
	s[1].quotes(t, noon, map[string]string{"monero": "150", "bitcoin": "90000"})
	err := live.Tick(t.Context())
	const want = `rate of bitcoin: 1 of 2 sources can be used, and 2 are needed: a: truncated
rate of litecoin: 1 of 2 sources can be used, and 2 are needed: b: answer has no quote for it`
	if health := live.Health(); err == nil || health == nil || err.Error() != want || health.Error() != want {
		t.Errorf("Tick: %v\nhealth: %v", err, health)
	}
	wantRate(t, live, "150")
}

func TestLive_Sources_FetchServedCoinsOnly(t *testing.T) {
	live, _, s := newLive(t, 4, rate.Config{Coins: []string{"monero", "bitcoin"}})
	s[2].serves, s[3].serves = []string{"bitcoin"}, []string{"doge"}
	for i, want := range []string{"[monero bitcoin]", "[monero bitcoin]", "[bitcoin]", "not at all"} {
		s[i].fetch = func(_ context.Context, coins []string) (map[string]rate.Quote, error) {
			if got := fmt.Sprint(coins); got != want {
				t.Errorf("source %d was fetched for %s, want %s", i, got, want)
			}
			return nil, errors.New("down")
		}
	}
	const want = `rate of monero: 0 of 2 sources can be used, and 2 are needed: a: down; b: down
rate of bitcoin: 0 of 3 sources can be used, and 2 are needed: a: down; b: down; c: down`
	if err := live.Tick(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Tick: %v", err)
	}
}

func TestLive_HangingSource_TimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, _, s := newLive(t, 3, rate.Config{Now: time.Now,
			Floor:   map[string]card.Decimal{"monero": decimal(t, "1")},
			Ceiling: map[string]card.Decimal{"monero": decimal(t, "1000")}})
		for _, s := range s {
			s.quotes(t, time.Now(), map[string]string{"monero": "150"})
		}
		s[1].fetch = func(ctx context.Context, _ []string) (map[string]rate.Quote, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		began := time.Now()
		if err := live.Tick(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %s", took)
		}
		wantRate(t, live, "150")
		// The caller's deadline is shorter than the source's timeout.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := live.Tick(ctx); err != nil {
			t.Error(err)
		}
		s[0].fails(errors.New("down"))
		if err := live.Tick(t.Context()); err == nil || !strings.Contains(err.Error(), "b: no answer within 10s") {
			t.Error(err)
		}
	})
}

func TestLive_Sources_FetchedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, _, s := newLive(t, 3, rate.Config{Now: time.Now})
		for _, s := range s {
			s.fetch = func(context.Context, []string) (map[string]rate.Quote, error) {
				<-time.After(3 * time.Second)
				return map[string]rate.Quote{"monero": {USD: decimal(t, "150"), At: time.Now()}}, nil
			}
		}
		began := time.Now()
		var ticks sync.WaitGroup
		ticks.Go(func() { _ = live.Tick(t.Context()) })
		ticks.Go(func() { _ = live.Tick(t.Context()) }) // one after the other
		synctest.Wait()
		wantNoRate(t, live, "no source was fetched yet") // Rate does not wait for Tick
		ticks.Wait()
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("took %s", took)
		}
		wantRate(t, live, "150")
	})
}

func TestLive_ConcurrentReadsAndTicks(t *testing.T) {
	live, _, _ := newLive(t, 3, rate.Config{})
	_ = live.Tick(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for range 2000 {
				if got, err := live.Rate("monero"); err != nil || got.USD.String() != "150" {
					t.Errorf("%+v, %v", got, err)
					return
				}
				_ = live.Health()
			}
		})
	}
	for range 50 {
		_ = live.Tick(t.Context())
	}
	readers.Wait()
}

func TestLive_WaitingTick_EndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, _, s := newLive(t, 2, rate.Config{Now: time.Now})
		s[0].fetch = func(ctx context.Context, _ []string) (map[string]rate.Quote, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		var first sync.WaitGroup
		first.Go(func() { _ = live.Tick(t.Context()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := live.Tick(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		first.Wait()
	})
}

// A dead source is logged before a second one fails.
func TestLive_MissingSource_LoggedOnce(t *testing.T) {
	var logged strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	live, clock, s := newLive(t, 4, rate.Config{})
	s[3].serves = []string{"bitcoin"}
	s[3].quotes(t, noon, nil)
	tick := func(want string) {
		t.Helper()
		logged.Reset()
		clock.pass(time.Second) // reasons that contain an age differ in each Tick
		if err := live.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := logged.String(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	}
	tick("")
	s[1].quotes(t, noon.Add(-time.Hour), map[string]string{"monero": "150"})
	tick(`missing=[b] dropped="b: quote is 1h0m2s old, more than 5m0s"`)
	tick("")
	s[1].quotes(t, noon, map[string]string{"monero": "150"})
	tick("missing=[]")
}

func TestNew_InvalidConfig_ReturnsError(t *testing.T) {
	a, b := &script{name: "a"}, &script{name: "b"}
	good := rate.Config{Coins: []string{"monero"}}
	for name, test := range map[string]struct {
		sources []rate.Source
		change  func(*rate.Config)
		why     string
	}{
		"fewer sources than the quorum": {[]rate.Source{a}, nil, "1 sources can't make a quorum of 2"},
		"no sources":                    {nil, nil, "0 sources"},
		"too few with a market": {[]rate.Source{a, b, &script{name: "c", serves: []string{"bitcoin"}}},
			func(c *rate.Config) { c.Quorum = 3 }, "monero: 2 of the sources have a market for it, and a quorum is 3"},
		"duplicate source": {[]rate.Source{a, b, &script{name: "a"}}, nil, "rate source a is listed twice"},
		"no coins":         {[]rate.Source{a, b}, func(c *rate.Config) { c.Coins = nil }, "coins: at least one"},
		"duplicate coin": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Coins = []string{"monero", "monero"}
		}, "listed twice"},
		"an empty coin":      {[]rate.Source{a, b}, func(c *rate.Config) { c.Coins = []string{""} }, "is empty"},
		"negative quorum":    {[]rate.Source{a, b}, func(c *rate.Config) { c.Quorum = -1 }, "quorum: "},
		"negative age":       {[]rate.Source{a, b}, func(c *rate.Config) { c.MaxAge = -1 }, "max age: "},
		"negative tolerance": {[]rate.Source{a, b}, func(c *rate.Config) { c.MaxAhead = -1 }, "max ahead: "},
		"negative timeout":   {[]rate.Source{a, b}, func(c *rate.Config) { c.Timeout = -1 }, "timeout: "},
		"long timeout": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Timeout = 61 * time.Second
		}, "at most 1m0s"},
		"negative hold": {[]rate.Source{a, b}, func(c *rate.Config) { c.HoldTicks = -1 }, "hold ticks: "},
		"negative spread": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.MaxSpread.Units = -1
		}, "max spread: "},
		"explicit zero spread": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.MaxSpread = card.Decimal{Scale: 2}
		}, "max spread: "},
		"too fine a jump": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.MaxJump = card.Decimal{Units: 1, Scale: 5}
		}, "max jump: "},
		"no move": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.MaxMove = card.Decimal{Scale: 2}
		}, "max move: "},
		"jump over 100 percent": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.MaxJump = card.Decimal{Units: 101}
		}, "max jump: "},
		"floor of another coin": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Floor = map[string]card.Decimal{"doge": {Units: 1}}
		}, `"doge" is not one`},
		"floor of zero": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Floor = map[string]card.Decimal{"monero": {}}
		}, "floor of monero: must be 0.01 to"},
		"negative floor": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Floor = map[string]card.Decimal{"monero": {Units: -5}}
		}, "floor of monero"},
		"floor with too many decimals": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Floor = map[string]card.Decimal{"monero": {Units: 1_000_000_001, Scale: 9}}
		}, "floor of monero"},
		"ceiling of another coin": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Ceiling = map[string]card.Decimal{"doge": {Units: 1}}
		}, `ceiling: "doge" is not one`},
		"ceiling of zero": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Ceiling = map[string]card.Decimal{"monero": {}}
		}, "ceiling of monero: must be 0.01 to"},
		"ceiling below the floor": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Floor, c.Ceiling = map[string]card.Decimal{"monero": {Units: 2}},
				map[string]card.Decimal{"monero": {Units: 19, Scale: 1}}
		}, "must not be below its floor"},
		"floor with an invalid scale": {[]rate.Source{a, b}, func(c *rate.Config) {
			c.Floor = map[string]card.Decimal{"monero": {Units: 1, Scale: -3}}
		}, "floor of monero"},
	} {
		cfg := good
		if test.change != nil {
			test.change(&cfg)
		}
		if _, err := rate.New(test.sources, slog.Default(), cfg); err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNew_Bounds_Valid(t *testing.T) {
	a, b := &script{name: "a"}, &script{name: "b"}
	for name, change := range map[string]func(*rate.Config){
		"a quorum of one":       func(c *rate.Config) { c.Quorum = 1 },
		"no jump is held":       func(c *rate.Config) { c.HoldTicks = 1 },
		"a timeout of a minute": func(c *rate.Config) { c.Timeout = time.Minute },
		"the floor is the ceiling": func(c *rate.Config) {
			c.Floor, c.Ceiling = map[string]card.Decimal{"monero": {Units: 2}},
				map[string]card.Decimal{"monero": {Units: 20, Scale: 1}}
		},
	} {
		cfg := rate.Config{Coins: []string{"monero"}}
		change(&cfg)
		if _, err := rate.New([]rate.Source{a, b}, slog.Default(), cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
