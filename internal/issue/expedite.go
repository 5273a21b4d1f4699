package issue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// maxExpedited limits the memory that callers can use. Cards beyond it are
// looked up when they are due.
const maxExpedited = 4096

// expedited holds cards whose supplier announced an answer.
type expedited struct {
	mu    sync.Mutex
	cards map[uuid.UUID]bool
}

// Expedite makes the next Tick look up the pending request with this key, even
// if it is not due. It does not block. It is a hint: unknown keys are ignored.
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

// expedite stores that the expedited cards are due.
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
		return fmt.Errorf("expedite intents: %w", err)
	}
	return nil
}
