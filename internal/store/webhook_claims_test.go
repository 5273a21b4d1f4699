package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestClaimWebhooks_EachIsClaimedByOne(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		const hooks = 60
		for range hooks {
			dueWebhook(t, s)
		}
		var mu sync.Mutex
		claimed := map[uuid.UUID]int{}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for {
					some, err := s.ClaimWebhooks(t.Context(), epoch, 7, time.Hour)
					if err != nil || len(some) > 7 {
						t.Errorf("%d claims, error %v", len(some), err)
						return
					}
					if len(some) == 0 {
						return
					}
					mu.Lock()
					for _, c := range some {
						claimed[c.Webhook.ID]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(claimed) != hooks {
			t.Errorf("%d webhooks were claimed", len(claimed))
		}
		for id, times := range claimed {
			if times != 1 {
				t.Errorf("%s was claimed %d times", id, times)
			}
		}
	})
}

func TestClaimWebhooks_EndsWithItsTimeAndRaisesTheFence(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		first := claimOne(t, s, expiredAtOnce)
		if diff := cmp.Diff(&webhook.Claim{Webhook: w, Fence: first.Fence}, first); diff != "" {
			t.Error(diff)
		}
		second := claimOne(t, s, time.Hour)
		if second.Fence <= first.Fence {
			t.Errorf("fence %d after %d", second.Fence, first.Fence)
		}
		if again := claim(t, s, 9, time.Hour); len(again) != 0 {
			t.Errorf("claimed %+v", again[0])
		}
	})
}

func TestClaimWebhooks_OnlyWhatCanBeSentToNow(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		ctx := t.Context()
		insertWebhook(t, s, newWebhook(newAccount(t, s))) // nothing to send
		want := dueWebhook(t, s)
		disabled := dueWebhook(t, s)
		disabled.Enabled, disabled.DisabledReason, disabled.DisabledAt = false, webhook.DisabledByRequest, &epoch
		saveWebhook(t, s, disabled)
		delivered, waits, paused, failed := dueWebhook(t, s), dueWebhook(t, s), dueWebhook(t, s), dueWebhook(t, s)
		saveDeliveries(t, s, delivered.ID, of(1, webhook.DeliveryDelivered, time.Time{}))
		saveDeliveries(t, s, failed.ID, of(1, webhook.DeliveryFailed, time.Time{}))
		saveDeliveries(t, s, waits.ID, of(1, webhook.DeliveryPending, epoch.Add(time.Hour)))
		for _, c := range claim(t, s, 9, expiredAtOnce) {
			if c.Webhook.ID == paused.ID {
				check(t, saveState(s, c, webhook.State{PausedUntil: epoch.Add(time.Minute)}))
				check(t, s.ReleaseWebhook(ctx, c))
			}
		}
		for _, tt := range []struct {
			after time.Duration
			want  map[uuid.UUID]bool
		}{
			{0, map[uuid.UUID]bool{want.ID: true}},
			{time.Minute - time.Millisecond, map[uuid.UUID]bool{want.ID: true}},
			{time.Minute, map[uuid.UUID]bool{want.ID: true, paused.ID: true}},
			{time.Hour - time.Millisecond, map[uuid.UUID]bool{want.ID: true, paused.ID: true}},
			{time.Hour, map[uuid.UUID]bool{want.ID: true, paused.ID: true, waits.ID: true}},
		} {
			claims, err := s.ClaimWebhooks(ctx, epoch.Add(tt.after), 9, expiredAtOnce)
			check(t, err)
			got := map[uuid.UUID]bool{}
			for _, c := range claims {
				got[c.Webhook.ID] = true
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("after %v: %s", tt.after, diff)
			}
		}
	})
}

// Many dead receivers must not keep those that are well waiting.
func TestClaimWebhooks_FewestFailuresFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		failures := map[uuid.UUID]int{}
		for i := range 5 {
			dueWebhook(t, s)
			c := claimOne(t, s, expiredAtOnce) // the others keep their claims
			failures[c.Webhook.ID] = (i * 3) % 5
			check(t, saveState(s, c, webhook.State{Failures: failures[c.Webhook.ID]}))
		}
		for _, c := range claim(t, s, 9, time.Hour) {
			t.Errorf("claimed %s", c.Webhook.ID)
		}
		all, err := s.Accounts(t.Context())
		check(t, err)
		for _, a := range all {
			hooks, err := s.Webhooks(t.Context(), a.ID)
			check(t, err)
			check(t, s.ReleaseWebhook(t.Context(), &webhook.Claim{Webhook: hooks[0], Fence: 1}))
		}
		for want := 0; want < 5; {
			some := claim(t, s, 2, time.Hour)
			if n := min(2, 5-want); len(some) != n {
				t.Fatalf("%d were claimed, want %d", len(some), n)
			}
			sum := 0
			for _, c := range some {
				sum += c.Failures
				if c.Failures != failures[c.Webhook.ID] {
					t.Errorf("%d failures, want %d", c.Failures, failures[c.Webhook.ID])
				}
			}
			if want < 4 && sum != 2*want+1 || want == 4 && sum != 4 {
				t.Errorf("the claims after %d others have %d failures", want, sum)
			}
			want += len(some)
		}
	})
}

func TestReleaseWebhook_OldHolderCannotReleaseTheNewOnes(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		dueWebhook(t, s)
		zombie := claimOne(t, s, expiredAtOnce)
		owner := claimOne(t, s, time.Hour)
		check(t, s.ReleaseWebhook(ctx, zombie))
		if got := claim(t, s, 9, time.Hour); len(got) != 0 {
			t.Error("the old holder has released it")
		}
		check(t, s.ReleaseWebhook(ctx, owner))
		check(t, s.ReleaseWebhook(ctx, owner)) // a repeated statement
		if next := claimOne(t, s, time.Hour); next.Fence <= owner.Fence {
			t.Errorf("fence %d after %d", next.Fence, owner.Fence)
		}
	})
}

// A webhook that always has something to be sent must not keep the others
// waiting.
func TestClaimWebhooks_LongestNotServedFirst(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		for range 4 {
			dueWebhook(t, s)
		}
		served := map[uuid.UUID]int{}
		for range 12 {
			c := claim(t, s, 1, time.Hour)[0]
			served[c.Webhook.ID]++
			check(t, s.ReleaseWebhook(t.Context(), c))
			_, err := rig.OpenSQL(t, url).Exec("UPDATE webhooks SET claimed_until = claimed_until - 1000") // a second later
			check(t, err)
		}
		for id, n := range served {
			if n != 3 {
				t.Errorf("%s was claimed %d times of 12", id, n)
			}
		}
	})
}

func TestSaveWebhookState_LostClaimCannotWrite(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		w := dueWebhook(t, s)
		zombie := claimOne(t, s, expiredAtOnce)
		owner := claimOne(t, s, time.Hour)
		since := epoch.Add(-time.Hour)
		gone := webhook.State{Failures: 9, FailingSince: &since, PausedUntil: epoch.Add(time.Hour),
			DisabledReason: webhook.DisabledGone}
		wantError(t, saveState(s, zombie, gone), card.ErrFenced)
		got, err := s.WebhookByID(ctx, w.AccountID, w.ID)
		check(t, err)
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("the old holder has written: %s", diff)
		}
		check(t, saveState(s, owner, webhook.State{Failures: 2, FailingSince: &since}))
		check(t, s.DeleteWebhook(ctx, w.AccountID, w.ID))
		wantError(t, saveState(s, owner, gone), card.ErrFenced)
	})
}

// A sender that knows an older address or secret, or not that the webhook was
// mended, must not note anything.
func TestSaveWebhookState_ChangedWebhookCannotBeWritten(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		c := claimOne(t, s, time.Hour)
		w.Description = "changed"
		saveWebhook(t, s, w) // which no sender has to know of
		check(t, saveState(s, c, webhook.State{}))
		for _, version := range []int64{4, 2} {
			w.Version = version
			saveWebhook(t, s, w)
			wantError(t, saveState(s, c, webhook.State{DisabledReason: webhook.DisabledGone}), card.ErrFenced)
			got, err := s.WebhookByID(t.Context(), w.AccountID, w.ID)
			check(t, err)
			if diff := cmp.Diff(w, got); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestCheckClaim_OnlyTheNewestUntilTheWebhookIsDeleted(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		zombie := claimOne(t, s, expiredAtOnce)
		owner := claimOne(t, s, time.Hour)
		checkClaim := func(c *webhook.Claim) error {
			return s.Do(t.Context(), func(tx *store.Tx) error { return tx.CheckClaim(t.Context(), c) })
		}
		wantError(t, checkClaim(zombie), card.ErrFenced)
		w.Version++
		saveWebhook(t, s, w)
		check(t, checkClaim(owner))
		check(t, s.DeleteWebhook(t.Context(), w.AccountID, w.ID))
		wantError(t, checkClaim(owner), card.ErrFenced)
	})
}

func TestSaveWebhookState_ProlongsTheClaimAndIsKept(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		c := claimOne(t, s, expiredAtOnce)
		since := epoch.Add(-time.Hour)
		check(t, saveState(s, c, webhook.State{Failures: 7, FailingSince: &since, PausedUntil: webhook.AtOnce()}))
		if got := claim(t, s, 9, time.Hour); len(got) != 0 {
			t.Error("the claim was not prolonged")
		}
		check(t, s.ReleaseWebhook(t.Context(), c))
		w.FailingSince = &since
		next := claimOne(t, s, time.Hour)
		if diff := cmp.Diff(&webhook.Claim{Webhook: w, Failures: 7, Fence: c.Fence + 1}, next); diff != "" {
			t.Error(diff)
		}
		check(t, saveState(s, next, webhook.State{PausedUntil: webhook.AtOnce()}))
		got, err := s.WebhookByID(t.Context(), w.AccountID, w.ID)
		check(t, err)
		if got.FailingSince != nil {
			t.Errorf("failing since %v", got.FailingSince)
		}
	})
}

func TestSaveWebhookState_Disables(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		for _, reason := range []webhook.DisabledReason{webhook.DisabledGone, webhook.DisabledFailing} {
			w := dueWebhook(t, s)
			check(t, saveState(s, claimOne(t, s, expiredAtOnce), webhook.State{DisabledReason: reason}))
			got, err := s.WebhookByID(t.Context(), w.AccountID, w.ID)
			check(t, err)
			w.Enabled, w.DisabledReason, w.DisabledAt = false, reason, &epoch
			if diff := cmp.Diff(w, got); diff != "" {
				t.Error(diff)
			}
			if again := claim(t, s, 9, time.Hour); len(again) != 0 {
				t.Error("it is claimed although it is disabled")
			}
		}
	})
}

// Whoever changes a webhook has mended it: it is tried at once.
func TestSaveWebhook_NewVersionEndsThePause(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		w := dueWebhook(t, s)
		check(t, saveState(s, claimOne(t, s, time.Hour), webhook.State{Failures: 4, PausedUntil: epoch.Add(time.Hour)}))
		want := func(failures int, paused int64) {
			t.Helper()
			if got := scalar[int](t, url, "SELECT failures FROM webhooks"); got != failures {
				t.Errorf("%d failures, want %d", got, failures)
			}
			if got := scalar[int64](t, url, "SELECT paused_until FROM webhooks"); got != paused {
				t.Errorf("paused until %d, want %d", got, paused)
			}
		}
		w.Description, w.Types = "changed", []card.EventType{card.EventLate}
		saveWebhook(t, s, w)
		want(4, epoch.Add(time.Hour).UnixMilli())
		w.Version++
		saveWebhook(t, s, w)
		want(0, 0)
	})
}
