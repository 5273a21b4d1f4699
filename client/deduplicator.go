package client

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// Deduplicator makes sure that each event is handled once, even if it arrives
// several times. It must be safe for concurrent use.
//
// The most reliable implementation is a table whose primary key is the event's
// id, in the database that handle writes to. Once begins a transaction, inserts
// the id, returns nil if it exists, calls handle with the transaction in its
// context, and commits, or rolls back if handle fails or panics. The work of
// handle and the record of it are then one commit, for any number of processes
// and after any crash.
type Deduplicator interface {
	// Once calls handle and returns its error, or an error that wraps it. If an
	// earlier call for the id returned nil, Once returns nil without calling
	// handle.
	//
	// An id is remembered only if handle returned nil, not if it failed,
	// panicked or was interrupted. While handle runs for an id, another call
	// for the same id waits for it, or returns an error. After any error the
	// service sends the event again.
	Once(ctx context.Context, id uuid.UUID, handle func(ctx context.Context) error) error
}

// MemoryDeduplicator is a [Deduplicator] that keeps the ids of the last events
// in memory. It serves one process: another process, or the same one after a
// restart, handles a repeated event again.
type MemoryDeduplicator struct {
	mu      sync.Mutex
	running map[uuid.UUID]chan struct{} // closed when handle has returned
	handled map[uuid.UUID]struct{}
	ring    []uuid.UUID // the keys of handled; once full, next is the oldest
	next    int
	size    int
}

// NewMemoryDeduplicator returns a MemoryDeduplicator for the last size events,
// at least one. 10,000 events take about 1 MB.
func NewMemoryDeduplicator(size int) *MemoryDeduplicator {
	return &MemoryDeduplicator{size: max(size, 1), running: map[uuid.UUID]chan struct{}{},
		handled: map[uuid.UUID]struct{}{}}
}

// Once implements [Deduplicator]. A call for an id that is being handled waits
// until then, or until its context ends.
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
		case <-ended: // successful or not: check again
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// claim reserves an id for the caller, unless it has been handled, or is being
// handled until the returned channel is closed.
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

// remember stores an id in place of the oldest.
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
