package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// A request waits in a short queue if all slots are taken. It waits up to
// burstWait; while the queue has been non-empty for longer than that, up to
// overloadWait.
const (
	burstWait     = 100 * time.Millisecond
	overloadWait  = 10 * time.Millisecond
	queuedPerSlot = 4
)

// gate limits how many requests work at the same time, and refuses requests
// early that it can't admit soon.
//
// Without a gate, excess requests wait in the driver's queue for a connection,
// which is unbounded and unordered, until their deadline. By then their clients
// have given up and retry, so the service computes responses that no client
// reads. A gate keeps as many requests at work as the database can use, so that
// an admitted request takes about as long under any load. Its queue absorbs
// bursts. As in CoDel (controlled delay), a queue that outlasts a burst is
// overload, and longer waiting would help no client. The number of slots is the
// only parameter; there are no measurements that an idle service, a slow
// statement or a cold start could mislead.
//
// A free slot goes to the account with the fewest requests at work, in order of
// arrival. If the queue is full, the last request of the account with the most
// queued requests is evicted in favor of an account with fewer. So one account
// can delay another by no more than one slot.
//
// An account with no request at work does not wait even for one slot: no
// account may use more than its share of the slots, and the last slot is
// reserved for an account that has none (limit.Shares).
type gate struct {
	kind    string
	slots   int // at work
	working *limit.Shares
	maxWait time.Duration // maximum in the queue

	mu          sync.Mutex
	queue       []*waiter
	queued      map[uuid.UUID]int // queued requests by account
	queuedSince time.Time         // since when the queue is not empty
}

// waiter is a queued request.
type waiter struct {
	account  uuid.UUID
	admitted chan bool // receives the decision
}

// newGate returns a gate. One account may use up to each of its slots.
func newGate(kind string, slots, each int) *gate {
	return &gate{kind: kind, slots: slots, working: limit.NewShares(slots, each), maxWait: burstWait,
		queued: map[uuid.UUID]int{}}
}

// acquire acquires a slot for a request of an account; the caller must release
// it. It returns false if the wait was too long, or ctx was canceled.
func (g *gate) acquire(ctx context.Context, account uuid.UUID) bool {
	g.mu.Lock()
	if g.working.Acquire(account) { // so no queued request could use the slot
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

// await waits in the queue.
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
	if i < 0 { // decided just now
		return <-w.admitted
	}
	g.remove(i)
	return false
}

// release releases a slot of an account, and admits a queued request that may
// use it.
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

// evict refuses a queued request to make room for one of an account. It returns
// false if no account has more queued requests.
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

// remove removes a request from the queue.
func (g *gate) remove(i int) *waiter {
	w := g.queue[i]
	g.queue = slices.Delete(g.queue, i, i+1)
	if g.queued[w.account]--; g.queued[w.account] == 0 {
		delete(g.queued, w.account)
	}
	return w
}
