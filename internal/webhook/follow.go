package webhook

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Topic selects the events of an account or of a card.
type Topic struct {
	AccountID uuid.UUID
	CardUUID  uuid.UUID // the zero UUID for all events of the account
}

// waiter is a request that waits for an event of a topic whose Seq is greater
// than after.
type waiter struct {
	topic   Topic
	after   int64
	checked int64 // no event of the account up to this Seq concerns the card
	found   chan struct{}
}

// waiters are the waiting requests of this process. The zero value is ready for
// use.
type waiters struct {
	mu  sync.Mutex
	all map[*waiter]bool
}

func (ws *waiters) add(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[*waiter]bool{}
	}
	ws.all[w] = true
}

func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, w)
}

// waiting returns the current waiters.
func (ws *waiters) waiting() []*waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.all))
}

// AwaitEvents returns a channel that Tick closes once there are events that
// ListEvents would return. It holds no database connection. The caller must
// call stop.
func (s *Service) AwaitEvents(account uuid.UUID, filter EventFilter) (found <-chan struct{}, stop func()) {
	w := &waiter{topic: Topic{account, filter.CardUUID}, after: filter.After, found: make(chan struct{})}
	s.waiting.add(w)
	return w.found, func() { s.waiting.remove(w) }
}

// Tick finds the events that requests wait for. It runs one query for all of
// them, a second one if some wait for a card whose account has new events, and
// none without waiting requests. Call it soon after events were committed, and
// once a second for the events of other processes, but not concurrently.
func (s *Service) Tick(ctx context.Context) error {
	waiting := s.waiting.waiting()
	accounts := map[uuid.UUID]bool{}
	for _, w := range waiting {
		accounts[w.topic.AccountID] = true
	}
	if len(accounts) == 0 {
		return nil
	}
	newest, err := s.store.LastSeqs(ctx, slices.Collect(maps.Keys(accounts)))
	if err != nil {
		return err
	}
	cards := map[uuid.UUID]bool{}
	for _, w := range waiting {
		if w.topic.CardUUID != uuid.Nil && newest[w.topic.AccountID] > max(w.after, w.checked) {
			cards[w.topic.CardUUID] = true
		}
	}
	var ofCards map[Topic]int64
	if len(cards) > 0 {
		if ofCards, err = s.store.LastSeqsOfCards(ctx, slices.Collect(maps.Keys(cards))); err != nil {
			return err
		}
	}
	for _, w := range waiting {
		last := newest[w.topic.AccountID]
		if w.topic.CardUUID != uuid.Nil {
			w.checked, last = last, ofCards[w.topic]
		}
		if last > w.after {
			s.waiting.remove(w)
			close(w.found)
		}
	}
	return nil
}

// eventsOf returns up to filter.Limit+1 events.
func (s *Service) eventsOf(ctx context.Context, account uuid.UUID, filter EventFilter) ([]card.Event, error) {
	if filter.CardUUID != uuid.Nil {
		return s.store.CardEvents(ctx, account, filter.CardUUID, filter.After, filter.Limit+1)
	}
	return s.store.Events(ctx, account, filter.After, filter.Limit+1)
}
