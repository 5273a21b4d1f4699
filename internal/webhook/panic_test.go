package webhook_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/webhook"
)

func TestDelivery_ImpossibleTries_SchedulesOrFails(t *testing.T) {
	for _, tries := range []int{-10, -1, 0, 1, 1 << 31, 1 << 62, math.MaxInt, math.MinInt} {
		d := webhook.Delivery{Tries: tries}.After(webhook.Attempt{Status: 400}, time.Now(), 0.5)
		switch {
		case tries <= 1 && (d.State != webhook.DeliveryPending || d.Tries < 1 || d.Tries > 2):
			t.Errorf("after %d tries: %+v", tries, d)
		case tries > 1 && d.State == webhook.DeliveryDelivered:
			t.Errorf("after %d tries: %+v", tries, d)
		}
	}
}

// A panic in the observer must not lose or repeat an event.
func TestSender_ObserverPanics_EventsAreDeliveredOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.cfg.Observe = func(webhook.Attempt) { panic("canary") }
		s.open()
		hook := newReceiver(t, nil)
		w, _ := s.createWebhook(hook.URL)
		s.insertEvents(3)
		s.deliver()
		s.deliver()
		s.wantStates(w.ID, webhook.DeliveryDelivered, webhook.DeliveryDelivered, webhook.DeliveryDelivered)
		if n := len(hook.all()); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		if text := s.log.String(); strings.Count(text, "event attempt panicked") != 3 || strings.Contains(text, "canary") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

func TestSender_Panic_OtherWebhooksContinue(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		hook := newReceiver(t, nil)
		broken, _ := s.createWebhook(hook.URL + "/broken")
		well, _ := s.createWebhook(hook.URL)
		s.due = func(id uuid.UUID) ([]webhook.Delivery, error) {
			if id == broken.ID {
				panic("canary")
			}
			return s.store.DueDeliveries(t.Context(), id, s.clock(), 10)
		}
		s.insertEvents(1)
		s.deliver()
		s.deliver() // the claim of the panicking webhook has not expired
		s.wantStates(well.ID, webhook.DeliveryDelivered)
		s.wantStates(broken.ID, webhook.DeliveryPending)
		text := s.log.String()
		if strings.Count(text, "webhook deliveries failed") != 1 || !strings.Contains(text, broken.ID.String()) ||
			strings.Contains(text, "canary") {
			t.Errorf("logged:\n%s", text)
		}
	})
}
