package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// After 100 refusals in a second, a client gets 100 responses per second, each
// delayed by up to a second.
func TestTake_ManyRefusals_AreDelayed(t *testing.T) {
	bad, good := netip.MustParsePrefix("203.0.113.7/32"), uuid.New()
	token, account := uuid.New(), uuid.New()
	for name, refused := range map[string]func(t *testing.T, l *limit.Limiter) time.Duration{
		"a token": func(t *testing.T, l *limit.Limiter) time.Duration {
			v := l.Take(token, account, false)
			if v.Wait == 0 {
				t.Fatal("not refused")
			}
			return v.Delay
		},
		"an address": func(t *testing.T, l *limit.Limiter) time.Duration {
			wait, delay := l.Blocked(bad)
			if wait == 0 {
				t.Fatal("not refused")
			}
			return delay
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			l := limit.New(nil, limit.Config{Token: policy(t, "1/h"), Address: policy(t, "1/h"), Now: c.now})
			if v := l.Take(token, account, false); v.Wait != 0 || v.Delay != 0 {
				t.Fatalf("%+v", v)
			}
			l.Fail(bad)
			for n := range 100 {
				if delay := refused(t, l); delay != 0 {
					t.Fatalf("refusal %d was delayed by %s", n, delay)
				}
			}
			for n := range 100 {
				if delay, want := refused(t, l), time.Duration(n+1)*10*time.Millisecond; delay != want {
					t.Fatalf("refusal %d was delayed by %s, want %s", n, delay, want)
				}
			}
			for range 10_000 {
				if delay := refused(t, l); delay != time.Second {
					t.Fatalf("delayed by %s, want 1s", delay)
				}
			}
			c.advance(time.Second)
			if delay := refused(t, l); delay != 10*time.Millisecond {
				t.Errorf("a second later one was delayed by %s", delay)
			}
			c.advance(2 * time.Second)
			if delay := refused(t, l); delay != 0 {
				t.Errorf("the first one after a pause was delayed by %s", delay)
			}
			if v := l.Take(good, uuid.New(), false); v.Wait != 0 || v.Delay != 0 {
				t.Errorf("of another: %+v", v)
			}
			if wait, delay := l.Blocked(netip.MustParsePrefix("203.0.113.8/32")); wait != 0 || delay != 0 {
				t.Errorf("another address: %s, %s", wait, delay)
			}
		})
	}
}

// Refusals by the account's limit share one delay, whichever token sent the
// request.
func TestTake_RefusedByAccount_DelayIsShared(t *testing.T) {
	account := uuid.New()
	l := limit.New(nil, limit.Config{Token: policy(t, "100/h"), Account: policy(t, "1/h"), Now: newClock().now})
	l.Take(uuid.New(), account, false)
	for range 100 {
		l.Take(uuid.New(), account, false)
	}
	if v := l.Take(uuid.New(), account, false); v.Refused != limit.Account || v.Delay != 10*time.Millisecond {
		t.Errorf("%+v", v)
	}
}
