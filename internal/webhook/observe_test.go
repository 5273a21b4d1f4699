package webhook_test

import (
	"sync"
	"testing"

	"github.com/cardmint/cardmint/internal/webhook"
)

func TestObserve_IsCalledForEachAttempt(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var mu sync.Mutex
		var statuses []int
		s.cfg.Observe = func(a webhook.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			statuses = append(statuses, a.Status)
		}
		s.open()
		hook := newReceiver(t, func(n int) int { return []int{400, 204}[min(n, 1)] })
		s.createWebhook(hook.URL)
		s.insertEvents(2)
		s.deliver()
		mu.Lock()
		defer mu.Unlock()
		if len(statuses) != 2 || statuses[0]+statuses[1] != 604 {
			t.Errorf("attempts with %v, want 400 and 204", statuses)
		}
	})
}
