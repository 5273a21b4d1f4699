package rate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

func TestReports_QuotesOfSources(t *testing.T) {
	live, clock, s := newLive(t, 3,
		rate.Config{Floor: map[string]card.Decimal{"monero": decimal(t, "1")},
			Ceiling: map[string]card.Decimal{"monero": decimal(t, "1000")}})
	if got := live.Reports(); len(got) != 1 || got[0].Rate != (card.Rate{}) || len(got[0].Quotes) != 0 ||
		got[0].Median.Units != 0 {
		t.Errorf("before the first Tick: %+v", got)
	}
	s[0].quotes(t, noon, map[string]string{"monero": "150"})
	s[1].quotes(t, noon, map[string]string{"monero": "152"})
	s[2].fails(errors.New("down"))
	if err := live.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	current, err := live.Rate("monero")
	if err != nil {
		t.Fatal(err)
	}
	want := []rate.Report{{Currency: "monero", Rate: current, Median: decimal(t, "151"), Quotes: []rate.SourceQuote{
		{Source: "a", Quote: rate.Quote{USD: decimal(t, "150"), At: noon}},
		{Source: "b", Quote: rate.Quote{USD: decimal(t, "152"), At: noon}}}, Agreeing: 2, Quorum: 2}}
	if diff := cmp.Diff(want, live.Reports()); diff != "" {
		t.Error(diff)
	}
	clock.pass(time.Hour)
	// too old; the quotes remain
	want[0].Rate, want[0].Median, want[0].Agreeing = card.Rate{}, card.Decimal{Scale: card.RateScale}, 0
	if diff := cmp.Diff(want, live.Reports()); diff != "" {
		t.Error(diff)
	}
}
