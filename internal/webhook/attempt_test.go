package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// openVault stores secrets unencrypted.
type openVault struct{}

func (openVault) Seal(_, _ uuid.UUID, _ string, plaintext card.Secret) ([]byte, error) {
	return []byte(plaintext.Reveal()), nil
}
func (openVault) Open(_, _ uuid.UUID, _ string, sealed []byte) (card.Secret, error) {
	if strings.HasPrefix(string(sealed), "broken") {
		return "", errors.New("can't be decrypted")
	}
	return card.Secret(sealed), nil
}

// sending is a service with a test clock, and an account with two webhooks: w
// under test, and other, which receives events about w.
type sending struct {
	*webhook.Service
	sender *webhook.Sender
	store  *store.Store
	log    *log
	wakes  int // of the sender
	now    time.Time
	card   *card.Card
	hook   *webhook.Webhook
	other  *webhook.Webhook // receives events about disabled webhooks only
}

func newSending(t *testing.T, s *store.Store) *sending {
	t.Helper()
	x := &sending{store: s, log: &log{}, now: epoch}
	var err error
	cfg := webhook.Config{Now: func() time.Time { return x.now }}
	poster := webhook.NewHTTPPoster(outbound.Guard{}) // checks addresses, but sends nothing in these tests
	t.Cleanup(poster.Close)
	x.Service, err = webhook.New(s, openVault{}, poster, func() {}, cfg)
	check(t, err)
	x.sender, err = webhook.NewSender(s, openVault{}, poster, func() {
		x.wakes++
	}, slog.New(slog.NewTextHandler(x.log, nil)), cfg)
	check(t, err)
	x.card = insertCard(t, s, newAccount(t, s))
	x.hook = insertWebhook(t, s, newWebhook(x.card.AccountID, card.EventDetected))
	x.other = insertWebhook(t, s, newWebhook(x.card.AccountID, card.EventWebhookDisabled))
	return x
}

// insertEvents inserts n events, so that deliveries are due.
func (x *sending) insertEvents(t testing.TB, n int) {
	t.Helper()
	es := make([]card.Event, n)
	for i := range es {
		es[i] = newEvent(x.card, card.EventDetected)
	}
	insertEvents(t, x.store, es...)
}

// change changes the webhook under test.
func (x *sending) change(t testing.TB, r webhook.Request) {
	t.Helper()
	_, err := x.UpdateWebhook(t.Context(), x.card.AccountID, x.hook.ID, r)
	check(t, err)
}

func ptr[T any](v T) *T { return &v }

// claim claims the webhook under test.
func (x *sending) claim(t testing.TB) *webhook.Claim {
	t.Helper()
	all, err := x.sender.Claims(t.Context(), 9)
	check(t, err)
	i := slices.IndexFunc(all, func(c *webhook.Claim) bool { return c.Webhook.ID == x.hook.ID })
	if i < 0 {
		t.Fatal("the webhook can't be claimed")
	}
	return all[i]
}

// due returns all due deliveries, in any order.
func (x *sending) due(t testing.TB, c *webhook.Claim) []webhook.Delivery {
	t.Helper()
	ds, err := x.store.DueDeliveries(t.Context(), c.Webhook.ID, x.now, 99)
	check(t, err)
	return ds
}

// attempted pairs the due deliveries with attempts of the given statuses.
func (x *sending) attempted(t testing.TB, c *webhook.Claim, statuses ...int) (all []webhook.Attempted) {
	t.Helper()
	due := x.due(t, c)
	for i, status := range statuses {
		all = append(all, webhook.Attempted{Delivery: due[i], Attempt: webhook.Attempt{At: x.now, Status: status}})
	}
	return all
}

func (x *sending) save(t testing.TB, c *webhook.Claim, attempted []webhook.Attempted) {
	t.Helper()
	check(t, x.sender.SaveAttempts(t.Context(), c, attempted))
}

func (x *sending) read(t testing.TB) *webhook.Webhook {
	t.Helper()
	w, err := x.GetWebhook(t.Context(), x.card.AccountID, x.hook.ID)
	check(t, err)
	return w
}

func TestSaveAttempts_DeadReceiver_IsPausedWithBackoff(t *testing.T) {
	storetest.Each(t, func(t *testing.T, url string) {
		s := open(t, url)
		x := newSending(t, s)
		x.insertEvents(t, 50)
		for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60} {
			c := x.claim(t)
			if c.Failures != i || c.Ended {
				t.Fatalf("claimed with %d failures, over: %t", c.Failures, c.Ended)
			}
			x.save(t, c, x.attempted(t, c, 500))
			want *= time.Second
			if c.Failures != i+1 || c.Ended != (want > 0) || !c.Webhook.FailingSince.Equal(epoch) {
				t.Errorf("after failure %d: %d, over: %t, failing since %v", i+1, c.Failures, c.Ended, c.Webhook.FailingSince)
			}
			check(t, x.store.ReleaseWebhook(t.Context(), c))
			if want > 0 {
				x.now = x.now.Add(want - time.Millisecond)
				if all, err := x.sender.Claims(t.Context(), 9); err != nil || len(all) != 0 {
					t.Fatalf("after failure %d: claimed before %v have passed, error %v", i+1, want, err)
				}
				x.now = x.now.Add(time.Millisecond)
			}
		}
		c := x.claim(t)
		x.save(t, c, x.attempted(t, c, 204))
		if c.Failures != 0 || c.Ended || c.Webhook.FailingSince != nil {
			t.Errorf("after a success: %d failures, over: %t, failing since %v", c.Failures, c.Ended, c.Webhook.FailingSince)
		}
		x.save(t, c, x.attempted(t, c, 500, 500))
		x.save(t, c, x.attempted(t, c, 500))
		if c.Failures != 2 || c.Ended || !c.Webhook.FailingSince.Equal(x.now) {
			t.Errorf("after two more: %d failures, over: %t, failing since %v", c.Failures, c.Ended, c.Webhook.FailingSince)
		}
		if got := scalar[int64](t, url,
			fmt.Sprintf("SELECT paused_until FROM webhooks WHERE id = '%s'", x.hook.ID)); got != 0 {
			t.Errorf("paused until %d", got)
		}
	})
}

// Attempts are concurrent, so a batch that fails as a whole counts as one
// failure, and a single success resets the count. So does a rejection of an
// event, unless the receiver was down for another event. A receiver that
// rejects all events counts as failing.
func TestSaveAttempts_BatchWithoutSuccess_CountsAsOneFailure(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		for _, tt := range []struct {
			rounds   [][]int
			failures int
			over     bool
			failing  bool
		}{
			{[][]int{{500, 500, 500, 500, 200}}, 0, false, false}, {[][]int{{200, 500, 500}}, 0, false, true},
			{[][]int{{0, 301, 404, 500}}, 1, false, true},
			{[][]int{{500, 200, 500, 500, 500}, {500}, {500, 500}}, 2, false, true},
			{[][]int{{500}, {500}, {500}}, 3, true, true},
			{[][]int{{500}, {500}, {500, 200}}, 0, false, false}, {[][]int{{400}, {404, 422}, {301, 400}}, 0, false, true},
			{[][]int{{404}, {403, 301}, {401, 405, 404}}, 3, true, true}, {[][]int{{404}, {404}, {404, 200}}, 0, false, false},
			{[][]int{{500}, {503}, {404}}, 3, true, true}, {[][]int{{408}, {429}, {404, 0}}, 3, true, true},
		} {
			x := newSending(t, s)
			x.insertEvents(t, 9)
			c := x.claim(t)
			for _, statuses := range tt.rounds {
				x.save(t, c, x.attempted(t, c, statuses...))
			}
			if text := x.log.String(); x.wakes > 0 || text != "" {
				t.Errorf("%v: woke the sender %d times; logged: %s", tt.rounds, x.wakes, text)
			}
			if c.Failures != tt.failures || c.Ended != tt.over || (x.read(t).FailingSince != nil) != tt.failing {
				t.Errorf("%v: %d failures, over: %t, failing since %v", tt.rounds, c.Failures, c.Ended, x.read(t).FailingSince)
			}
			check(t, x.store.ReleaseWebhook(t.Context(), c))
		}
	})
}

// Only an event's last attempt disables a webhook: otherwise the first failure
// after a long silence would disable a webhook with few events.
func TestSaveAttempts_FiveDaysOfFailuresAndExhaustedEvent_Disables(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		const days = 24 * time.Hour
		x := newSending(t, s)
		x.insertEvents(t, 9)
		attempt := func(after time.Duration, status int, last bool) *webhook.Claim {
			t.Helper()
			x.now = epoch.Add(after)
			check(t, rawRelease(s, x.hook))
			c := x.claim(t)
			attempted := x.attempted(t, c, status)
			if last {
				attempted[0].Delivery.Tries = 9
			}
			x.save(t, c, attempted)
			return c
		}
		attempt(0, 500, false)
		attempt(4*days, 200, false) // restarts the five days
		attempt(4*days+time.Hour, 503, true)
		attempt(9*days+time.Hour, 0, true)
		if w := x.read(t); !w.Enabled || !w.FailingSince.Equal(epoch.Add(4*days+time.Hour)) {
			t.Fatalf("after exactly five days: %+v", w)
		}
		attempt(9*days+time.Hour+time.Minute, 500, false)
		if w := x.read(t); !w.Enabled {
			t.Fatal("disabled by an event's first attempt")
		}
		c := attempt(9*days+time.Hour+3*time.Minute, 500, true)
		w := x.read(t)
		if !c.Ended || w.Enabled || w.DisabledReason != webhook.DisabledFailing || !w.DisabledAt.Equal(x.now) {
			t.Errorf("after more than five days: over: %t, %+v", c.Ended, w)
		}
		x.wantDisabledEvents(t, 1)
	})
}

// rawRelease releases any claim.
func rawRelease(s *store.Store, w *webhook.Webhook) error {
	var errs []error
	for fence := range int64(20) {
		errs = append(errs, s.ReleaseWebhook(context.Background(), &webhook.Claim{Webhook: w, Fence: fence}))
	}
	return errors.Join(errs...)
}

// wantDisabledEvents checks that n events about the disabled webhook were sent
// to the account's other webhook, and none to itself.
func (x *sending) wantDisabledEvents(t testing.TB, n int) {
	t.Helper()
	ds := deliveries(t, x.store, x.other.ID)
	if len(ds) != n {
		t.Errorf("%d events about a disabled webhook, want %d", len(ds), n)
	}
	for _, d := range ds {
		if e := d.Event; e.Type != card.EventWebhookDisabled || e.WebhookID != x.hook.ID || e.CardUUID != uuid.Nil ||
			d.State != webhook.DeliveryPending {
			t.Errorf("%s %+v", d.State, e)
		}
	}
	for _, d := range deliveries(t, x.store, x.hook.ID) {
		if d.Event.Type == card.EventWebhookDisabled {
			t.Error("the webhook received an event about itself")
		}
	}
}

// The client sees the reason. A status 410 is more specific than five days of
// failures.
func TestSaveAttempts_GoneAfterFiveDays_IsTheReason(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		c := x.claimAfterFailure(t)
		x.now = x.now.Add(6 * 24 * time.Hour)
		attempted := x.attempted(t, c, 410)
		attempted[0].Delivery.Tries = 9
		x.save(t, c, attempted)
		if w := x.read(t); w.Enabled || w.DisabledReason != webhook.DisabledGone {
			t.Errorf("%+v", w)
		}
		x.wantDisabledEvents(t, 1)
	})
}

func TestSaveAttempts_Gone_DisablesAndKeepsPending(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 4)
		c := x.claim(t)
		x.save(t, c, x.attempted(t, c, 200, 410, 410)) // two concurrent attempts, and an unsent delivery
		if text := x.log.String(); x.wakes != 1 || strings.Count(text, "webhook disabled") != 1 ||
			!strings.Contains(text, "reason=gone") {
			t.Errorf("woke the sender %d times for the event; logged: %s", x.wakes, text)
		}
		w := x.read(t)
		if !c.Ended || w.Enabled || w.DisabledReason != webhook.DisabledGone || !w.DisabledAt.Equal(x.now) {
			t.Errorf("over: %t, %+v", c.Ended, w)
		}
		x.wantDisabledEvents(t, 1)
		check(t, x.store.ReleaseWebhook(t.Context(), c))
		x.now = x.now.Add(time.Hour)
		if all, err := x.sender.Claims(t.Context(), 9); err != nil || len(all) != 1 || all[0].Webhook.ID != x.other.ID {
			t.Errorf("%v, error %v", all, err)
		}
		x.insertEvents(t, 1)
		wantDeliveries(t, s, x.hook.ID, "4 pending", "3 pending", "2 pending", "1 delivered")
		if a := deliveries(t, s, x.hook.ID)[2].Attempts; len(a) != 1 || a[0].Status != 410 {
			t.Errorf("%+v", a)
		}
		x.change(t, webhook.Request{Enabled: ptr(true)})
		c = x.claim(t)
		x.save(t, c, x.attempted(t, c, 200, 200, 200))
		wantDeliveries(t, s, x.hook.ID, "4 delivered", "3 delivered", "2 delivered", "1 delivered")
	})
}

// While a receiver is down, every second batch is a retry. Otherwise new events
// would use all attempts.
func TestDueDeliveries_FailingReceiver_AlternatesWithRetries(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 4)
		c := x.claim(t)
		want := func(failures, n int, seqs ...int64) {
			t.Helper()
			c.Failures = failures
			due, err := x.sender.DueDeliveries(t.Context(), c, n)
			check(t, err)
			var got []int64
			for _, d := range due {
				got = append(got, d.Event.Seq)
			}
			if !slices.Equal(got, seqs) {
				t.Errorf("after %d failures: events %v, want %v", failures, got, seqs)
			}
		}
		x.save(t, c, x.attempted(t, c, 500, 500))
		want(1, 9, 3, 4) // no retry is due yet
		x.now = x.now.Add(7 * time.Second)
		want(0, 2, 3, 4)
		want(1, 9, 1, 2)
		want(1, 1, 1)
		want(2, 2, 3, 4)
		want(3, 9, 1, 2)
	})
}

func TestSaveAttempts_RenewsClaim(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 2)
		all, err := s.ClaimWebhooks(t.Context(), x.now, 9, 0) // expired immediately
		check(t, err)
		x.save(t, all[0], x.attempted(t, all[0], 200))
		if again, err := x.sender.Claims(t.Context(), 9); err != nil || len(again) != 0 {
			t.Errorf("%d claimed by another sender, error %v", len(again), err)
		}
	})
}

// A sender that does not know whether its attempts were stored stores them
// again.
func TestSaveAttempts_RepeatedAfterLostReply_CountsOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		for _, last := range []int{500, 410} {
			x := newSending(t, s)
			x.insertEvents(t, 3)
			c := x.claim(t)
			hook := *c.Webhook
			unaware := &webhook.Claim{Webhook: &hook, Failures: c.Failures, Fence: c.Fence}
			attempted := x.attempted(t, c, 200, 503, last)
			x.save(t, c, attempted)
			want := deliveries(t, s, x.hook.ID)
			x.now = x.now.Add(time.Second)
			err := x.sender.SaveAttempts(t.Context(), unaware, attempted)
			if last == 500 && (err != nil || unaware.Failures != c.Failures) || last == 410 && !errors.Is(err, card.ErrFenced) {
				t.Errorf("%d: %d failures, error %v", last, unaware.Failures, err)
			}
			if diff := cmp.Diff(want, deliveries(t, s, x.hook.ID)); diff != "" {
				t.Error(diff)
			}
			x.wantDisabledEvents(t, map[int]int{500: 0, 410: 1}[last])
		}
	})
}

// A process that stalled for longer than its claim must not overwrite the
// results of the next one. Its deliveries are then sent twice.
func TestSaveAttempts_LostClaim_SavesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		x := newSending(t, s)
		x.insertEvents(t, 2)
		zombie := x.claim(t)
		late := x.attempted(t, zombie, 410, 200)
		check(t, x.store.ReleaseWebhook(ctx, zombie))
		owner := x.claim(t)
		wantError(t, x.sender.SaveAttempts(ctx, zombie, late), card.ErrFenced)
		wantDeliveries(t, s, x.hook.ID, "2 pending", "1 pending")
		x.save(t, owner, x.attempted(t, owner, 200))
		if w := x.read(t); !w.Enabled {
			t.Errorf("%+v", w)
		}
		rest := x.attempted(t, owner, 200)
		check(t, x.DeleteWebhook(ctx, x.card.AccountID, x.hook.ID))
		wantError(t, x.sender.SaveAttempts(ctx, owner, rest), card.ErrFenced)
		x.wantDisabledEvents(t, 0)
	})
}

// A failure from before the client's change concerns the old URL or secret, or
// a cause that no longer exists. It is sent again, unless it has arrived.
func TestSaveAttempts_WebhookChanged_SavesOnlySuccesses(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		for name, change := range map[string]func(t *testing.T, x *sending){
			"disabled": func(t *testing.T, x *sending) { x.change(t, webhook.Request{Enabled: ptr(false)}) },
			"re-enabled": func(t *testing.T, x *sending) {
				x.change(t, webhook.Request{Enabled: ptr(false)})
				x.change(t, webhook.Request{Enabled: ptr(true)})
			},
			"new URL": func(t *testing.T, x *sending) {
				x.change(t, webhook.Request{URL: ptr("https://other.example.com/")})
			},
			"new secret": func(t *testing.T, x *sending) {
				_, _, err := x.RotateWebhookSecret(t.Context(), x.card.AccountID, x.hook.ID)
				check(t, err)
			},
			"deleted": func(t *testing.T, x *sending) { check(t, x.DeleteWebhook(t.Context(), x.card.AccountID, x.hook.ID)) },
		} {
			t.Run(name, func(t *testing.T) {
				x := newSending(t, s)
				x.insertEvents(t, 3)
				c := x.claim(t)
				x.save(t, c, x.attempted(t, c, 500))
				x.now = x.now.Add(6 * 24 * time.Hour)
				attempted := x.attempted(t, c, 410, 200, 500)
				attempted[2].Delivery.Tries = 9
				change(t, x)
				var before *webhook.Webhook
				if name != "deleted" {
					before = x.read(t)
				}
				wantError(t, x.sender.SaveAttempts(t.Context(), c, attempted), card.ErrFenced)
				x.wantDisabledEvents(t, 0)
				if name == "deleted" {
					wantDeliveries(t, s, x.hook.ID)
					return
				}
				if diff := cmp.Diff(before, x.read(t)); diff != "" {
					t.Error(diff)
				}
				wantDeliveries(t, s, x.hook.ID, "3 delivered", "2 pending", "1 pending")
				if name == "disabled" {
					x.change(t, webhook.Request{Enabled: ptr(true)})
				}
				check(t, x.store.ReleaseWebhook(t.Context(), c))
				if next := x.claim(t); next.Failures != 0 || len(x.due(t, next)) != 2 {
					t.Errorf("claimed with %d failures, %d due", next.Failures, len(x.due(t, next)))
				}
			})
		}
	})
}

// A new description or other types do not concern the sender.
func TestSaveAttempts_DescriptionChanged_SavesAll(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		x.insertEvents(t, 2)
		c := x.claim(t)
		attempted := x.attempted(t, c, 500, 200)
		x.change(t, webhook.Request{Description: ptr("d"), URL: &x.hook.URL, Enabled: ptr(true),
			Types: &[]card.EventType{card.EventLate}})
		x.save(t, c, attempted)
		wantDeliveries(t, s, x.hook.ID, "2 delivered", "1 pending")
		if w := x.read(t); w.Description != "d" || !slices.Equal(w.Types, []card.EventType{card.EventLate}) {
			t.Errorf("%+v", w)
		}
	})
}
