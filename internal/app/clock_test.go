package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/clock"
	"github.com/cardmint/cardmint/internal/settle"
)

// clockOf is a database's clock.
type clockOf func() (time.Time, error)

func (c clockOf) Clock(context.Context) (time.Time, error) { return c() }

func TestClockCheck_MachineTwoHoursBehind_IsNotReady(t *testing.T) {
	actual := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		database time.Time
		rates    map[string]time.Duration // by how much the machine's is ahead
		tip      time.Time
		want     card.Unready
	}{
		"a database elsewhere": {database: actual,
			want: "the clocks of this machine and of the database differ by 2h0m0s"},
		"a database here, rate sources": {database: actual.Add(-2 * time.Hour),
			rates: map[string]time.Duration{"a": -2 * time.Hour, "b": -2 * time.Hour},
			want:  "this machine's clock is 2h0m0s behind"},
		"a database here, a source, a tip": {database: actual.Add(-2 * time.Hour),
			rates: map[string]time.Duration{"a": -2 * time.Hour}, tip: actual.Add(-time.Minute),
			want: "this machine's clock is 2h0m0s behind"},
		"a database here, a tip": {database: actual.Add(-2 * time.Hour), tip: actual.Add(-time.Minute)},
		"nothing else":           {database: actual.Add(-2 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			var exported map[string]time.Duration
			isWrong := false
			c := &clockCheck{watch: clock.New(time.Now), now: func() time.Time { return actual.Add(-2 * time.Hour) },
				db:    clockOf(func() (time.Time, error) { return tt.database, nil }),
				rates: func(time.Duration) map[string]time.Duration { return tt.rates },
				export: func(ahead map[string]time.Duration, wrong bool) {
					exported, isWrong = ahead, wrong
				}}
			c.block("monero", settle.Report{Applied: !tt.tip.IsZero(), Tip: card.Tip{Time: tt.tip}})
			if err := c.tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			why, _ := errors.AsType[card.Unready](c.health())
			if why != tt.want || isWrong != (tt.want != "") {
				t.Errorf("not ready because %q, wrong: %v; want %q", why, isWrong, tt.want)
			}
			if ahead := exported["database"]; ahead != actual.Add(-2*time.Hour).Sub(tt.database) {
				t.Errorf("exported %v", exported)
			}
		})
	}
}

func TestClockCheck_SlowOrMissingDatabase_ProvesNothing(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	away := errors.New("away")
	var fault error
	c := &clockCheck{watch: clock.New(time.Now), now: func() time.Time {
		return now
	}, export: func(map[string]time.Duration, bool) {}}
	c.db = clockOf(func() (time.Time, error) {
		now = now.Add(maxClockRead + time.Second)
		return now.Add(-time.Hour), fault
	})
	if err := c.tick(t.Context()); err != nil || c.health() != nil {
		t.Errorf("slow: error %v, health %v", err, c.health())
	}
	fault = away
	if err := c.tick(t.Context()); !errors.Is(err, away) || c.health() != nil {
		t.Errorf("away: error %v, health %v", err, c.health())
	}
}
