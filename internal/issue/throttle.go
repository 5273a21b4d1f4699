package issue

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	maxUnclear     = 32               // consecutive unclear answers before the first pause
	firstPause     = time.Second      // doubles with each further unclear answer
	longestPause   = time.Minute      // between two probes of a supplier that does not answer
	longestBusy    = 10 * time.Minute // however long the supplier asks for
	shortestBusy   = time.Second
	defaultBusyFor = 5 * time.Second // if the supplier gives no time
)

// throttle limits the rate of requests to a supplier, and pauses them while it
// is busy or does not answer.
type throttle struct {
	limit *rate.Limiter // nil for no limit

	mu      sync.Mutex
	unclear int       // consecutive unclear answers
	until   time.Time // end of the pause
	paused  bool      // since the last clear answer
}

func newThrottle(perSecond float64) *throttle {
	t := &throttle{}
	if perSecond > 0 {
		t.limit = rate.NewLimiter(rate.Limit(perSecond), int(max(1, math.Ceil(perSecond))))
	}
	return t
}

// allowance returns how many of n requests may be sent now.
func (t *throttle) allowance(n int, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.until) {
		return 0
	}
	if t.unclear >= maxUnclear {
		n = 1 // a probe
	}
	if t.limit != nil {
		n = min(n, int(t.limit.TokensAt(now)))
	}
	return n
}

// consume counts n requests toward the rate limit.
func (t *throttle) consume(n int, now time.Time) {
	if t.limit != nil {
		t.limit.AllowN(now, n)
	}
}

// remaining returns how long the pause still lasts; 0 if there is none.
func (t *throttle) remaining(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.until.Sub(now))
}

// record updates the throttle after a request. It reports whether the result
// began a pause, or ended one.
func (t *throttle) record(err error, now time.Time) (pauses, resumes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wasPaused := t.paused
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		wait := defaultBusyFor
		if busy.After > 0 {
			wait = min(max(busy.After, shortestBusy), longestBusy)
		}
		t.pause(now.Add(wait))
	case err == nil || errors.Is(err, errForgotten):
		t.unclear = 0
		t.paused = t.paused && now.Before(t.until) // sent before the pause began
	case errors.Is(err, context.Canceled): // by this process
	case now.Before(t.until): // sent before the pause began; one pause serves all such requests
	default:
		if t.unclear++; t.unclear >= maxUnclear {
			t.pause(now.Add(min(firstPause<<min(t.unclear-maxUnclear, 10), longestPause)))
		}
	}
	return t.paused && !wasPaused, wasPaused && !t.paused
}

// pause begins a pause, or extends the current one. It never shortens it.
func (t *throttle) pause(until time.Time) {
	t.paused = true
	if until.After(t.until) {
		t.until = until
	}
}
