package rate_test

import (
	"context"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

func TestLive_SourcePanics_OthersAreUsed(t *testing.T) {
	live, _, s := newLive(t, 3, rate.Config{Floor: map[string]card.Decimal{"monero": decimal(t, "1")},
		Ceiling: map[string]card.Decimal{"monero": decimal(t, "1000")}}) // without both bounds, all sources must agree on the first rate
	s[0].fetch = func(context.Context, []string) (map[string]rate.Quote, error) { panic("canary") }
	s[1].quotes(t, noon, map[string]string{"monero": "152.4"})
	s[2].quotes(t, noon, map[string]string{"monero": "152.5"})
	for range 2 {
		if err := live.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRate(t, live, "152.45")
	}
}
