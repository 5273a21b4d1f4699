package client

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// Deduplicator has each event handled once, however often it comes. It must be
// safe for use by several goroutines.
//
// The sure way is a table whose primary key is the event's id, in the database
// that handle writes to: Once begins a transaction, inserts the id, returns nil
// if it is there already, calls handle with the transaction in its context, and
// commits, or rolls back when handle fails or panics. Then what handle did and
// that it did it are one commit, for any number of processes and after any
// crash.
type Deduplicator interface {
	// Once calls handle and returns its error, or an error that wraps it. If an
	// earlier call for the id did so and returned nil, Once returns nil
	// instead, without calling it.
	//
	// Only a handle that returned nil is remembered, not one that failed,
	// panicked or was cut off. While handle runs for an id, another call for
	// the same id waits until it has ended, or returns an error. After any
	// error the service sends the event again.
	Once(ctx context.Context, id uuid.UUID, handle func(ctx context.Context) error) error
}

// MemoryDeduplicator is a [Deduplicator] that remembers the ids of the last
// events in memory. It serves one process: another one, or the same after a
// restart, knows nothing of them and handles an event again that comes again.
type MemoryDeduplicator struct {
	mu      sync.Mutex
	running map[uuid.UUID]chan struct{} // closed when handle has ended
	handled map[uuid.UUID]struct{}
	ring    []uuid.UUID // the keys of handled; from next on the oldest, once it is full
	next    int
	size    int
}

// NewMemoryDeduplicator returns a MemoryDeduplicator for the last size events,
// at least one. 10,000 take about 1 MB.
func NewMemoryDeduplicator(size int) *MemoryDeduplicator {
	return &MemoryDeduplicator{size: max(size, 1), running: map[uuid.UUID]chan struct{}{},
		handled: map[uuid.UUID]struct{}{}}
}

// Once implements [Deduplicator]. A call for an id that is being handled waits,
// at most until its context ends.
func (m *MemoryDeduplicator) Once(ctx context.Context, id uuid.UUID, handle func(ctx context.Context) error) error {
	for {
		ended, handled := m.claim(id)
		switch {
		case handled:
			return nil
		case ended == nil:
			return m.run(ctx, id, handle)
		}
		select {
		case <-ended: // well or not; look again
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// claim takes an id for the caller unless it is handled, or being handled until
// a channel is closed.
func (m *MemoryDeduplicator) claim(id uuid.UUID) (ended <-chan struct{}, handled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, handled := m.handled[id]; handled {
		return nil, true
	}
	if ended, running := m.running[id]; running {
		return ended, false
	}
	m.running[id] = make(chan struct{})
	return nil, false
}

// run calls handle for an id that was claimed.
func (m *MemoryDeduplicator) run(ctx context.Context, id uuid.UUID, handle func(ctx context.Context) error) error {
	handled := false
	defer func() { // also after a panic
		m.mu.Lock()
		defer m.mu.Unlock()
		close(m.running[id])
		delete(m.running, id)
		if handled {
			m.remember(id)
		}
	}()
	err := handle(ctx)
	handled = err == nil
	return err
}

// remember notes an id in the place of the oldest.
func (m *MemoryDeduplicator) remember(id uuid.UUID) {
	m.handled[id] = struct{}{}
	if len(m.ring) < m.size {
		m.ring = append(m.ring, id)
		return
	}
	delete(m.handled, m.ring[m.next])
	m.ring[m.next] = id
	m.next = (m.next + 1) % m.size
}
