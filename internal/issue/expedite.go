package issue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// maxExpedited limits what callers can have this process remember. Cards beyond
// that are looked up when their time has come.
const maxExpedited = 4096

// expedited are the cards of which the supplier says that there is news.
type expedited struct {
	mu    sync.Mutex
	cards map[uuid.UUID]bool
}

// Expedite has the next Tick look a pending request up, whatever its time. key is
// the request's. It does not block, and it is only a hint: a key that nobody
// knows does nothing.
func (s *Issuer) Expedite(key string) {
	id, err := uuid.Parse(key)
	if err != nil {
		return
	}
	s.expedited.mu.Lock()
	defer s.expedited.mu.Unlock()
	if s.expedited.cards == nil {
		s.expedited.cards = map[uuid.UUID]bool{}
	}
	if len(s.expedited.cards) < maxExpedited {
		s.expedited.cards[id] = true
	}
}

// expedite stores which cards are due.
func (s *Issuer) expedite(ctx context.Context) error {
	s.expedited.mu.Lock()
	cards := s.expedited.cards
	s.expedited.cards = nil
	s.expedited.mu.Unlock()
	if len(cards) == 0 {
		return nil
	}
	if err := s.store.ExpediteIntents(ctx, s.supplier.Name(), slices.Collect(maps.Keys(cards))); err != nil {
		for id := range cards {
			s.Expedite(id.String())
		}
		return fmt.Errorf("expedite: %w", err)
	}
	return nil
}
