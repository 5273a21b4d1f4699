package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// A request that finds all places taken waits for one, in a line that is a few
// times as long as there are places. While nobody has waited for long, it waits
// as long as a burst may last; once there has been a line for that long, only
// as long as scheduling takes.
const (
	burstPatience    = 100 * time.Millisecond
	standingPatience = 10 * time.Millisecond
	linePerPlace     = 4
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
// and longer waiting would not help anybody. The number of places is all there
// is to choose; nothing is measured that an idle service, a slow statement or a
// cold start could mislead.
//
// Of those in line, the first of the account comes next that has the fewest
// requests at work. In a line that is full, the last of the account that has
// the most there makes room for one that has fewer. So one account can keep
// others waiting for no more than the next place.
//
// An account that has nothing at work does not even wait for that: no account
// takes more than its share of the places, and the last one is kept for an
// account that has none (limit.Shares).
type gate struct {
	kind     string
	places   int // at work
	working  *limit.Shares
	patience time.Duration // for a burst

	mu       sync.Mutex
	line     []*waiting
	inLine   map[uuid.UUID]int // requests in line, by account
	standing time.Time         // since when there has been a line
}

// waiting is a request in line.
type waiting struct {
	account uuid.UUID
	told    chan bool // whether it is let in
}

// newGate returns a gate. One account takes up to each of its places.
func newGate(kind string, places, each int) *gate {
	return &gate{kind: kind, places: places, working: limit.NewShares(places, each), patience: burstPatience,
		inLine: map[uuid.UUID]int{}}
}

// enter takes a place for a request of an account, which the caller must give
// back by leave. It returns false if there was none in time, or if ctx ended
// before.
func (g *gate) enter(ctx context.Context, account uuid.UUID) bool {
	g.mu.Lock()
	if g.working.Acquire(account) { // then no request in line could have had the place
		g.mu.Unlock()
		return true
	}
	if len(g.line) >= linePerPlace*g.places && !g.displace(account) {
		g.mu.Unlock()
		return false
	}
	now, patience := time.Now(), g.patience
	if len(g.line) == 0 {
		g.standing = now
	} else if now.Sub(g.standing) >= g.patience {
		patience = standingPatience
	}
	w := &waiting{account, make(chan bool, 1)}
	g.line = append(g.line, w)
	g.inLine[account]++
	g.mu.Unlock()
	return g.await(ctx, w, patience)
}

// await waits in line.
func (g *gate) await(ctx context.Context, w *waiting, patience time.Duration) bool {
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case in := <-w.told:
		return in
	case <-over.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.line, w)
	if i < 0 { // told at the last moment
		return <-w.told
	}
	g.remove(i)
	return false
}

// leave releases the place of an account. If a request in line may have it, the
// place is passed on.
func (g *gate) leave(account uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.working.Release(account)
	for len(g.line) > 0 {
		next := 0
		for i, w := range g.line {
			if g.working.Held(w.account) < g.working.Held(g.line[next].account) {
				next = i
			}
		}
		if !g.working.Acquire(g.line[next].account) {
			return
		}
		g.remove(next).told <- true
	}
}

// displace refuses a request in line to make room for one of an account, and
// reports whether there was one to refuse.
func (g *gate) displace(account uuid.UUID) bool {
	last := 0
	for i, w := range g.line {
		if g.inLine[w.account] >= g.inLine[g.line[last].account] {
			last = i
		}
	}
	if g.inLine[g.line[last].account] <= g.inLine[account]+1 {
		return false
	}
	g.remove(last).told <- false
	return true
}

// remove takes a request out of the line.
func (g *gate) remove(i int) *waiting {
	w := g.line[i]
	g.line = slices.Delete(g.line, i, i+1)
	if g.inLine[w.account]--; g.inLine[w.account] == 0 {
		delete(g.inLine, w.account)
	}
	return w
}
