package webhook_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestSender_FailingReceiver_IsPaused(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		for _, status := range []int{503, 404, 403, 302} {
			r := newReceiver(t, func(int) int { return status })
			w, _ := s.createWebhook(r.URL)
			s.insertEvents(200)
			for range 10 {
				s.deliver()
			}
			first := len(r.all())
			if first > 20 {
				t.Errorf("%d: %d requests before the pause", status, first)
			}
			s.advance(61 * time.Second)
			s.deliver()
			if n := len(r.all()) - first; n != 1 {
				t.Errorf("%d: %d requests after the pause, want 1 probe", status, n)
			}
			check(t, s.webhooks.DeleteWebhook(t.Context(), s.account, w.ID))
		}
	})
}

// A receiver that rejects events of one type, with any status, still gets all
// other events immediately.
func TestSender_RejectedEvents_DelayNoOthers(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var taken, refused atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), string(card.EventLate)) {
				w.WriteHeader([]int{400, 404, 422, 301}[refused.Add(1)%4])
				return
			}
			taken.Add(1)
		}))
		t.Cleanup(server.Close)
		w, _ := s.createWebhook(server.URL)
		s.insertEvents(1)
		s.deliver()
		late := make([]card.Event, 100)
		for i := range late {
			late[i] = card.ExampleEvent(uuid.Must(uuid.NewV7()), s.account, uuid.Must(uuid.NewV7()), card.EventLate)
			late[i].CardUUID, late[i].CreatedAt = s.card.UUID, s.clock()
		}
		check(t, s.store.WebhookTx(t.Context(), func(tx webhook.Tx) error { return tx.InsertEvents(t.Context(), late) }))
		s.insertEvents(10)
		s.deliver()
		if taken.Load() != 11 || refused.Load() != 100 {
			t.Errorf("%d of 11 were accepted, %d of 100 rejected", taken.Load(), refused.Load())
		}
		for range 9 { // only failing events are left
			s.advance(29 * time.Hour)
			s.deliver()
		}
		if now := s.webhook(w.ID); now.Enabled || now.DisabledReason != webhook.DisabledFailing {
			t.Errorf("after ten days without success: %+v", now)
		}
	})
}

func TestSender_UnreachableReceiver_StopsBatch(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		all := map[int]*receiver{}
		for _, status := range []int{408, 410, 429, 500, 503, 599} {
			all[status] = newReceiver(t, func(int) int { return status })
			s.createWebhook(all[status].URL, card.EventUnderpaid)
		}
		s.insertEvents(100)
		s.deliver()
		for status, r := range all {
			if n := len(r.all()); n > 10 { // eight concurrent requests and two probes
				t.Errorf("%d: %d requests", status, n)
			}
		}
	})
}

func TestSender_ExhaustedDelivery_IsRedeliveredWithSameID(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var well atomic.Bool
		r := newReceiver(t, func(int) int {
			if well.Load() {
				return 204
			}
			return 500
		})
		w, _ := s.createWebhook(r.URL)
		e := s.insertEvents(1)[0]
		s.deliver()
		for _, wait := range []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
			5 * time.Hour, 10 * time.Hour,
			14 * time.Hour, 20 * time.Hour, 24 * time.Hour} {
			s.advance(wait * 79 / 100)
			s.deliver() // too soon
			s.advance(wait * 42 / 100)
			s.deliver()
		}
		s.advance(48 * time.Hour)
		s.deliver()
		d := s.wantStates(w.ID, webhook.DeliveryFailed)[0]
		if len(r.all()) != 10 || d.Tries != 10 || len(d.Attempts) != 10 || !d.DueAt.IsZero() {
			t.Fatalf("%d requests; %d tries, %d attempts, due %s", len(r.all()), d.Tries, len(d.Attempts), d.DueAt)
		}
		well.Store(true)
		check(t, s.webhooks.Redeliver(t.Context(), s.account, w.ID, e.ID))
		s.deliver()
		s.wantStates(w.ID, webhook.DeliveryDelivered)
		if got := r.all(); len(got) != 11 || got[10].ID != e.ID.String() {
			t.Errorf("received %d, the last %+v", len(got), got[len(got)-1])
		}
	})
}

func TestSender_Gone_DisablesAndNotifiesOtherWebhooks(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		gone, other := newReceiver(t, func(int) int { return 410 }), newReceiver(t, nil)
		w, _ := s.createWebhook(gone.URL)
		s.createWebhook(other.URL, card.EventWebhookDisabled)
		s.insertEvents(1)
		s.deliver()
		s.deliver()
		now := s.webhook(w.ID)
		if now.Enabled || now.DisabledReason != webhook.DisabledGone || now.DisabledAt == nil {
			t.Errorf("webhook %+v", now)
		}
		got := other.all()
		if len(got) != 1 || !strings.Contains(got[0].Body, `"type":"webhook.disabled"`) ||
			!strings.Contains(got[0].Body, w.ID.String()) || strings.Contains(got[0].Body, "card_uuid") {
			t.Errorf("the other webhook received %+v", got)
		}
		s.insertEvents(2)
		s.deliver()
		if n := len(gone.all()); n != 1 {
			t.Errorf("%d requests to the receiver that is gone", n)
		}
		s.wantStates(w.ID, webhook.DeliveryPending) // later events have no delivery
	})
}

func TestSender_FiveDaysOfFailures_Disables(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		well := false
		r := newReceiver(t, func(int) int {
			if well {
				return 200
			}
			return 404
		})
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(1)
		s.deliver()
		s.advance(30 * 24 * time.Hour) // without events
		s.insertEvents(1)
		s.deliver()
		if now := s.webhook(w.ID); !now.Enabled {
			t.Fatalf("disabled by one failure after a long silence: %+v", now)
		}
		for range 20 {
			s.advance(29 * time.Hour)
			s.deliver()
		}
		if now := s.webhook(w.ID); now.Enabled || now.DisabledReason != webhook.DisabledFailing {
			t.Fatalf("webhook %+v", now)
		}
		s.wantStates(w.ID, webhook.DeliveryFailed, webhook.DeliveryPending) // the second was attempted less often
		s.insertEvents(3)
		well = true
		enabled := true
		_, err := s.webhooks.UpdateWebhook(t.Context(), s.account, w.ID, webhook.Request{Enabled: &enabled})
		check(t, err)
		if now := s.webhook(w.ID); now.FailingSince != nil || now.DisabledReason != "" || now.DisabledAt != nil {
			t.Errorf("webhook %+v", now)
		}
		s.insertEvents(1)
		n, err := s.webhooks.RecoverWebhook(t.Context(), s.account, w.ID, time.Time{})
		check(t, err)
		s.advance(29 * time.Hour)
		s.deliver()
		ds := s.deliveries(w.ID)
		if n != 3 || len(ds) != 6 { // the first event is older than the retention
			t.Errorf("%d sent again, %d deliveries", n, len(ds))
		}
		for _, d := range ds[1:] {
			if d.State != webhook.DeliveryDelivered {
				t.Errorf("delivery of event %d is %s", d.Event.Seq, d.State)
			}
		}
	})
}

// New events must not use all the probes: the oldest event exhausts its ten
// attempts on schedule.
func TestSender_DeadReceiverWithNewEvents_IsDisabled(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: sends for a week")
	}
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, func(int) int { return 503 })
		w, _ := s.createWebhook(r.URL)
		const step = 30 * time.Minute
		var failing time.Duration
		for ; failing < 7*24*time.Hour && s.webhook(w.ID).Enabled; failing += step {
			s.insertEvents(1)
			s.deliver()
			s.advance(step)
		}
		if now := s.webhook(w.ID); now.Enabled || now.DisabledReason != webhook.DisabledFailing || failing < 5*24*time.Hour {
			t.Errorf("after %s: %+v", failing, now)
		}
		ds := s.deliveries(w.ID)
		if d := ds[0]; d.State != webhook.DeliveryFailed || d.Tries != 10 {
			t.Errorf("the oldest delivery is %s after %d tries", d.State, d.Tries)
		}
		if took := ds[0].Attempts[len(ds[0].Attempts)-1].At.Sub(ds[0].Attempts[0].At); took > 4*24*time.Hour {
			t.Errorf("its attempts took %s", took)
		}
		if n := len(ds); ds[n/4].Tries == 0 {
			t.Error("new events were not attempted")
		}
	})
}

// A delivery that the limit of its destination postpones is neither an attempt
// nor lost.
func TestSender_UnprovenDestination_IsRateLimited(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		const burst, perSecond, events = 20, 5, 24
		r := newReceiver(t, func(int) int { return 400 })
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(events)
		began := time.Now()
		s.deliver()
		if took := time.Since(began); took < (events-burst-1)*time.Second/perSecond {
			t.Errorf("%d requests were sent within %s", len(r.all()), took)
		}
		for _, d := range s.deliveries(w.ID) {
			if len(d.Attempts) != 1 || d.Attempts[0].Status != 400 {
				t.Errorf("attempts: %+v", d.Attempts)
			}
		}
		if n := len(r.all()); n != events {
			t.Errorf("%d requests were sent, want %d", n, events)
		}
	})
}

func TestTestWebhook_UnprovenDestination_IsPostponed(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, _ := s.createWebhook(r.URL)
		s.poster.Exhaust(s.account, netip.MustParseAddr("127.0.0.1"))
		_, err := s.webhooks.TestWebhook(t.Context(), s.account, w.ID, card.EventGenerated)
		if !errors.Is(err, card.ErrUnavailable) || len(r.all()) > 0 {
			t.Errorf("error %v, %d examples were sent", err, len(r.all()))
		}
	})
}
