package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// A request that finds all slots taken waits for one, in a line that is a few
// times as long as there are slots. While nobody has waited for long, it waits
// as long as a burst may last; once there has been a line for that long, only
// as long as scheduling takes.
const (
	burstWait     = 100 * time.Millisecond
	overloadWait  = 10 * time.Millisecond
	queuedPerSlot = 4
)

// gate lets only so many requests work at the same time, and refuses early what
// it can't let in soon.
//
// Whatever there is too much of waits somewhere: without a gate in the driver's
// line for a connection, which has no end and no order, until the deadline of
// the request. By then its client has given up and sends it again, so that the
// service is busy with answers that nobody reads. A gate keeps at work what the
// database can use: whoever is let in finds at most so many ahead, so that it
// takes about as long whatever else comes. The line in front of it absorbs
// bursts and is short, by the rule of controlled delay that CoDel has for
// packets: a line that does not go away within the time of a burst is no burst,
// and longer waiting would not help anybody. The number of slots is all there
// is to choose; nothing is measured that an idle service, a slow statement or a
// cold start could mislead.
//
// Of those in line, the first of the account comes next that has the fewest
// requests at work. In a line that is full, the last of the account that has
// the most there makes room for one that has fewer. So one account can keep
// others waiting for no more than the next place.
//
// An account that has nothing at work does not even wait for that: no account
// takes more than its share of the slots, and the last one is kept for an
// account that has none (limit.Shares).
type gate struct {
	kind    string
	slots   int // at work
	working *limit.Shares
	maxWait time.Duration // for a burst

	mu          sync.Mutex
	queue       []*waiter
	queued      map[uuid.UUID]int // requests in line, by account
	queuedSince time.Time         // since when there has been a line
}

// waiter is a queued request.
type waiter struct {
	account  uuid.UUID
	admitted chan bool // whether it is let in
}

// newGate returns a gate. One account takes up to each of its slots.
func newGate(kind string, slots, each int) *gate {
	return &gate{kind: kind, slots: slots, working: limit.NewShares(slots, each), maxWait: burstWait,
		queued: map[uuid.UUID]int{}}
}

// acquire takes a place for a request of an account, which the caller must give
// back by release. It returns false if there was none in time, or if ctx ended
// before.
func (g *gate) acquire(ctx context.Context, account uuid.UUID) bool {
	g.mu.Lock()
	if g.working.Acquire(account) { // then no request in line could have had the place
		g.mu.Unlock()
		return true
	}
	if len(g.queue) >= queuedPerSlot*g.slots && !g.evict(account) {
		g.mu.Unlock()
		return false
	}
	now, maxWait := time.Now(), g.maxWait
	if len(g.queue) == 0 {
		g.queuedSince = now
	} else if now.Sub(g.queuedSince) >= g.maxWait {
		maxWait = overloadWait
	}
	w := &waiter{account, make(chan bool, 1)}
	g.queue = append(g.queue, w)
	g.queued[account]++
	g.mu.Unlock()
	return g.await(ctx, w, maxWait)
}

// await waits in line.
func (g *gate) await(ctx context.Context, w *waiter, maxWait time.Duration) bool {
	over := time.NewTimer(maxWait)
	defer over.Stop()
	select {
	case in := <-w.admitted:
		return in
	case <-over.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 { // told at the last moment
		return <-w.admitted
	}
	g.remove(i)
	return false
}

// release releases the place of an account. If a request in line may have it, the
// place is passed on.
func (g *gate) release(account uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.working.Release(account)
	for len(g.queue) > 0 {
		next := 0
		for i, w := range g.queue {
			if g.working.Held(w.account) < g.working.Held(g.queue[next].account) {
				next = i
			}
		}
		if !g.working.Acquire(g.queue[next].account) {
			return
		}
		g.remove(next).admitted <- true
	}
}

// evict refuses a request in line to make room for one of an account, and
// reports whether there was one to refuse.
func (g *gate) evict(account uuid.UUID) bool {
	last := 0
	for i, w := range g.queue {
		if g.queued[w.account] >= g.queued[g.queue[last].account] {
			last = i
		}
	}
	if g.queued[g.queue[last].account] <= g.queued[account]+1 {
		return false
	}
	g.remove(last).admitted <- false
	return true
}

// remove takes a request out of the line.
func (g *gate) remove(i int) *waiter {
	w := g.queue[i]
	g.queue = slices.Delete(g.queue, i, i+1)
	if g.queued[w.account]--; g.queued[w.account] == 0 {
		delete(g.queued, w.account)
	}
	return w
}
