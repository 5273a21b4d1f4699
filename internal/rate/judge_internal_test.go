package rate

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func usd(t testing.TB, text string) card.Decimal {
	t.Helper()
	d, err := card.ParseDecimal(text, card.RateScale)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// said parses "a=152.52 b=152.6@-6m c=!down": quotes of sources, with their
// offsets from noon, and failures.
func said(t testing.TB, texts string) []quoted {
	t.Helper()
	var quotes []quoted
	for field := range strings.FieldsSeq(texts) {
		source, value, _ := strings.Cut(field, "=")
		if why, failed := strings.CutPrefix(value, "!"); failed {
			quotes = append(quotes, quoted{source, Quote{Err: errors.New(why)}})
			continue
		}
		price, distance, timed := strings.Cut(value, "@")
		at := noon
		if timed {
			d, err := time.ParseDuration(distance)
			if err != nil {
				t.Fatal(err)
			}
			at = noon.Add(d)
		}
		quotes = append(quotes, quoted{source, Quote{USD: usd(t, price), At: at}})
	}
	return quotes
}

func config(change func(*Config)) Config {
	c := Config{Coins: []string{"monero"}}
	if change != nil {
		change(&c)
	}
	c.fill()
	c.Floor, c.Ceiling = maps.Clone(c.Floor), maps.Clone(c.Ceiling)
	// with both bounds, a quorum is enough for the first rate
	for bounds, widest := range map[*map[string]card.Decimal]int64{&c.Floor: 1, &c.Ceiling: 1e16} {
		if *bounds == nil {
			*bounds = map[string]card.Decimal{}
		}
		if _, set := (*bounds)["monero"]; !set {
			(*bounds)["monero"] = card.Decimal{Units: widest, Scale: card.RateScale}
		}
	}
	return c
}

// Without bounds and an earlier rate, a wrong majority can't be distinguished
// from a right one.
func TestJudge_FirstRateWithoutBounds_AllSourcesMustAgree(t *testing.T) {
	one := func(units int64) map[string]card.Decimal {
		return map[string]card.Decimal{"monero": {Units: units, Scale: card.RateScale}}
	}
	floor, ceiling := one(1), one(1e16)
	for name, test := range map[string]struct {
		quotes         string
		past           string
		floor, ceiling map[string]card.Decimal
		rate           string // "" for none
	}{
		"all agree":                        {quotes: "a=150 b=151 c=149", rate: "150"},
		"one is down":                      {quotes: "a=1500 b=1500 c=!down"},
		"one disagrees":                    {quotes: "a=1500 b=1500 c=150"},
		"one is too old":                   {quotes: "a=1500 b=1500 c=1500@-6m"},
		"one disagrees, only a floor":      {quotes: "a=1500 b=1500 c=150", floor: floor},
		"one disagrees, only a ceiling":    {quotes: "a=1500 b=1500 c=150", ceiling: ceiling},
		"one disagrees, within the bounds": {quotes: "a=1500 b=1500 c=150", floor: floor, ceiling: ceiling, rate: "1500"},
		"one disagrees, earlier rate":      {quotes: "a=150 b=150 c=15", past: "150@20m", rate: "150"},
		"one is down, earlier rate":        {quotes: "a=150 b=150 c=!down", past: "150@20m", rate: "150"},
	} {
		cfg := Config{Coins: []string{"monero"}, Floor: test.floor, Ceiling: test.ceiling}
		cfg.fill()
		before := coinState{}
		if test.past != "" {
			before.past = accepted(t, test.past)
		}
		got := judge("monero", said(t, test.quotes), before, noon, cfg)
		if got.why == nil && got.last.USD.String() != test.rate || got.why != nil &&
			(test.rate != "" || !strings.Contains(got.why.Error(), "all 3 sources must agree")) {
			t.Errorf("%s: rate %s, %v; want %q", name, got.last.USD, got.why, test.rate)
		}
	}
}

func TestJudge_OneTick(t *testing.T) {
	floor := func(text string) func(*Config) {
		return func(c *Config) { c.Floor = map[string]card.Decimal{"monero": usd(t, text)} }
	}
	ceiling := func(text string) func(*Config) {
		return func(c *Config) { c.Ceiling = map[string]card.Decimal{"monero": usd(t, text)} }
	}
	for name, test := range map[string]struct {
		quotes string
		config func(*Config)
		rate   string // "" for none
		source string
		age    time.Duration
		why    string // substring of the reason
	}{
		"quorum of one": {quotes: "a=150", config: func(c *Config) {
			c.Quorum = 1
		}, rate: "150", source: "median a=150"},
		"two: the mean": {quotes: "a=150 b=151", rate: "150.5", source: "median a=150 b=151"},
		"the mean is rounded down": {quotes: "a=150.00000001 b=150.00000002", rate: "150.00000001",
			source: "median a=150.00000001 b=150.00000002"},
		"three: the middle one": {quotes: "b=150 c=151 a=152", rate: "151",
			source: "median a=152 b=150 c=151"},
		"four: the mean of the middle ones": {quotes: "a=149 b=150 c=151 d=152", rate: "150.5",
			source: "median a=149 b=150 c=151 d=152"},
		"all the same": {quotes: "a=150 b=150 c=150", rate: "150",
			source: "median a=150 b=150 c=150"},
		"no quotes": {quotes: "", why: "0 of 0 sources can be used, and 2 are needed"},
		"failures are named": {quotes: "b=!no-route a=150 c=!down",
			why: "1 of 3 sources can be used, and 2 are needed: b: no-route; c: down"},
		"a failure leaves a quorum": {quotes: "a=150 b=!down c=151", rate: "150.5", source: "median a=150 c=151"},
		"exactly the maximum age": {quotes: "a=150@-5m b=150", rate: "150", source: "median a=150 b=150",
			age: 5 * time.Minute},
		"too old":                              {quotes: "a=150@-5m1s b=150", why: "a: quote is 5m1s old, more than 5m0s"},
		"a day old":                            {quotes: "a=150@-24h b=150@-24h c=150", why: "1 of 3"},
		"exactly the maximum ahead":            {quotes: "a=150@30s b=150", rate: "150", source: "median a=150 b=150"},
		"all ahead: never taken in the future": {quotes: "a=150@20s b=150@10s", rate: "150", source: "median a=150 b=150"},
		"too far ahead": {quotes: "a=150@31s b=150",
			why: "a: quote is from 31s in the future, more than 30s"},
		"oldest used quote": {quotes: "a=150@-1m b=150@-2m c=150@-3s", rate: "150",
			source: "median a=150 b=150 c=150", age: 2 * time.Minute},
		"age of a dropped quote ignored": {quotes: "a=150@-1m b=150 c=200@-4m", rate: "150",
			source: "median a=150 b=150", age: time.Minute},
		"exactly the maximum spread": {quotes: "a=100 b=100 c=103", rate: "100",
			source: "median a=100 b=100 c=103"},
		"one unit farther": {quotes: "a=100 b=100 c=103.00000001", rate: "100",
			source: "median a=100 b=100"},
		"one unit farther, below": {quotes: "a=100 b=100 c=96.99999999", rate: "100",
			source: "median a=100 b=100"},
		"two that disagree": {quotes: "a=100 b=110",
			why: "a: quote 100 is more than 3 percent from the median 105; b: quote 110 is"},
		"two camps: none wins": {quotes: "a=90 b=90 c=110 d=110", why: "0 of 4"},
		"three that disagree":  {quotes: "a=100 b=120 c=140", why: "1 of 3"},
		"below the floor": {quotes: "a=99 b=99.99999999", config: floor("100"),
			why: "99.49999999 is below the floor of 100 (median a=99 b=99.99999999)"},
		"on the floor": {quotes: "a=100 b=100", config: floor("100"), rate: "100",
			source: "median a=100 b=100"},
		"above the ceiling": {quotes: "a=100.00000001 b=101", config: ceiling("100"),
			why: "100.5 is above the ceiling of 100 (median a=100.00000001 b=101)"},
		"on the ceiling": {quotes: "a=100 b=100", config: ceiling("100"), rate: "100",
			source: "median a=100 b=100"},
		"another coin's ceiling": {quotes: "a=100 b=100", config: func(c *Config) {
			c.Ceiling = map[string]card.Decimal{"bitcoin": usd(t, "1")}
		}, rate: "100", source: "median a=100 b=100"},
		"the minimum":       {quotes: "a=0.01 b=0.01", rate: "0.01", source: "median a=0.01 b=0.01"},
		"below the minimum": {quotes: "a=0.00999999 b=1 c=1", rate: "1", source: "median b=1 c=1"},
		"the maximum": {quotes: "a=100000000 b=100000000", rate: "100000000",
			source: "median a=100000000 b=100000000"},
		"above the maximum": {quotes: "a=100000000.00000001 b=100000000.00000001",
			why: "0 of 2 sources can be used, and 2 are needed: a: quote is not"},
		"zero": {quotes: "a=0 b=0 c=1", why: "1 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge("monero", said(t, test.quotes), coinState{}, noon, config(test.config))
			if test.why != "" {
				if got.why == nil || !strings.Contains(got.why.Error(), test.why) || got.last != (card.Rate{}) {
					t.Errorf("got %+v, want no rate because %q", got, test.why)
				}
				return
			}
			want := card.Rate{USD: usd(t, test.rate), At: noon.Add(-test.age), Source: test.source}
			if diff := cmp.Diff(want, got.last); diff != "" || got.why != nil || got.withdrawn {
				t.Errorf("%v, withdrawn %t (-want +got)\n%s", got.why, got.withdrawn, diff)
			}
		})
	}
}

func TestJudge_InvalidQuotes_Dropped(t *testing.T) {
	good := Quote{USD: usd(t, "150"), At: noon}
	for name, bad := range map[string]Quote{
		"nothing":        {},
		"no time":        {USD: good.USD},
		"negative":       {USD: card.Decimal{Units: -1, Scale: card.RateScale}, At: noon},
		"other scale":    {USD: card.Decimal{Units: 150, Scale: 0}, At: noon},
		"overflow":       {USD: card.Decimal{Units: 1<<63 - 1, Scale: card.RateScale}, At: noon},
		"year 9999":      {USD: good.USD, At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"milliseconds":   {USD: good.USD, At: time.Unix(noon.UnixMilli(), 0)},
		"end of time":    {USD: good.USD, At: time.Unix(1<<63-1, 0)},
		"start of time":  {USD: good.USD, At: time.Unix(-1<<63, 0)},
		"quote and fail": {USD: good.USD, At: noon, Err: errors.New("failed")},
	} {
		got := judge("monero", []quoted{{"a", bad}, {"b", good}}, coinState{}, noon, config(nil))
		if got.why == nil || got.last != (card.Rate{}) {
			t.Errorf("%s was used: %+v", name, got)
		}
	}
}

func TestJudge_TickAfterTick(t *testing.T) {
	type tick struct {
		quotes string
		want   string // the valid rate, "withdrawn" or "none"
		why    string // substring of the reason
	}
	const held = "is held until seen 3 times (now "
	for name, ticks := range map[string][]tick{
		"exactly the maximum jump is not held": {{"a=100 b=100", "100", ""}, {"a=115 b=115", "115", ""},
			{"a=97.75 b=97.75", "97.75", ""}},
		"a confirmed rise is accepted, and the old rate stays valid until then": {{"a=100 b=100", "100", ""},
			{"a=115.00000001 b=115.00000001", "100", held + "1"}, {"a=116 b=116", "100", held + "2"},
			{"a=117 b=117", "117", ""}},
		"a confirmed fall is accepted, and the old rate is withdrawn until then": {{"a=100 b=100", "100", ""},
			{"a=84.99999999 b=84.99999999", "withdrawn", held + "1"}, {"a=84 b=84", "withdrawn", held + "2"},
			{"a=84 b=84", "84", ""}},
		"spike": {{"a=100 b=100", "100", ""}, {"a=200 b=200", "100", held + "1"}, {"a=101 b=101", "101", ""},
			{"a=200 b=200", "101", held + "1"}},
		"dip": {{"a=100 b=100", "100", ""}, {"a=10 b=10", "withdrawn", held + "1"}, {"a=101 b=101", "101", ""}},
		"moving jump restarts the hold": {{"a=100 b=100", "100", ""}, {"a=120 b=120", "100", held + "1"},
			{"a=125 b=125", "100", held + "1"},
			{"a=126 b=126", "100", held + "2"}, {"a=127 b=127", "127", ""}},
		"a jump that creeps starts again: all must be close, not only neighbors": {{"a=100 b=100", "100", ""},
			{"a=120 b=120", "100", held + "1"},
			{"a=123 b=123", "100", held + "2"}, {"a=126 b=126", "100", held + "1"}},
		"opposite jump restarts the hold": {{"a=100 b=100", "100", ""}, {"a=120 b=120", "100", held + "1"},
			{"a=80 b=80", "withdrawn", held + "1"},
			{"a=120 b=120", "withdrawn", held + "1"}},
		"Ticks without a quorum are not consecutive": {{"a=100 b=100", "100", ""}, {"a=200 b=200", "100", held + "1"},
			{"a=200 b=200", "100", held + "2"},
			{"a=200 b=!down", "100", "1 of 2"}, {"a=200 b=200", "100", held + "1"}},
		"no quorum keeps the old rate": {{"a=100 b=100", "100", ""}, {"a=!down b=!down", "100", "0 of 2"},
			{"a=101 b=101", "101", ""}},
		"no quorum keeps a withdrawn rate withdrawn": {{"a=100 b=100", "100", ""}, {"a=50 b=50", "withdrawn", held},
			{"a=!down b=50", "withdrawn", "1 of 2"}},
		"below the floor the old rate is withdrawn": {{"a=100 b=100", "100", ""},
			{"a=89 b=89", "withdrawn", "below the floor of 90"}, {"a=91 b=91", "91", ""}},
		"floor is never lifted": {{"a=100 b=100", "100", ""}, {"a=50 b=50", "withdrawn", "floor"},
			{"a=50 b=50", "withdrawn", "floor"}, {"a=50 b=50", "withdrawn", "floor"}, {"a=50 b=50", "withdrawn", "floor"}},
		"above the ceiling the old rate is withdrawn": {{"a=100 b=100", "100", ""},
			{"a=111 b=111", "withdrawn", "above the ceiling of 110"}, {"a=109 b=109", "109", ""}},
		"ceiling is never lifted": {{"a=100 b=100", "100", ""},
			{"a=111 b=111", "withdrawn", "ceiling"}, {"a=111 b=111", "withdrawn", "ceiling"},
			{"a=111 b=111", "withdrawn", "ceiling"}, {"a=111 b=111", "withdrawn", "ceiling"}},
		"a jump is measured from the last accepted rate": {{"a=100 b=100", "100", ""}, {"a=110 b=110", "110", ""},
			{"a=120 b=120", "120", ""}, {"a=130 b=130", "130", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(func(c *Config) {
				if strings.Contains(name, "floor") {
					c.Floor = map[string]card.Decimal{"monero": usd(t, "90")}
				}
				if strings.Contains(name, "ceiling") {
					c.Ceiling = map[string]card.Decimal{"monero": usd(t, "110")}
				}
			})
			var s coinState
			for i, tick := range ticks {
				s = judge("monero", said(t, tick.quotes), s, noon, cfg)
				got := s.last.USD.String()
				if s.withdrawn {
					got = "withdrawn"
				}
				if got != tick.want || (s.why == nil) != (tick.why == "") || s.why != nil &&
					!strings.Contains(s.why.Error(), tick.why) {
					t.Fatalf("Tick %d: %s because %v; want %s because %q", i, got, s.why, tick.want, tick.why)
				}
			}
		})
	}
}

// Sources that keep agreeing on ten times the price must not be trusted.
func TestJudge_TooFarFromAccepted_Parked(t *testing.T) {
	type tick struct {
		after  time.Duration // since the previous Tick
		quotes string
		want   string // the valid rate, "withdrawn" or "parked"
		why    string // substring of the reason
	}
	const m = time.Minute
	const held = "is held until seen 3 times (now "
	for name, ticks := range map[string][]tick{
		"ten times the price, repeatedly": {{0, "a=150 b=150", "150", ""},
			{m, "a=1500 b=1500", "150", held + "1"}, {m, "a=1500 b=1500", "150", held + "2"},
			{m, "a=1500 b=1500", "parked",
				"1500 is more than 30 percent from 150, accepted 2026-11-20T12:00:00Z (median a=1500 b=1500): no card is sold"},
			{m, "a=1501 b=1501", "parked", "1501 is more than"}, {48 * time.Hour, "a=1500 b=1500", "parked", ErrParked.Error()}},
		"a tenth of the price": {{0, "a=150 b=150", "150", ""}, {m, "a=15 b=15", "withdrawn", held + "1"},
			{m, "a=15 b=15", "withdrawn", held + "2"},
			{m, "a=15 b=15", "parked", "15 is more than 30 percent from 150"}},
		"exactly the maximum move": {{0, "a=100 b=100", "100", ""}, {m, "a=130 b=130", "100", held + "1"},
			{m, "a=130 b=130", "100", held + "2"}, {m, "a=130 b=130", "130", ""}},
		"one unit more": {{0, "a=100 b=100", "100", ""}, {m, "a=130.00000001 b=130.00000001", "100", held + "1"},
			{m, "a=130.00000001 b=130.00000001", "100", held + "2"},
			{m, "a=130.00000001 b=130.00000001", "parked", "130.00000001 is more than 30 percent from 100"}},
		"in steps below a jump": {{0, "a=100 b=100", "100", ""}, {m, "a=114 b=114", "114", ""},
			{m, "a=129 b=129", "129", ""},
			{m, "a=140 b=140", "129", "140 is more than 30 percent from 100, accepted 2026-11-20T12:00:00Z, and " + held + "1"},
			{m, "a=139 b=139", "129", held + "2"},
			{m, "a=140 b=140", "parked", "140 is more than 30 percent from 100"}},
		"there and back": {{0, "a=100 b=100", "100", ""}, {m, "a=114 b=114", "114", ""}, {m, "a=129 b=129", "129", ""},
			{m, "a=115 b=115", "115", ""},
			{m, "a=100 b=100", "100", ""}, {m, "a=88 b=88", "withdrawn", "88 is more than 30 percent from 129"}},
		"a rate older than an hour does not limit": {{0, "a=100 b=100", "100", ""},
			{m, "a=114 b=114", "114", ""}, {time.Hour, "a=129 b=129", "129", ""},
			{m, "a=140 b=140", "140", ""}},
		"the last rate limits at any age": {{0, "a=100 b=100", "100", ""},
			{48 * time.Hour, "a=140 b=140", "100", held + "1"}, {m, "a=140 b=140", "100", held + "2"},
			{m, "a=140 b=140", "parked", "140 is more than 30 percent from 100"}},
		"a rising price is parked": {{0, "a=100 b=100", "100", ""}, {m, "a=200 b=200", "100", held + "1"},
			{m, "a=220 b=220", "100", held + "1"},
			{m, "a=250 b=250", "parked", "250 is more"}},
		"back to the accepted rate": {{0, "a=100 b=100", "100", ""}, {m, "a=200 b=200", "100", held + "1"},
			{m, "a=200 b=200", "100", held + "2"}, {m, "a=200 b=200", "parked", ""},
			{m, "a=101 b=101", "101", ""}},
		"back within the limit, by a jump": {{0, "a=100 b=100", "100", ""}, {m, "a=200 b=200", "100", held + "1"},
			{m, "a=200 b=200", "100", held + "2"}, {m, "a=200 b=200", "parked", ""},
			{m, "a=120 b=120", "withdrawn", held + "1"}, {m, "a=120 b=120", "withdrawn", held + "2"},
			{m, "a=120 b=120", "120", ""}},
		"parked without a quorum": {{0, "a=100 b=100", "100", ""}, {m, "a=200 b=200", "100", held + "1"},
			{m, "a=200 b=200", "100", held + "2"}, {m, "a=200 b=200", "parked", ""},
			{m, "a=200 b=!down", "parked", ErrParked.Error() + "; since then: 1 of 2"},
			{m, "a=201 b=201", "parked", "201 is more"}},
	} {
		t.Run(name, func(t *testing.T) {
			var s coinState
			now := noon
			for i, tick := range ticks {
				now = now.Add(tick.after)
				quotes := said(t, tick.quotes)
				for i := range quotes {
					quotes[i].At = now
				}
				s = judge("monero", quotes, s, now, config(nil))
				got := s.last.USD.String()
				switch {
				case s.parked != nil && s.withdrawn && errors.Is(s.why, ErrParked):
					got = "parked"
				case s.parked != nil || errors.Is(s.why, ErrParked):
					t.Fatalf("Tick %d: half parked: %+v", i, s)
				case s.withdrawn:
					got = "withdrawn"
				}
				accepted := tick.want != "parked" && tick.want != "withdrawn" && tick.why == ""
				if got != tick.want || (s.why == nil) != accepted || s.why != nil && !strings.Contains(s.why.Error(), tick.why) {
					t.Fatalf("Tick %d: %s because %v; want %s because %q", i, got, s.why, tick.want, tick.why)
				}
			}
		})
	}
}

// Each element is "USD@ago", or "USD@ago!" if an operator accepted it.
func accepted(t testing.TB, texts string) (p past) {
	t.Helper()
	for field := range strings.FieldsSeq(texts) {
		price, ago, _ := strings.Cut(field, "@")
		ago, byOperator := strings.CutSuffix(ago, "!")
		d, err := time.ParseDuration(ago)
		if err != nil {
			t.Fatal(err)
		}
		r := card.AcceptedRate{Currency: "monero", USD: usd(t, price), At: noon.Add(-d)}
		if byOperator {
			r.Note = "I looked"
		}
		p = append(p, r)
	}
	return p
}

func TestJudge_StoredRates_Compared(t *testing.T) {
	for name, test := range map[string]struct {
		past   string
		quote  string
		parked bool
		held   bool
	}{
		"no earlier rate":                     {"", "1500", false, false},
		"the same":                            {"150@1m", "150", false, false},
		"a jump, after a restart":             {"150@1m", "180", false, true},
		"a jump, after a week":                {"150@168h", "180", false, true},
		"ten times":                           {"150@1m", "1500", true, true},
		"ten times, after a week":             {"150@168h", "1500", true, true},
		"accepted by another process":         {"150@50m 120@40m 150@1m", "157", true, true},
		"exactly an hour ago":                 {"100@1h 125@1m", "135", true, true},
		"more than an hour ago":               {"100@60m1s 125@1m", "135", false, false},
		"an operator accepted it":             {"150@1h 150@2m 1500@1m!", "1500", false, false},
		"an operator accepted a similar rate": {"150@1h 150@2m 1500@1m!", "1600", false, false},
		"an operator accepted another rate":   {"150@1h 150@2m 1500@1m!", "150", true, true},
		"rate after an acceptance":            {"150@1h 1500@30m! 1400@20m 1700@10m", "1300", false, true},
		"acceptance within the hour":          {"150@2h 1500@30m! 1700@10m", "1025", true, true},
		"old acceptance":                      {"150@3h 1500@2h! 1700@1m", "1600", false, false},
		"old acceptance is the last rate":     {"150@3h 1500@2h!", "1500", false, false},
		"accepted by a fast clock":            {"150@-1m", "1500", true, true},
	} {
		cfg := config(func(c *Config) { c.HoldTicks = 2 })
		quotes := said(t, "a="+test.quote+" b="+test.quote)
		before := coinState{past: accepted(t, test.past)}
		first := judge("monero", quotes, before, noon, cfg)
		second := judge("monero", quotes, first, noon, cfg)
		if held := first.why != nil; held != test.held {
			t.Errorf("%s: held %t because %v", name, held, first.why)
		}
		if parked := second.parked != nil; parked != test.parked || !parked && second.why != nil {
			t.Errorf("%s: parked %t because %v", name, parked, second.why)
		}
	}
}

// A rate that another process accepted may be far from this process's valid
// rate. The valid rate is withdrawn only if the market is below it.
func TestJudge_Held_WithdrawnOnlyIfMarketIsBelow(t *testing.T) {
	for quote, withdrawn := range map[string]bool{"151": false, "150": false, "149.99999999": true} {
		before := coinState{past: accepted(t, "100@40m 150@20m"), last: card.Rate{USD: usd(t, "150"), At: noon}}
		after := judge("monero", said(t, "a="+quote+" b="+quote), before, noon, config(nil))
		if after.why == nil || after.withdrawn != withdrawn {
			t.Errorf("%s after 150: withdrawn %t, held because %v", quote, after.withdrawn, after.why)
		}
	}
}

func TestJudge_BookUnread_NothingAccepted(t *testing.T) {
	before := coinState{unread: errors.New("database unreachable")}
	after := judge("monero", said(t, "a=150 b=150"), before, noon, config(nil))
	if after.why == nil || !strings.Contains(after.why.Error(), "database unreachable") || after.last != (card.Rate{}) ||
		len(after.past) > 0 || after.unread == nil {
		t.Errorf("%+v", after)
	}
}

func TestPast_Recent(t *testing.T) {
	s := coinState{}
	var now time.Time
	for i := range 500 {
		now = noon.Add(time.Duration(i) * 10 * time.Second)
		quotes := said(t, fmt.Sprintf("a=%d b=%[1]d", 150+i%2))
		quotes[0].At, quotes[1].At = now, now
		s = judge("monero", quotes, s, now, config(nil))
		if s.why != nil {
			t.Fatal(s.why)
		}
	}
	if n := len(s.past); n < 360 || n > 362 {
		t.Errorf("%d rates of the last hour are kept", n)
	}
	same := past{}
	for i := range 500 {
		same = same.with(card.AcceptedRate{USD: usd(t, "150"), At: noon.Add(time.Duration(i) * time.Second)})
	}
	if len(same) != 9 {
		t.Errorf("an unchanged rate is kept %d times in 500 seconds", len(same))
	}
	if again := same[:1].with(card.AcceptedRate{USD: usd(t, "150"), At: noon.Add(time.Minute)}); len(again) != 2 {
		t.Error("an unchanged rate is not kept after a minute")
	}
}

// Rates that are not stored yet are merged with those from the book, each once
// and oldest first.
func TestPast_Merge(t *testing.T) {
	row := func(id byte) card.AcceptedRate {
		return card.AcceptedRate{ID: uuid.UUID{id}, At: noon.Add(time.Duration(id) * time.Minute)}
	}
	one, two, three := row(1), row(2), row(3)
	for name, tt := range map[string]struct{ stored, others, want past }{
		"nothing is stored":   {nil, past{one}, past{one}},
		"nothing is unstored": {past{one}, nil, past{one}},
		"another":             {past{one}, past{two}, past{one, two}},
		"the same":            {past{one}, past{one}, past{one}},
		"an older one":        {past{one, three}, past{two, three}, past{one, two, three}},
	} {
		if diff := cmp.Diff(tt.want, tt.stored.merge(tt.others)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestJudge_JumpFromOldRate_IsHeld(t *testing.T) {
	before := judge("monero", said(t, "a=100 b=100"), coinState{}, noon, config(nil))
	quotes := said(t, "a=120@48h b=120@48h")
	if after := judge("monero", quotes, before, noon.Add(48*time.Hour), config(nil)); after.held.ticks != 1 ||
		after.why == nil {
		t.Errorf("%+v", after)
	}
	once := config(func(c *Config) { c.HoldTicks = 1 })
	if after := judge("monero", quotes, before, noon.Add(48*time.Hour), once); after.why != nil ||
		after.last.USD.String() != "120" {
		t.Errorf("held with HoldTicks of 1: %+v", after)
	}
}

func TestJudge_Reasons_AreBounded(t *testing.T) {
	got := judge("monero", []quoted{{"a", Quote{Err: errors.New(strings.Repeat("é", 10_000) + "\xff")}}}, coinState{},
		noon, config(nil))
	if len(got.why.Error()) > 300 {
		t.Errorf("%d bytes", len(got.why.Error()))
	}
	for length, want := range map[int]string{200: "a: " + strings.Repeat("x", 200),
		201: "a: " + strings.Repeat("x", 200) + "..."} {
		if got := (dropped{"a", errors.New(strings.Repeat("x", length))}).String(); got != want {
			t.Errorf("%d letters become %q", length, got)
		}
	}
}

// For any quotes, an accepted rate lies between the smallest and the largest
// used quote. At least a quorum of fresh quotes is used, none is far from the
// median, and the input is unchanged.
func TestJudge_AcceptedRate_IsBetweenUsedQuotes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 50_000 {
		cfg := config(func(c *Config) {
			c.Quorum = 1 + random.IntN(3)
			c.MaxSpread = card.Decimal{Units: 1 + random.Int64N(100_000), Scale: 4}
		})
		quotes := make([]quoted, random.IntN(7))
		base := 1 + random.Int64N(10_000_000_000_000_000)
		for i := range quotes {
			q := Quote{USD: card.Decimal{Units: base + random.Int64N(base/10+1), Scale: card.RateScale},
				At: noon.Add(time.Duration(random.IntN(700)-600) * time.Second)}
			if random.IntN(8) == 0 {
				q = Quote{Err: errors.New("down")}
			}
			quotes[i] = quoted{fmt.Sprint("source", random.IntN(100), "-", i), q}
		}
		given := slices.Clone(quotes)
		got := judge("monero", quotes, coinState{}, noon, cfg)
		if !slices.Equal(given, quotes) {
			t.Fatal("the quotes were changed")
		}
		if got.why != nil {
			continue
		}
		accepted++
		used := strings.Fields(strings.TrimPrefix(got.last.Source, "median "))
		least, most, oldest := int64(1<<63-1), int64(0), noon
		for _, q := range quotes {
			if slices.Contains(used, q.source+"="+q.USD.String()) {
				least, most = min(least, q.USD.Units), max(most, q.USD.Units)
				if q.At.Before(oldest) {
					oldest = q.At
				}
			}
		}
		switch rate := got.last; {
		case len(used) < cfg.Quorum, len(used)+len(got.dropped) != len(quotes), !slices.IsSorted(used):
			t.Fatalf("used %v of %v", used, quotes)
		case rate.USD.Units < least || rate.USD.Units > most:
			t.Fatalf("%s is not between %v", rate.USD, used)
		case !rate.At.Equal(oldest) || noon.Sub(rate.At) > cfg.MaxAge:
			t.Fatalf("rate is of %s, the oldest used quote of %s", rate.At, oldest)
		}
	}
	if accepted < 5000 {
		t.Errorf("only %d rates were accepted: the test proves little", accepted)
	}
}

func FuzzFarther_AgreesWithFractions(f *testing.F) {
	f.Add(int64(103), int64(100), int64(3), uint8(0))
	f.Add(int64(1<<62), int64(1), int64(1_000_000), uint8(4))
	f.Fuzz(func(t *testing.T, value, reference, units int64, scale uint8) {
		if reference < 0 || value < 0 || units < 0 || scale > percentScale {
			return
		}
		percent := card.Decimal{Units: units, Scale: int(scale)}
		limit := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(reference), big.NewInt(units)), hundred(int(scale)))
		distance := new(big.Rat).Abs(new(big.Rat).SetInt(new(big.Int).Sub(big.NewInt(value), big.NewInt(reference))))
		if want := distance.Cmp(limit) > 0; farther(value, reference, percent) != want {
			t.Errorf("farther(%d, %d, %s) is not %t", value, reference, percent, want)
		}
	})
}
