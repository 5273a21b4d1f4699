package webhook_test

import (
	"sync"
	"testing"

	"github.com/cardmint/cardmint/internal/webhook"
)

func TestObserve_ToldOfEachAttempt(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		var mu sync.Mutex
		var statuses []int
		s.cfg.Observe = func(a webhook.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			statuses = append(statuses, a.Status)
		}
		s.open()
		hook := newReceiver(t, func(n int) int { return []int{400, 204}[min(n, 1)] })
		s.register(hook.URL)
		s.happen(2)
		s.pass()
		mu.Lock()
		defer mu.Unlock()
		if len(statuses) != 2 || statuses[0]+statuses[1] != 604 {
			t.Errorf("attempts with %v, want 400 and 204", statuses)
		}
	})
}
