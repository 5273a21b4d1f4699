package limit_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

func TestShares_OneAccount_HoldsNoMoreThanItsShare(t *testing.T) {
	s := limit.NewShares(8, 3)
	for range 3 {
		wantAcquired(t, s, who, true)
	}
	wantAcquired(t, s, who, false)
	if !s.UsedUp(who) {
		t.Error("the share is not used up")
	}
	s.Release(who)
	if s.UsedUp(who) {
		t.Error("the share is still used up")
	}
	wantAcquired(t, s, who, true)
	if held, taken := s.Held(who), s.Taken(); held != 3 || taken != 3 {
		t.Errorf("the account holds %d, %d are taken", held, taken)
	}
}

func TestShares_LastSlot_GoesToAnAccountThatHoldsNone(t *testing.T) {
	s := limit.NewShares(4, 3)
	one, two, late, later := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	wantAcquired(t, s, one, true)
	wantAcquired(t, s, one, true)
	wantAcquired(t, s, two, true)
	wantAcquired(t, s, one, false)
	wantAcquired(t, s, two, false)
	wantAcquired(t, s, late, true)
	wantAcquired(t, s, later, false) // all slots are taken
	s.Release(one)
	wantAcquired(t, s, one, false)
	wantAcquired(t, s, later, true)
}

func TestShares_NoShareSmallerThanTheWhole_ReservesNothing(t *testing.T) {
	s := limit.NewShares(2, 2)
	wantAcquired(t, s, who, true)
	wantAcquired(t, s, who, true)
	wantAcquired(t, s, uuid.New(), false)
}

func TestShares_Concurrent_LoseNoSlot(t *testing.T) {
	s := limit.NewShares(4, 2)
	var all sync.WaitGroup
	for range 16 {
		account := uuid.New()
		all.Go(func() {
			for range 500 {
				if s.Acquire(account) {
					s.Release(account)
				}
			}
		})
	}
	all.Wait()
	if n := s.Taken(); n != 0 {
		t.Errorf("%d slots are still taken", n)
	}
}

func wantAcquired(t *testing.T, s *limit.Shares, account uuid.UUID, want bool) {
	t.Helper()
	if got := s.Acquire(account); got != want {
		t.Errorf("acquired: %t, want %t", got, want)
	}
}
