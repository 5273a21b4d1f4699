package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A request that finds all places taken waits for one, in a line that is a few times as long as there are places. While nobody has waited for
// long, it waits as long as a burst may last; once there has been a line for that long, only as long as scheduling takes.
const (
	burstPatience    = 100 * time.Millisecond
	standingPatience = 10 * time.Millisecond
	linePerPlace     = 4
)

// gate lets only so many requests work at the same time, and refuses early what it can't let in soon.
//
// Whatever there is too much of waits somewhere: without a gate in the driver's line for a connection, which has no end and no order, until
// the deadline of the request. By then its client has given up and sends it again, so that the service is busy with answers that nobody reads.
// A gate keeps at work what the database can use: whoever is let in finds at most so many ahead, so that it takes about as long whatever
// else comes. The line in front of it absorbs bursts and is short, by the rule of controlled delay that CoDel has for packets: a line that does
// not go away within the time of a burst is no burst, and longer waiting would not help anybody. The number of places is all there is to
// choose; nothing is measured that an idle service, a slow statement or a cold start could mislead.
//
// Of those in line, the first of the account comes next that has the fewest requests at work. In a line that is full, the last of the account
// that has the most there makes room for one that has fewer. So one account can keep others waiting for no more than the next place.
type gate struct {
	kind   string
	places int // at work

	mu       sync.Mutex
	taken    int
	line     []*waiting
	shares   map[uuid.UUID]share // of the accounts that have requests here
	standing time.Time           // since when there has been a line
}

// share is how many requests an account has at a gate.
type share struct{ working, waiting int }

// waiting is a request in line.
type waiting struct {
	account uuid.UUID
	told    chan bool // whether it is let in
}

func newGate(kind string, places int) *gate {
	return &gate{kind: kind, places: places, shares: map[uuid.UUID]share{}}
}

// enter takes a place for a request of an account, which the caller must give back by leave. It returns false if there was none in time, or if
// ctx ended before.
func (g *gate) enter(ctx context.Context, account uuid.UUID) bool {
	g.mu.Lock()
	if g.taken < g.places { // then nobody is in line
		g.taken++
		g.count(account, share{working: 1})
		g.mu.Unlock()
		return true
	}
	if len(g.line) >= linePerPlace*g.places && !g.displace(account) {
		g.mu.Unlock()
		return false
	}
	now, patience := time.Now(), burstPatience
	if len(g.line) == 0 {
		g.standing = now
	} else if now.Sub(g.standing) >= burstPatience {
		patience = standingPatience
	}
	w := &waiting{account, make(chan bool, 1)}
	g.line = append(g.line, w)
	g.count(account, share{waiting: 1})
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

// leave gives the place of an account back, to the next in line if there is one.
func (g *gate) leave(account uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(account, share{working: -1})
	if len(g.line) == 0 {
		g.taken--
		return
	}
	next := 0
	for i, w := range g.line {
		if g.shares[w.account].working < g.shares[g.line[next].account].working {
			next = i
		}
	}
	w := g.remove(next)
	g.count(w.account, share{working: 1})
	w.told <- true
}

// displace refuses a request in line to make room for one of an account, and reports whether there was one to refuse.
func (g *gate) displace(account uuid.UUID) bool {
	last := 0
	for i, w := range g.line {
		if g.shares[w.account].waiting >= g.shares[g.line[last].account].waiting {
			last = i
		}
	}
	if g.shares[g.line[last].account].waiting <= g.shares[account].waiting+1 {
		return false
	}
	g.remove(last).told <- false
	return true
}

// remove takes a request out of the line.
func (g *gate) remove(i int) *waiting {
	w := g.line[i]
	g.line = slices.Delete(g.line, i, i+1)
	g.count(w.account, share{waiting: -1})
	return w
}

// count adds to the share of an account.
func (g *gate) count(account uuid.UUID, more share) {
	is := g.shares[account]
	is.working, is.waiting = is.working+more.working, is.waiting+more.waiting
	if g.shares[account] = is; is == (share{}) {
		delete(g.shares, account)
	}
}
