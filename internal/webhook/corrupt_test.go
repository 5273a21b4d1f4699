package webhook_test

import (
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/webhook"
)

func (s *fixture) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := rig.OpenSQL(s.t, s.url).Exec(statement, args...)
	check(s.t, err)
}

// Corrupt earlier attempts delay neither their own event nor any other.
func TestSender_CorruptAttempts_DelayNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, _ := s.createWebhook(r.URL)
		es := s.insertEvents(20)
		s.exec("UPDATE deliveries SET attempts = '{}' WHERE seq < 15")
		ds, more, err := s.webhooks.ListDeliveries(t.Context(), s.account, w.ID, webhook.DeliveryFilter{Limit: 20})
		if err != nil || len(ds) != len(es) || more {
			t.Errorf("%d deliveries, more: %t, %v", len(ds), more, err)
		}
		s.deliver()
		if n := len(r.all()); n != len(es) {
			t.Errorf("%d of %d events were sent", n, len(es))
		}
		ds, _, err = s.webhooks.ListDeliveries(t.Context(), s.account, w.ID,
			webhook.DeliveryFilter{State: webhook.DeliveryDelivered, Limit: 20})
		check(t, err)
		for _, d := range ds {
			if len(d.Attempts) != 1 || d.Attempts[0].Status != 200 {
				t.Errorf("attempts %+v", d.Attempts)
			}
		}
		if len(ds) != len(es) {
			t.Errorf("%d of %d are delivered", len(ds), len(es))
		}
	})
}

// A webhook whose secret can't be decrypted delays no other, and its error does
// not concern a card.
func TestSender_CorruptSecret_DelaysNoOtherWebhook(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r, broken := newReceiver(t, nil), newReceiver(t, nil)
		bad, _ := s.createWebhook(broken.URL)
		s.createWebhook(r.URL)
		s.exec("UPDATE webhooks SET secret = $1 WHERE id = $2", []byte("canary"), bad.ID)
		s.insertEvents(3)
		err := s.sender.Tick(t.Context())
		check(t, s.sender.Close(t.Context()))
		if err == nil || !strings.HasPrefix(err.Error(), "open secret of webhook "+bad.ID.String()) ||
			strings.Contains(err.Error(), "card") || strings.Contains(err.Error(), "canary") {
			t.Errorf("error %v", err)
		}
		if n := len(r.all()); n != 3 {
			t.Errorf("%d events were sent to the other webhook", n)
		}
		s.insertEvents(1)
		s.deliver() // the webhook with the corrupt secret is claimed
		if n := len(r.all()); n != 4 || len(broken.all()) > 0 {
			t.Errorf("%d events were sent to the other webhook, %d to the corrupt one", n, len(broken.all()))
		}
		list, err := s.webhooks.ListWebhooks(t.Context(), s.account)
		if err != nil || len(list) != 2 {
			t.Errorf("%d webhooks are listed, %v", len(list), err)
		}
	})
}

// A secret with an unknown key is not corrupt: another process may have the
// key, or this process may get it soon.
func TestSender_MissingKey_ReleasesClaim(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, _ := s.createWebhook(r.URL)
		sealed := s.webhook(w.ID).Sealed
		s.exec("UPDATE webhooks SET secret = $1", append((s.vault.Keys().Primary^1).Prefix(), sealed[5:]...))
		s.insertEvents(3)
		wantError(t, s.sender.Tick(t.Context()), card.ErrUnavailable)
		check(t, s.sender.Close(t.Context()))
		_, err := s.webhooks.TestWebhook(t.Context(), s.account, w.ID, card.EventGenerated)
		wantError(t, err, card.ErrUnavailable)
		s.exec("UPDATE webhooks SET secret = $1", sealed)
		s.deliver()
		if n := len(r.all()); n != 3 || !s.webhook(w.ID).Enabled {
			t.Errorf("%d events were sent", n)
		}
	})
}
