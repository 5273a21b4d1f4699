package issue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// mostHastened limits what callers can have this process remember. Cards beyond
// that are looked up when their time has come.
const mostHastened = 4096

// hastened are the cards of which the supplier says that there is news.
type hastened struct {
	mu    sync.Mutex
	cards map[uuid.UUID]bool
}

// Hasten has the next Tick look a pending request up, whatever its time. key is
// the request's. It does not block, and it is only a hint: a key that nobody
// knows does nothing.
func (s *Issuer) Hasten(key string) {
	id, err := uuid.Parse(key)
	if err != nil {
		return
	}
	s.hastened.mu.Lock()
	defer s.hastened.mu.Unlock()
	if s.hastened.cards == nil {
		s.hastened.cards = map[uuid.UUID]bool{}
	}
	if len(s.hastened.cards) < mostHastened {
		s.hastened.cards[id] = true
	}
}

// hasten stores which cards are due.
func (s *Issuer) hasten(ctx context.Context) error {
	s.hastened.mu.Lock()
	cards := s.hastened.cards
	s.hastened.cards = nil
	s.hastened.mu.Unlock()
	if len(cards) == 0 {
		return nil
	}
	if err := s.store.HastenIntents(ctx, s.supplier.Name(), slices.Collect(maps.Keys(cards))); err != nil {
		for id := range cards {
			s.Hasten(id.String())
		}
		return fmt.Errorf("hasten: %w", err)
	}
	return nil
}
