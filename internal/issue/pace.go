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
	unclearInRow   = 32               // answers after which a supplier is left alone for a while
	firstPause     = time.Second      // doubles with each further unclear answer
	longestPause   = time.Minute      // between two probes of a supplier that does not answer
	longestBusy    = 10 * time.Minute // however long a supplier asks for
	shortestBusy   = time.Second
	defaultBusyFor = 5 * time.Second // if it does not say
)

// pace limits how fast a supplier is asked, and leaves one alone that is busy
// or ill: its cards wait, and nothing is tried in vain.
type pace struct {
	limit *rate.Limiter // nil for no limit

	mu      sync.Mutex
	unclear int       // answers in a row that were not clear
	until   time.Time // no request before
	paused  bool      // since the last clear answer
}

func newPace(perSecond float64) *pace {
	p := &pace{}
	if perSecond > 0 {
		p.limit = rate.NewLimiter(rate.Limit(perSecond), int(max(1, math.Ceil(perSecond))))
	}
	return p
}

// most returns how many of n cards may be asked for now.
func (p *pace) most(n int, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.until) {
		return 0
	}
	if p.unclear >= unclearInRow {
		n = 1 // to see whether it is well again
	}
	if p.limit != nil {
		n = min(n, int(p.limit.TokensAt(now)))
	}
	return n
}

// take notes that n cards are asked for.
func (p *pace) take(n int, now time.Time) {
	if p.limit != nil {
		p.limit.AllowN(now, n)
	}
}

// wait returns for how long the supplier is to be left alone.
func (p *pace) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.until.Sub(now))
}

// answered takes note of how a request ended. It reports whether the supplier
// is left alone from now on, and whether it no longer is.
func (p *pace) answered(err error, now time.Time) (pauses, resumes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.paused
	p.note(err, now)
	return p.paused && !was, was && !p.paused
}

func (p *pace) note(err error, now time.Time) {
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		wait := defaultBusyFor
		if busy.After > 0 {
			wait = min(max(busy.After, shortestBusy), longestBusy)
		}
		p.until, p.paused = later(p.until, now.Add(wait)), true
	case err == nil || errors.Is(err, errForgotten):
		p.unclear = 0
		p.paused = p.paused && now.Before(p.until) // it was under way when the pause began
	case errors.Is(err, context.Canceled): // by this process
	case now.Before(p.until): // it was under way when the pause began, which is long enough for all of them
	default:
		if p.unclear++; p.unclear >= unclearInRow {
			p.until, p.paused = later(p.until, now.Add(min(firstPause<<min(p.unclear-unclearInRow, 10), longestPause))), true
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
