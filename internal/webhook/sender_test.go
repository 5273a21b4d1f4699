package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestSender_SendsSignedEvents(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ctx := t.Context()
		r, made := newReceiver(t, nil), newReceiver(t, nil)
		w, secret := s.createWebhook(r.URL)
		s.createWebhook(made.URL, card.EventGenerated, card.EventLate)
		check(t, s.store.WebhookTx(ctx, func(tx webhook.Tx) error {
			return tx.InsertEvents(ctx, []card.Event{
				card.NewEvent(uuid.Must(uuid.NewV7()), s.card, card.EventDetected, card.AwaitingPayment, card.Detected),
				card.NewEvent(uuid.Must(uuid.NewV7()), s.card, card.EventGenerated, card.Generated, card.Paid),
			})
		}))
		s.deliver()
		es, _, err := s.webhooks.ListEvents(ctx, s.account, webhook.EventFilter{Limit: 10})
		check(t, err)
		got := r.all()
		slices.SortFunc(got, func(a, b received) int { return strings.Compare(a.ID, b.ID) })
		if len(es) != 2 || len(got) != 2 {
			t.Fatalf("%d events, %d received", len(es), len(got))
		}
		for i, e := range es {
			if got[i].ID != e.ID.String() || got[i].Body != string(e.Payload()) || !got[i].signedBy(t, secret) {
				t.Errorf("event %+v was received as %+v", e, got[i])
			}
			if kind := got[i].header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("type %q", kind)
			}
		}
		want := fmt.Sprintf(
			`{"type":"card.generated","timestamp":"%s","seq":2,"card_uuid":"%s","status":"generated","payment_state":"paid"}`,
			es[1].CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), s.card.UUID)
		if got[1].Body != want {
			t.Errorf("body %s\nwant %s", got[1].Body, want)
		}
		if filtered := made.all(); len(filtered) != 1 || filtered[0].Body != want {
			t.Errorf("the other receiver received %+v", filtered)
		}
		for _, d := range s.wantStates(w.ID, webhook.DeliveryDelivered, webhook.DeliveryDelivered) {
			if len(d.Attempts) != 1 || d.Attempts[0].Status != 200 {
				t.Errorf("attempts %+v", d.Attempts)
			}
		}
		s.deliver()
		if n := len(r.all()); n != 2 {
			t.Errorf("%d requests after another delivery", n)
		}
	})
}

func TestSender_Retries_HaveSameIDAndBodyAndNewTimestamp(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, func(n int) int { return []int{500, 302, 200}[n] })
		w, secret := s.createWebhook(r.URL)
		s.insertEvents(1)
		s.deliver()
		s.deliver() // not due yet
		s.wantStates(w.ID, webhook.DeliveryPending)
		s.advance(6 * time.Second)
		s.deliver()
		if since := s.webhook(w.ID).FailingSince; since == nil {
			t.Error("not failing")
		}
		s.advance(6 * time.Minute)
		s.deliver()
		d := s.wantStates(w.ID, webhook.DeliveryDelivered)[0]
		got := r.all()
		if len(got) != 3 || len(d.Attempts) != 3 || d.Attempts[0].Status != 500 || d.Attempts[1].Status != 302 ||
			d.Attempts[2].Status != 200 {
			t.Fatalf("received %d, attempts %+v", len(got), d.Attempts)
		}
		for i, x := range got {
			if x.ID != got[0].ID || x.Body != got[0].Body || !x.signedBy(t, secret) {
				t.Errorf("attempt %d: %+v, the first %+v", i, x, got[0])
			}
			if want := fmt.Sprint(d.Attempts[i].At.Unix()); x.Timestamp != want {
				t.Errorf("attempt %d: timestamp %s, want %s", i, x.Timestamp, want)
			}
		}
		if got[0].Timestamp == got[1].Timestamp || got[1].Timestamp == got[2].Timestamp {
			t.Error("the timestamp is not fresh")
		}
		if since := s.webhook(w.ID).FailingSince; since != nil {
			t.Errorf("failing since %s", since)
		}
	})
}

func TestSender_RotatedSecret_BothSignForADay(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, first := s.createWebhook(r.URL)
		_, second, err := s.webhooks.RotateWebhookSecret(t.Context(), s.account, w.ID)
		check(t, err)
		if first == second || !strings.HasPrefix(second.Reveal(), "whsec_") {
			t.Fatal("not a new secret")
		}
		s.insertEvents(1)
		s.deliver()
		s.advance(24*time.Hour + time.Second)
		s.insertEvents(1)
		s.deliver()
		got := r.all()
		if len(got) != 2 || strings.Count(got[0].Signature, "v1,") != 2 || strings.Count(got[1].Signature, "v1,") != 1 {
			t.Fatalf("received %+v", got)
		}
		if !got[0].signedBy(t, first) || !got[0].signedBy(t, second) || got[1].signedBy(t, first) ||
			!got[1].signedBy(t, second) {
			t.Error("not signed by the right secrets")
		}
	})
}

func TestSender_HangingReceiver_DelaysNoOther(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		release := make(chan struct{})
		var hanging atomic.Int32
		dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			hanging.Add(1)
			<-release
		}))
		t.Cleanup(dead.Close)
		defer close(release)
		s.createWebhook(dead.URL)
		s.insertEvents(100)
		check(t, s.sender.Tick(t.Context()))
		await(t, func() bool { return hanging.Load() == 8 })
		well := make([]*receiver, 5)
		for i := range well {
			well[i] = newReceiver(t, nil)
			s.createWebhook(well[i].URL)
		}
		s.insertEvents(3)
		check(t, s.sender.Tick(t.Context()))
		for _, r := range well {
			await(t, func() bool { return len(r.all()) == 3 })
		}
		if n := hanging.Load(); n > 8 {
			t.Errorf("%d requests to the hanging receiver", n)
		}
	})
}

// await waits until done returns true.
func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatal("timed out")
		}
		<-time.After(time.Millisecond)
	}
}

func TestSender_DeletedOrDisabledDuringAttempt(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		off := false
		for name, change := range map[string]func(id uuid.UUID) error{
			"deleted": func(id uuid.UUID) error { return s.webhooks.DeleteWebhook(t.Context(), s.account, id) },
			"disabled": func(id uuid.UUID) error {
				_, err := s.webhooks.UpdateWebhook(t.Context(), s.account, id, webhook.Request{Enabled: &off})
				return err
			},
		} {
			var id uuid.UUID
			var once sync.Once
			var changed error
			var n atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n.Add(1)
				once.Do(func() { changed = change(id) })
				w.WriteHeader(http.StatusInternalServerError)
			}))
			t.Cleanup(server.Close)
			w, _ := s.createWebhook(server.URL)
			id = w.ID
			s.insertEvents(1)
			s.deliver()
			check(t, changed)
			s.insertEvents(1)
			s.advance(time.Hour)
			s.deliver()
			if n.Load() != 1 {
				t.Errorf("%s: %d requests", name, n.Load())
			}
			if name == "disabled" {
				s.wantStates(id, webhook.DeliveryPending)
				check(t, s.webhooks.DeleteWebhook(t.Context(), s.account, id))
			}
			if _, err := s.webhooks.GetWebhook(t.Context(), s.account, id); !errors.Is(err, card.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// After a client's change few requests are sent with the old settings, and
// earlier successes are stored.
func TestSender_WebhookChangedDuringBatch_TakesEffectSoon(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		most  int // requests after the change
	}{"quick": {0, 58}, "slow": {300 * time.Millisecond, 16}} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				const events, changes = 400, 200
				var mu sync.Mutex
				var id uuid.UUID
				var changed error
				arrived, after, off := map[string]int{}, 0, false
				server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					arrived[r.Header.Get("webhook-id")]++
					first, slow := len(arrived) == changes && !off, off
					if off {
						after++
					}
					mu.Unlock()
					if first {
						_, changed = s.webhooks.UpdateWebhook(context.Background(), s.account, id, webhook.Request{Enabled: new(bool)})
						mu.Lock()
						off = true
						mu.Unlock()
					}
					if slow {
						<-time.After(tt.takes)
					}
				}))
				t.Cleanup(server.Close)
				w, _ := s.createWebhook(server.URL)
				id = w.ID
				s.insertEvents(events)
				s.deliver()
				check(t, changed)
				if after > tt.most || !off {
					t.Errorf("%d requests after the change (disabled: %t)", after, off)
				}
				off = false
				enabled := true
				_, err := s.webhooks.UpdateWebhook(t.Context(), s.account, id, webhook.Request{Enabled: &enabled})
				check(t, err)
				s.deliver()
				for id, n := range arrived {
					if n != 1 {
						t.Errorf("event %s was received %d times", id, n)
					}
				}
				for _, d := range s.deliveries(w.ID) {
					if d.State != webhook.DeliveryDelivered {
						t.Error(d.State)
					}
				}
			})
		})
	}
}

func TestSender_Replicas_NeverSendConcurrently(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		const events = 300
		replicas := []*fixture{s, s.replica(), s.replica()}
		var mu sync.Mutex
		under, times := map[string]int{}, map[string]int{}
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			id := r.Header.Get("webhook-id")
			mu.Lock()
			under[id]++
			times[id]++
			if under[id] > 1 {
				t.Errorf("event %s is sent twice concurrently", id)
			}
			if len(under) > 8 {
				t.Errorf("%d concurrent requests", len(under))
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				delete(under, id)
				mu.Unlock()
			}()
		}))
		t.Cleanup(server.Close)
		w, _ := s.createWebhook(server.URL)
		s.insertEvents(events)
		var all sync.WaitGroup
		for _, r := range replicas {
			all.Go(func() {
				for range 20 {
					if err := r.sender.Tick(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for _, r := range replicas {
			check(t, r.sender.Close(t.Context()))
		}
		if len(times) != events {
			t.Errorf("%d events were received", len(times))
		}
		for id, n := range times {
			if n != 1 {
				t.Errorf("event %s was received %d times", id, n)
			}
		}
		for _, d := range s.deliveries(w.ID) {
			if d.State != webhook.DeliveryDelivered {
				t.Error(d.State)
			}
		}
	})
}

func TestSender_RolledBackEvent_IsNeverSent(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		s.createWebhook(r.URL)
		e := card.ExampleEvent(uuid.Must(uuid.NewV7()), s.account, uuid.Must(uuid.NewV7()), card.EventLate)
		e.CardUUID = s.card.UUID
		undone := errors.New("undone")
		err := s.store.WebhookTx(t.Context(), func(tx webhook.Tx) error {
			return errors.Join(tx.InsertEvents(t.Context(), []card.Event{e}), undone)
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
		s.deliver()
		if got := r.all(); len(got) != 0 {
			t.Errorf("received %+v", got)
		}
		if kept := s.insertEvents(1); kept[0].CardUUID != s.card.UUID {
			t.Fatal("an event of another card")
		}
		s.deliver()
		if got := r.all(); len(got) != 1 || !strings.Contains(got[0].Body, `"seq":1,`) {
			t.Errorf("received %+v", got)
		}
	})
}

func TestSender_LostClaim_WritesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(1)
		claims, err := s.store.ClaimWebhooks(t.Context(), s.clock(), 10, 0) // the TTL is over immediately
		check(t, err)
		due, err := s.sender.DueDeliveries(t.Context(), claims[0], 10)
		check(t, err)
		s.deliver()
		err = s.sender.SaveAttempts(t.Context(), claims[0],
			[]webhook.Attempted{{Delivery: due[0], Attempt: webhook.Attempt{Status: 500}}})
		if !errors.Is(err, card.ErrFenced) {
			t.Errorf("write with a lost claim: %v", err)
		}
		s.wantStates(w.ID, webhook.DeliveryDelivered)
	})
}

// Errors other than ErrUnavailable are not retried: they may be bugs.
func TestSender_OtherStoreError_IsNotRetried(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(1)
		times := 0
		s.around = func(func() error) error {
			times++
			return errors.New("no such column")
		}
		s.deliver()
		if times != 1 {
			t.Errorf("%d transactions", times)
		}
		s.wantStates(w.ID, webhook.DeliveryPending)
	})
}

func TestSender_Close_WaitsForAttempts(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		arrived, release := make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(arrived)
			<-release
		}))
		t.Cleanup(server.Close)
		w, _ := s.createWebhook(server.URL)
		s.insertEvents(1)
		check(t, s.sender.Tick(t.Context()))
		<-arrived
		close(release)
		check(t, s.sender.Close(t.Context()))
		s.wantStates(w.ID, webhook.DeliveryDelivered)
	})
}
