package limit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// clock is a manual clock.
type clock struct{ t time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 11, 20, 14, 46, 0, 0, time.UTC)} }
func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func policy(t testing.TB, text string) (p limit.Policy) {
	t.Helper()
	if err := p.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

// passed returns how many of n requests are admitted.
func passed(l *limit.Limiter, token, account uuid.UUID, creates bool, n int) (passed int) {
	for range n {
		if v := l.Take(token, account, creates); v.Wait == 0 {
			passed++
		}
	}
	return passed
}

func TestPolicy_UnmarshalText(t *testing.T) {
	for text, want := range map[string]limit.Policy{
		"off": {}, "0": {},
		"20/s":       {Quota: 20, Window: time.Second},
		"600/min":    {Quota: 600, Window: time.Minute},
		"1000/h":     {Quota: 1000, Window: time.Hour},
		"1000/10s":   {Quota: 1000, Window: 10 * time.Second},
		"1/24h":      {Quota: 1, Window: 24 * time.Hour},
		"1000000/1s": {Quota: 1_000_000, Window: time.Second},
	} {
		got := policy(t, text)
		if got != want || got.On() != (want.Quota > 0) {
			t.Errorf("%s: %+v", text, got)
		}
		if again := policy(t, got.String()); again != want {
			t.Errorf("%s is written as %s, which is %+v", text, got, again)
		}
	}
	for _, text := range []string{"", "on", "20", "/s", "20/", "-1/s", "0/s", "1.5/s", "1000001/s", "20/500ms",
		"20/1500ms", "20/25h", "20/-1s", "20/s ", "20/day", "9999999999999999999/s"} {
		p := limit.Policy{Quota: 7, Window: time.Second}
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		} else if p.Quota != 7 {
			t.Errorf("%q: an error changed the policy", text)
		}
	}
}

func TestTake_AdmitsBurstThenRate(t *testing.T) {
	c := newClock()
	for _, text := range []string{"20/s", "3/s", "700000/s", "7/min", "1/h"} {
		p := policy(t, text)
		l := limit.New(nil, limit.Config{Token: p, Now: c.now})
		token, account := uuid.New(), uuid.New()
		if got := passed(l, token, account, false, int(p.Quota)+10); got != int(p.Quota) {
			t.Errorf("%s: %d at once", text, got)
		}
		v := l.Take(token, account, false)
		if want := p.Window / time.Duration(p.Quota); v.Wait <= 0 || v.Wait > want {
			t.Errorf("%s: wait %v, want %v", text, v.Wait, want)
		}
		c.advance(v.Wait - 1)
		if l.Take(token, account, false).Wait != 1 {
			t.Errorf("%s: a request is admitted before Wait has passed", text)
		}
		c.advance(1)
		if got := passed(l, token, account, false, 2); got != 1 {
			t.Errorf("%s: %d pass after the wait", text, got)
		}
		c.advance(p.Window)
		if got := passed(l, token, account, false, int(p.Quota)+10); got < int(p.Quota)-1 || got > int(p.Quota) {
			t.Errorf("%s: %d pass after a window", text, got)
		}
	}
}

func TestTake_ReturnsStatusOfEachLimit(t *testing.T) {
	c := newClock()
	l := limit.New(nil,
		limit.Config{Token: policy(t, "4/s"), Account: policy(t, "5/10s"), Create: policy(t, "2/min"), Now: c.now})
	one, two, account := uuid.New(), uuid.New(), uuid.New()
	want := func(token uuid.UUID, creates bool, wait time.Duration, statuses ...limit.Status) {
		t.Helper()
		v := l.Take(token, account, creates)
		if v.Wait != wait {
			t.Errorf("wait %v, want %v", v.Wait, wait)
		}
		if diff := cmp.Diff(statuses, v.Statuses()); diff != "" {
			t.Error(diff)
		}
	}
	const token, all, create = limit.Token, limit.Account, limit.Create
	ms := time.Millisecond
	want(one, false, 0, limit.Status{token, 3, 250 * ms}, limit.Status{all, 4, 2 * time.Second})
	want(one, true, 0, limit.Status{token, 2, 250 * ms}, limit.Status{all, 3, 2 * time.Second},
		limit.Status{create, 1, 30 * time.Second})
	c.advance(100 * ms)
	want(two, true, 0, limit.Status{token, 3, 250 * ms}, limit.Status{all, 2, 1900 * ms},
		limit.Status{create, 0, 29900 * ms})
	// Refused, so charged to no limit.
	want(two, true, 29900*ms, limit.Status{token, 3, 250 * ms}, limit.Status{all, 2, 1900 * ms},
		limit.Status{create, 0, 29900 * ms})
	want(two, false, 0, limit.Status{token, 2, 250 * ms}, limit.Status{all, 1, 1900 * ms})
	want(one, false, 0, limit.Status{token, 1, 150 * ms}, limit.Status{all, 0, 1900 * ms})
	want(one, false, 1900*ms, limit.Status{token, 1, 150 * ms}, limit.Status{all, 0, 1900 * ms})
}

func TestTake_TokenOverItsLimit_ChargesNoOtherLimit(t *testing.T) {
	c := newClock()
	l := limit.New(nil, limit.Config{Token: policy(t, "10/s"), Account: policy(t, "15/s"), Now: c.now})
	loud, quiet, stranger, account := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	if got := passed(l, loud, account, false, 1000); got != 10 {
		t.Errorf("%d of the busy token", got)
	}
	if got := passed(l, quiet, account, false, 6); got != 5 {
		t.Errorf("%d of the account's other token", got)
	}
	if got := passed(l, stranger, uuid.New(), false, 10); got != 10 {
		t.Errorf("%d of another account", got)
	}
}

func TestTake_PolicyOff_LimitsNothing(t *testing.T) {
	c := newClock()
	l := limit.New(nil, limit.Config{Now: c.now})
	if got := passed(l, uuid.New(), uuid.New(), true, 10_000); got != 10_000 {
		t.Errorf("%d", got)
	}
	if v := l.Take(uuid.New(), uuid.New(), true); len(v.Statuses()) != 0 {
		t.Errorf("%+v", v.Statuses())
	}
	l = limit.New(nil, limit.Config{Create: policy(t, "1/s"), Now: c.now})
	if v := l.Take(uuid.New(), uuid.New(), false); len(v.Statuses()) != 0 {
		t.Errorf("%+v", v.Statuses())
	}
}

// A step of the wall clock must not lock clients out. Differences of time.Now use
// the monotonic clock.
func TestTake_UsesMonotonicClock(t *testing.T) {
	start := time.Now()
	now := start
	l := limit.New(nil, limit.Config{Token: policy(t, "1/s"), Now: func() time.Time { return now }})
	token := uuid.New()
	passed(l, token, token, false, 1)
	now = start.Add(time.Second)
	if passed(l, token, token, false, 1) != 1 {
		t.Error("refused")
	}
}
