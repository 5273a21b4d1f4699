package issue_test

import (
	"context"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/issue"
)

func TestThrottle_Busy_PausesAsRequested(t *testing.T) {
	for name, tt := range map[string]struct{ answer, waits time.Duration }{
		"a minute":    {time.Minute, time.Minute},
		"unspecified": {0, 5 * time.Second},
		"too short":   {time.Millisecond, time.Second},
		"too long":    {24 * time.Hour, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				r.with = func(c *issue.Config) { c.Routes[0].Concurrency = 1 }
				r.start()
				cards := r.manyPaid(5)
				r.supplier.submit = answering(issue.Answer{}, &issue.BusyError{After: tt.answer})
				r.issue(5)
				r.wantCalls("submit") // the other cards are not requested
				for _, c := range cards {
					if i := r.want(c, issue.StateOpen, "", r.reason(c)); i.FirstAskedAt != nil {
						t.Errorf("asked since %s", i.FirstAskedAt)
					}
					r.wantWait(c, tt.waits, tt.waits+time.Second)
				}
				r.supplier.submit = nil
				r.due()
				r.clock.pass(tt.waits - 1)
				r.issue(0)
				r.clock.pass(1)
				r.issue(5)
				for _, c := range cards {
					r.wantCard(c)
				}
			})
		})
	}
}

// A request that was sent before the supplier was busy is looked up later: a
// BusyError is no answer to it.
func TestThrottle_Busy_EarlierRequestsLookedUp(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			_, _ = r.supplier.make(ctx, q)
			return issue.Answer{}, errFault
		}
		r.issue(1)
		first := r.want(c, issue.StateOpen, "unknown", unclear).FirstAskedAt
		r.supplier.lookup = answering(issue.Answer{}, &issue.BusyError{})
		r.due()
		r.issue(1)
		if i := r.want(c, issue.StateOpen, "unknown", "the supplier is busy"); i.FirstAskedAt == nil ||
			!i.FirstAskedAt.Equal(*first) {
			t.Errorf("asked since %v, want %s", i.FirstAskedAt, first)
		}
		r.supplier.lookup = nil
		r.clock.pass(time.Minute)
		r.due()
		r.issue(1)
		r.wantCalls("submit", "look up", "look up")
		r.wantCard(c)
	})
}

// Busy answers, however many, do not count as unclear.
func TestThrottle_Busy_IsNotUnclear(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.manyPaid(2)
		r.supplier.submit = answering(issue.Answer{}, &issue.BusyError{After: time.Second})
		for range 40 {
			r.issue(2)
			r.clock.pass(time.Second)
			r.due()
		}
		r.supplier.submit = nil
		r.issue(2) // both cards, not a single probe
	})
}

func TestThrottle_NoAnswers_PausesAndProbes(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(64)
		r.supplier.submit, r.supplier.lookup = hangs, hangs
		r.issue(16)
		r.issue(32) // the second batch is larger, and stops early
		r.supplier.mu.Lock()
		asked := len(r.supplier.calls)
		r.supplier.mu.Unlock()
		if asked < 32 || asked > 32+16 {
			t.Errorf("asked %d times", asked)
		}
		r.due()
		r.issue(0)
		// Requests that were in flight when the pause began do not extend it.
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
			16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
			r.supplier.calls = nil
			r.clock.pass(pause - 1)
			r.issue(0)
			r.clock.pass(1)
			r.issue(1)
			if len(r.supplier.calls) != 1 {
				t.Errorf("after %s: asked %d times", pause, len(r.supplier.calls))
			}
			r.due()
			r.issue(0)
		}
		r.supplier.submit, r.supplier.lookup = nil, nil
		r.clock.pass(time.Minute)
		r.issue(1)
		for range 10 { // the supplier answers again
			if n, err := r.issuer.IssueDue(t.Context()); n == 0 || err != nil {
				check(t, err)
				break
			}
		}
		for _, c := range cards {
			r.wantCard(c)
		}
	})
}

// Any clear answer resets the count of unclear ones.
func TestThrottle_ClearAnswer_ResetsCount(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.with = func(c *issue.Config) { c.Routes[0].Concurrency = 1 }
		r.start()
		n := 0
		r.supplier.submit = func(context.Context, issue.Request) (issue.Answer, error) {
			if n++; n%31 == 0 {
				return issue.Answer{Outcome: issue.Declined, Reason: outOfStock}, nil
			}
			return issue.Answer{}, errFault
		}
		r.manyPaid(100)
		for left := 100; left > 0; {
			some, err := r.issuer.IssueDue(t.Context())
			if check(t, err); some == 0 {
				t.Fatalf("paused with %d cards still due", left)
			}
			left -= some
		}
	})
}

func TestThrottle_PerSecond_LimitsRequests(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.with = func(c *issue.Config) { c.Routes[0].PerSecond = 2.5 }
		r.start()
		r.manyPaid(12)
		r.issue(3) // the burst of the rate limit
		r.issue(0)
		r.clock.pass(400 * time.Millisecond)
		r.issue(1)
		r.clock.pass(399 * time.Millisecond)
		r.issue(0)
		r.clock.pass(time.Minute)
		r.issue(3)
		r.clock.pass(800 * time.Millisecond)
		r.issue(2)
		if len(r.supplier.calls) != 9 {
			t.Errorf("asked %d times", len(r.supplier.calls))
		}
	})
}
