package account

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// tokenUses holds the times of last use of valid tokens until they are stored.
// Its zero value is ready for use.
type tokenUses struct {
	mu   sync.Mutex
	last map[uuid.UUID]time.Time
}

func (u *tokenUses) record(id uuid.UUID, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[uuid.UUID]time.Time{}
	}
	if at.After(u.last[id]) {
		u.last[id] = at
	}
}

// take returns the uses since the last call.
func (u *tokenUses) take() map[uuid.UUID]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.last
	u.last = nil
	return taken
}

// SaveUses stores the uses of tokens since the last call. A process calls it
// once a minute and during shutdown. After an error the uses are kept for the
// next call.
func (s *Service) SaveUses(ctx context.Context) error {
	uses := s.uses.take()
	if len(uses) == 0 {
		return nil
	}
	err := s.store.SaveUses(ctx, uses)
	if err != nil {
		for id, at := range uses {
			s.uses.record(id, at)
		}
	}
	return err
}
