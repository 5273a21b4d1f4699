package store

import (
	"slices"
	"sync"
	"time"
)

// queue lets what is asked of the database at the same time share statements.
// Nobody waits for others to come: while no statement runs, or only some that
// take long, whoever comes has one of its own at once. Those that come
// meanwhile go together into the next.
type queue[T any] struct {
	most   int           // statements at once
	quick  time.Duration // statements that have run for less have no other beside them
	fewest int           // elements that share a statement

	mu      sync.Mutex
	waiting []*T
	slots   []*slot
	sent    int // elements in the statements that run
}

// slot is where statements of a queue run, one after another, until nothing
// waits.
type slot struct {
	began time.Time // the last of them
}

// mostTogether is how many elements share a statement at most.
const mostTogether = 256

// begin returns the slot for a statement for e alone, after which the caller
// must call next; nil if e waits.
func (q *queue[T]) begin(e *T) *slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	mine := q.start()
	if mine == nil {
		q.waiting = append(q.waiting, e)
		return nil
	}
	q.sent++
	return mine
}

// add has e wait, and returns a slot in which the caller must empty the queue,
// beginning with next; nil if others do.
func (q *queue[T]) add(e *T) *slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	return q.start()
}

// start returns a further slot, if there may be one.
func (q *queue[T]) start() *slot {
	now := time.Now()
	if len(q.slots) >= q.most || slices.ContainsFunc(q.slots, func(s *slot) bool { return now.Sub(s.began) < q.quick }) {
		return nil
	}
	mine := &slot{began: now}
	q.slots = append(q.slots, mine)
	return mine
}

// remove removes an element, and reports whether it was still waiting.
func (q *queue[T]) remove(e *T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(other *T) bool { return other == e })
	return len(q.waiting) < n
}

// next returns the elements for one statement, after one with so many; none if
// nothing waits, which gives the slot back.
func (q *queue[T]) next(mine *slot, before int) []*T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent -= before
	if len(q.waiting) == 0 {
		q.slots = slices.DeleteFunc(q.slots, func(other *slot) bool { return other == mine })
		return nil
	}
	mine.began = time.Now()
	n := min(len(q.waiting), mostTogether)
	if n < q.fewest {
		n = 1
	}
	some := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.sent += n
	return some
}
