package store

import (
	"slices"
	"sync"
)

// queue lets what is asked of the database at the same time share statements. Nobody waits for others to come: while fewer statements run
// than may, whoever comes has one of its own at once. Those that come meanwhile go together into the next.
type queue[T any] struct {
	most   int // statements at once
	fewest int // elements that share a statement

	mu      sync.Mutex
	waiting []*T
	running int // statements
	sent    int // elements in them
}

// mostTogether is how many elements share a statement at most.
const mostTogether = 256

// begin reports whether the caller has a statement for e alone, after which it must call next. Otherwise e waits.
func (q *queue[T]) begin(e *T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running >= q.most {
		q.waiting = append(q.waiting, e)
		return false
	}
	q.running++
	q.sent++
	return true
}

// add has e wait, and reports whether the caller must have the queue emptied, beginning with next(0).
func (q *queue[T]) add(e *T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	if q.running >= q.most {
		return false
	}
	q.running++
	return true
}

// remove removes an element, and reports whether it was still waiting.
func (q *queue[T]) remove(e *T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(other *T) bool { return other == e })
	return len(q.waiting) < n
}

// next returns the elements for one statement, after one with so many; none if nothing waits.
func (q *queue[T]) next(before int) []*T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent -= before
	if len(q.waiting) == 0 {
		q.running--
		return nil
	}
	n := min(len(q.waiting), mostTogether)
	if n < q.fewest {
		n = 1
	}
	some := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.sent += n
	return some
}
