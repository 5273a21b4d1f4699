package clock_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/clock"
)

func TestWatch_Wrong_NeedsWitnesses(t *testing.T) {
	type readings []clock.Reading
	database := func(ahead time.Duration) clock.Reading {
		return clock.Reading{Kind: clock.Database, Name: "database", Ahead: ahead}
	}
	server := func(name string, ahead time.Duration) clock.Reading {
		return clock.Reading{Kind: clock.Server, Name: name, Ahead: ahead}
	}
	block := func(ahead time.Duration) clock.Reading {
		return clock.Reading{Kind: clock.Block, Name: "monero block", Ahead: ahead}
	}
	const minute, hour = time.Minute, time.Hour
	for name, tt := range map[string]struct {
		seen readings
		want string
	}{
		"nothing is known": {nil, ""},
		"within the limit": {readings{database(2 * minute), server("a", -2*minute), server("b", -2*minute)}, ""},
		"a database": {readings{database(-3 * minute)},
			"the clocks of this machine and of the database differ by 3m0s"},
		"one server": {readings{server("a", -2*hour)}, ""},
		"two servers": {readings{database(0), server("a", -2*hour), server("b", -2*hour-minute)},
			"this machine's clock is 2h0m0s behind"},
		"two servers, ahead": {readings{server("a", 5*minute), server("b", 4*minute)},
			"this machine's clock is 4m0s ahead"},
		"two servers that contradict": {readings{server("a", hour), server("b", -hour)}, ""},
		"two of four servers":         {readings{server("a", hour), server("b", hour), server("c", 0), server("d", 0)}, ""},
		"two of three servers": {readings{server("a", hour), server("b", hour), server("c", 0)},
			"this machine's clock is 1h0m0s ahead"},
		"a block that is ahead": {readings{block(-2 * hour)}, ""},
		"a block too far ahead": {readings{block(-2*hour - 3*minute)},
			"this machine's clock is more than two hours behind the newest block"},
		"an old block": {readings{block(5 * hour)}, ""},
		"a server and a block": {readings{server("a", -2*hour), block(-2 * hour)},
			"this machine's clock is 2h0m0s behind"},
		"a server and an old block":    {readings{server("a", 2*hour), block(2 * hour)}, ""},
		"a good server and a bad time": {readings{server("a", 0), block(-hour)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
			w := clock.New(func() time.Time { return now })
			for _, r := range tt.seen {
				w.Record(r.Kind, r.Name, r.Ahead)
			}
			now = now.Add(5 * time.Minute)
			if got := w.Wrong(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			now = now.Add(time.Second)
			if got := w.Wrong(); got != "" || len(w.Readings()) != 0 {
				t.Errorf("old readings count: %q", got)
			}
		})
	}
}

func TestWatch_Wrong_UsesNewestReading(t *testing.T) {
	w := clock.New(time.Now)
	w.Record(clock.Database, "database", time.Hour)
	w.Record(clock.Database, "database", 0)
	if got := w.Wrong(); got != "" {
		t.Errorf("%q", got)
	}
}
