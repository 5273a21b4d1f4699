package account

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// tokenUses remembers when tokens were used last, until that is saved. It has
// one entry for each token at most, and only for tokens that the store knows.
// Its zero value is ready for use.
type tokenUses struct {
	mu   sync.Mutex
	last map[uuid.UUID]time.Time
}

func (u *tokenUses) note(id uuid.UUID, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[uuid.UUID]time.Time{}
	}
	if at.After(u.last[id]) {
		u.last[id] = at
	}
}

// take returns what was noted since the last call.
func (u *tokenUses) take() map[uuid.UUID]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.last
	u.last = nil
	return taken
}

// SaveUses stores when tokens were used since the last call. A process calls it
// once a minute, and once more before it ends. What can't be stored is kept for
// the next call.
func (s *Service) SaveUses(ctx context.Context) error {
	uses := s.uses.take()
	if len(uses) == 0 {
		return nil
	}
	err := s.store.SaveUses(ctx, uses)
	if err != nil {
		for id, at := range uses {
			s.uses.note(id, at)
		}
	}
	return err
}
