package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A request that finds all places taken waits for one. While nobody has waited for long, it waits as long as a burst may last; once there has
// been a line for that long, only as long as scheduling takes.
const (
	burstPatience    = 100 * time.Millisecond
	standingPatience = 10 * time.Millisecond
)

// gate lets only so many requests work at the same time, and refuses early what it can't let in soon.
//
// Whatever there is too much of waits somewhere: without a gate in the driver's line for a connection, which has no end and no order, until
// the deadline of the request. By then its client has given up and sends it again, so that the service is busy with answers that nobody reads.
// A gate keeps at work what the database can use: whoever is let in finds at most so many ahead, so that it takes about as long whatever
// else comes. The line in front of it absorbs bursts and is short, by the rule of controlled delay that CoDel has for packets: a line that does
// not go away within the time of a burst is no burst, and longer waiting would not help anybody. Two numbers of places are all there is to
// choose; nothing is measured that an idle service, a slow statement or a cold start could mislead. The line is first come, first served.
type gate struct {
	kind   string
	places int // at work, and as many again in line

	mu       sync.Mutex
	taken    int
	line     []chan struct{} // closed when its request is let in
	standing time.Time       // since when there has been a line
}

// enter takes a place, which the caller must give back by leave. It returns false if there was none in time, or if ctx ended before.
func (g *gate) enter(ctx context.Context) bool {
	g.mu.Lock()
	if g.taken < g.places { // then nobody is in line
		g.taken++
		g.mu.Unlock()
		return true
	}
	if len(g.line) >= g.places {
		g.mu.Unlock()
		return false
	}
	now, patience := time.Now(), burstPatience
	if len(g.line) == 0 {
		g.standing = now
	} else if now.Sub(g.standing) >= burstPatience {
		patience = standingPatience
	}
	turn := make(chan struct{})
	g.line = append(g.line, turn)
	g.mu.Unlock()
	return g.await(ctx, turn, patience)
}

// await waits in line.
func (g *gate) await(ctx context.Context, turn chan struct{}, patience time.Duration) bool {
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case <-turn:
		return true
	case <-over.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.line, turn)
	if i < 0 { // let in at the last moment
		return true
	}
	g.line = slices.Delete(g.line, i, i+1)
	return false
}

// leave gives a place back, to the first in line if there is one.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 {
		g.taken--
		return
	}
	close(g.line[0])
	g.line = slices.Delete(g.line, 0, 1)
}
