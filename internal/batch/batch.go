// Package batch combines concurrent calls, so that one statement and one commit
// serve many of them.
//
// A call that finds a free worker is executed at once. Calls that arrive while
// all workers are busy wait, and form the next batch. A lone call is therefore
// never delayed, and batches grow with the load.
//
// Of ours, it may import only package panics. It stores nothing: after a crash,
// an item is as durable as Config.One and Config.Many have made it.
package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/panics"
)

// ErrOutcomeUnknown means that the caller's context ended while its item was
// being executed. The item may take effect or not.
var ErrOutcomeUnknown = errors.New("batch: outcome unknown")

// Config configures a Batcher. One and Many are required. A panic of either is
// an error of its items, a *panics.Error.
type Config[In, Out any] struct {
	// One executes a single item, with its caller's context.
	One func(ctx context.Context, in In) (Out, error)
	// Many executes several items. It returns one result per item, in the same
	// order, or an error that applies to all of them. It must set its own
	// deadline, because it serves callers with different ones.
	Many func(ins []In) ([]Out, error)
	// BadItem reports whether Many failed because of a single item, and
	// executed none. All items are then retried one by one. Defaults to never.
	BadItem func(err error) bool

	// Workers is the most batches that are executed at once. Defaults to 1.
	Workers int
	// SlowAfter is how long every running batch must have taken before a call
	// starts another one. Larger batches cost less in total, so a call should
	// rather wait for a quick batch to end. Defaults to 0.
	SlowAfter time.Duration
	// MinItems is the smallest batch. Fewer items are executed one by one.
	// Defaults to 2.
	MinItems int
	// MaxItems is the most items in a batch. Defaults to 256.
	MaxItems int
	// MaxWait is how long an item may wait for a worker. After that its caller
	// executes it with One, in addition to the workers. Defaults to no limit.
	MaxWait time.Duration
	// Acquire waits for a resource that every batch needs, such as a database
	// connection. Items can join the batch until it returns. The worker calls
	// release when the batch has ended. Defaults to none.
	Acquire func() (release func())
}

// Batcher executes items in batches. It is safe for concurrent use. It runs no
// goroutine while no call of Do is being executed, so it needs no Close.
type Batcher[In, Out any] struct {
	cfg Config[In, Out]

	mu      sync.Mutex
	waiting []*call[In, Out]
	workers []*worker
	pending int // calls of Do that have not returned
}

// call is one call of Do.
type call[In, Out any] struct {
	ctx  context.Context
	in   In
	done chan result[Out] // has room for the result, because the caller may have left
}

type result[Out any] struct {
	out Out
	err error
}

// worker is a goroutine that executes batches until no call waits.
type worker struct {
	started time.Time // of the current batch
}

// New returns a Batcher.
func New[In, Out any](cfg Config[In, Out]) *Batcher[In, Out] {
	if cfg.BadItem == nil {
		cfg.BadItem = func(error) bool { return false }
	}
	if cfg.Acquire == nil {
		cfg.Acquire = func() (release func()) { return func() {} }
	}
	cfg.Workers = max(1, cfg.Workers)
	if cfg.MaxItems == 0 {
		cfg.MaxItems = 256
	}
	return &Batcher[In, Out]{cfg: cfg}
}

// Do executes an item, possibly in a batch with others, and returns its result.
// If ctx ends first, the error is ctx.Err() if the item was not executed, and
// wraps ErrOutcomeUnknown if it may have been.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	c := &call[In, Out]{ctx: ctx, in: in, done: make(chan result[Out], 1)}
	b.enqueue(c)
	defer b.leave()
	var waitedTooLong <-chan time.Time
	if b.cfg.MaxWait > 0 {
		waitedTooLong = time.After(b.cfg.MaxWait)
	}
	for {
		select {
		case r := <-c.done:
			return r.out, r.err
		case <-waitedTooLong:
			if b.dequeue(c) {
				return b.cfg.One(ctx, in)
			}
		case <-ctx.Done():
			var none Out
			if b.dequeue(c) {
				return none, ctx.Err()
			}
			return none, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
		}
	}
}

// Pending returns how many calls of Do have not returned.
func (b *Batcher[In, Out]) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending
}

// enqueue appends a call to the queue, and starts a worker if another one may
// run.
func (b *Batcher[In, Out]) enqueue(c *call[In, Out]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending++
	b.waiting = append(b.waiting, c)
	now := time.Now()
	isQuick := func(w *worker) bool { return now.Sub(w.started) < b.cfg.SlowAfter }
	if len(b.workers) < b.cfg.Workers && !slices.ContainsFunc(b.workers, isQuick) {
		w := &worker{started: now}
		b.workers = append(b.workers, w)
		go b.work(w)
	}
}

// dequeue removes a call from the queue. It returns false if a worker has taken
// the call.
func (b *Batcher[In, Out]) dequeue(c *call[In, Out]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, c)
	if i < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	return true
}

func (b *Batcher[In, Out]) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending--
}

// work executes batches until no call waits.
func (b *Batcher[In, Out]) work(w *worker) {
	for more := true; more; {
		release := b.cfg.Acquire()
		calls := b.next(w)
		b.execute(calls)
		release()
		more = len(calls) > 0
	}
}

// next takes the next batch from the queue. If the queue is empty, it removes
// the worker.
func (b *Batcher[In, Out]) next(w *worker) []*call[In, Out] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.workers = slices.DeleteFunc(b.workers, func(other *worker) bool { return other == w })
		return nil
	}
	n := min(len(b.waiting), b.cfg.MaxItems)
	if n < b.cfg.MinItems {
		n = 1
	}
	calls := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	w.started = time.Now()
	return calls
}

func (b *Batcher[In, Out]) execute(calls []*call[In, Out]) {
	if len(calls) > 1 {
		outs, err := b.many(calls)
		if err == nil || !b.cfg.BadItem(err) {
			for i, c := range calls {
				c.done <- result[Out]{outs[i], err}
			}
			return
		}
	}
	for _, c := range calls {
		var r result[Out]
		r.err = panics.Call(func() (err error) {
			r.out, err = b.cfg.One(c.ctx, c.in)
			return err
		})
		c.done <- r
	}
}

// many returns one result per call, also after an error.
func (b *Batcher[In, Out]) many(calls []*call[In, Out]) (outs []Out, err error) {
	ins := make([]In, len(calls))
	for i, c := range calls {
		ins[i] = c.in
	}
	err = panics.Call(func() (err error) {
		outs, err = b.cfg.Many(ins)
		return err
	})
	if err == nil && len(outs) != len(ins) {
		err = fmt.Errorf("batch: %d results for %d items", len(outs), len(ins))
	}
	if err != nil {
		outs = make([]Out, len(ins))
	}
	return outs, err
}
