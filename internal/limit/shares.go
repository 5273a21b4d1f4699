package limit

import (
	"sync"

	"github.com/google/uuid"
)

// Shares divides a bounded number of slots among accounts. No account holds
// more than its share, and the last free slot goes only to an account that
// holds none. It is safe for concurrent use.
type Shares struct {
	slots, each, reserved int

	mu    sync.Mutex
	taken int
	held  map[uuid.UUID]int
}

// NewShares returns free slots. One account may hold up to each of them. If one
// account may hold all slots, no slot is reserved.
func NewShares(slots, each int) *Shares {
	s := &Shares{slots: slots, each: each, held: map[uuid.UUID]int{}}
	if each < slots {
		s.reserved = 1
	}
	return s
}

// Acquire acquires a slot for an account; the caller must release it. It
// returns false if no slot is free for the account.
func (s *Shares) Acquire(account uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, free := s.held[account], s.slots-s.taken
	if held >= s.each || free == 0 || held > 0 && free <= s.reserved {
		return false
	}
	s.taken++
	s.held[account] = held + 1
	return true
}

// Release releases a slot that the account holds.
func (s *Shares) Release(account uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.held[account]--; s.held[account] == 0 {
		delete(s.held, account)
	}
}

// Held returns the number of slots that an account holds.
func (s *Shares) Held(account uuid.UUID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[account]
}

// UsedUp reports whether an account holds its whole share.
func (s *Shares) UsedUp(account uuid.UUID) bool { return s.Held(account) >= s.each }

// Taken returns the number of acquired slots.
func (s *Shares) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}
