package server

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// Accounts of requests.
var loud, quiet = uuid.UUID{1}, uuid.UUID{2}

// queueFixture sends requests to a gate, in a synctest bubble.
type queueFixture struct {
	t       *testing.T
	gate    *gate
	mu      sync.Mutex
	let     []int // admitted requests, in order
	refused map[int]time.Duration
}

func newQueueFixture(t *testing.T, slots int) *queueFixture {
	return &queueFixture{t: t, gate: newGate("test", slots, slots), refused: map[int]time.Duration{}}
}

// come sends a request of the loud account, and returns when it works, waits or
// was refused.
func (c *queueFixture) come(ctx context.Context, who int) { c.comeOf(ctx, loud, who) }

// comeOf sends a request of an account.
func (c *queueFixture) comeOf(ctx context.Context, account uuid.UUID, who int) {
	go func() {
		came := time.Now()
		in := c.gate.acquire(ctx, account)
		c.mu.Lock()
		defer c.mu.Unlock()
		if in {
			c.let = append(c.let, who)
		} else {
			c.refused[who] = time.Since(came)
		}
	}()
	synctest.Wait()
}

func (c *queueFixture) want(what string, let ...int) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.let, let) {
		c.t.Errorf("%s: admitted %v, want %v", what, c.let, let)
	}
}

func (c *queueFixture) wantRefused(who int, after time.Duration) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if took, was := c.refused[who]; !was || took != after {
		c.t.Errorf("%d was refused: %t, after %s, want %s", who, was, took, after)
	}
}

func TestGate_SlotsTaken_AdmitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newQueueFixture(t, 2)
		for who := range 4 {
			c.come(t.Context(), who)
		}
		c.want("two slots", 0, 1)
		c.gate.release(loud)
		c.want("after one has left", 0, 1, 2)
		c.come(t.Context(), 4)
		c.gate.release(loud)
		c.want("who came later comes later", 0, 1, 2, 3)
		c.gate.release(loud)
		c.gate.release(loud)
		c.gate.release(loud)
		c.want("the last", 0, 1, 2, 3, 4)
		if c.gate.working.Taken() != 0 || len(c.gate.queue) != 0 {
			t.Errorf("%d slots are taken, %d wait", c.gate.working.Taken(), len(c.gate.queue))
		}
	})
}

// One account holds all slots, and fills the queue. Requests of another account
// come next, before earlier ones.
func TestGate_FloodOfOneAccount_DelaysOthersByOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newQueueFixture(t, 2)
		for who := range 11 { // 0 and 1 work, 2 to 9 wait
			c.come(t.Context(), who)
		}
		c.wantRefused(10, 0)
		for n := range 4 {
			c.comeOf(t.Context(), quiet, 20+n)
			c.wantRefused(9-n, 0) // evicted
		}
		c.comeOf(t.Context(), quiet, 24)
		c.wantRefused(24, 0) // its account has as many queued requests as the other
		c.gate.release(loud)
		c.want("the other account", 0, 1, 20)
		c.gate.release(loud)
		c.want("the account that has none at work any more", 0, 1, 20, 2)
		c.gate.release(quiet)
		c.want("likewise", 0, 1, 20, 2, 21)
	})
}

func TestGate_ShareUsedUp_AdmitsOtherAccountsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newQueueFixture(t, 4)
		c.gate = newGate("test", 4, 2)
		for who := range 4 { // 0 and 1 work, 2 and 3 wait
			c.come(t.Context(), who)
		}
		c.want("the share of one account", 0, 1)
		c.comeOf(t.Context(), quiet, 10)
		c.comeOf(t.Context(), quiet, 11) // the last place is reserved
		c.want("the other account", 0, 1, 10)
		c.comeOf(t.Context(), uuid.UUID{3}, 20)
		c.want("the reserved place", 0, 1, 10, 20)
		c.gate.release(loud)
		c.want("no account that has none at work waits", 0, 1, 10, 20)
		c.gate.release(loud)
		c.want("the last place is reserved again", 0, 1, 10, 20, 2)
		c.gate.release(uuid.UUID{3})
		c.want("a place that is not reserved", 0, 1, 10, 20, 2, 3)
	})
}

// The queue holds four requests per slot; further requests are refused
// immediately.
func TestGate_QueueFull_Refuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newQueueFixture(t, 2)
		for who := range 13 {
			c.come(t.Context(), who)
		}
		for who := 10; who < 13; who++ {
			c.wantRefused(who, 0)
		}
		c.want("the others", 0, 1)
		time.Sleep(burstWait)
		synctest.Wait()
		c.wantRefused(2, burstWait)
		c.wantRefused(9, burstWait)
	})
}

// A burst may wait. Requests in a lasting queue are refused sooner, so that
// admitted ones have not waited for long.
func TestGate_LastingQueue_WaitsShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newQueueFixture(t, 2)
		c.come(t.Context(), 0)
		c.come(t.Context(), 1)
		c.come(t.Context(), 2)
		time.Sleep(burstWait - time.Millisecond)
		c.come(t.Context(), 3) // before the queue counts as lasting
		time.Sleep(time.Millisecond)
		synctest.Wait()
		c.wantRefused(2, burstWait)
		c.come(t.Context(), 4)
		time.Sleep(overloadWait)
		synctest.Wait()
		c.wantRefused(4, overloadWait)
		time.Sleep(burstWait)
		synctest.Wait()
		c.wantRefused(3, burstWait)
		c.come(t.Context(), 5) // the queue is empty again
		time.Sleep(burstWait - time.Millisecond)
		c.gate.release(loud)
		c.want("a new burst", 0, 1, 5)
	})
}

func TestGate_Canceled_HoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newQueueFixture(t, 2)
		c.come(t.Context(), 0)
		c.come(t.Context(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		c.come(ctx, 2)
		c.come(t.Context(), 3)
		cancel()
		synctest.Wait()
		c.wantRefused(2, 0)
		c.gate.release(loud)
		c.want("the next", 0, 1, 3)
		c.gate.release(loud)
		c.gate.release(loud)
		c.come(t.Context(), 4)
		c.come(t.Context(), 5)
		c.want("the slots are free again", 0, 1, 3, 4, 5)
	})
}

// A request that times out while it is admitted either holds the slot, or frees
// it.
func TestGate_Concurrent_LosesNoSlot(t *testing.T) {
	g := newGate("test", 4, 4)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Microsecond)
				if g.acquire(ctx, loud) {
					time.Sleep(time.Microsecond)
					g.release(loud)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if g.working.Taken() != 0 || len(g.queue) != 0 || len(g.queued) != 0 {
		t.Errorf("%d slots are taken, %d wait, of %v", g.working.Taken(), len(g.queue), g.queued)
	}
}

// BenchmarkGate measures the overhead of a gate without contention.
func BenchmarkGate(b *testing.B) {
	g := newGate("test", 4, 4)
	b.ReportAllocs()
	for b.Loop() {
		if g.acquire(b.Context(), loud) {
			g.release(loud)
		}
	}
}
