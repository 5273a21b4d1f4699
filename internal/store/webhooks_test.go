package store_test

import (
	"context"
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

func newWebhook(account uuid.UUID, types ...card.EventType) *webhook.Webhook {
	return &webhook.Webhook{ID: uuid.Must(uuid.NewV7()), AccountID: account, URL: "https://shop.example.com/hooks",
		Types: types, Enabled: true,
		CreatedAt: epoch, Version: 3, Sealed: []byte("sealed")}
}

func insertWebhook(t testing.TB, s *store.Store, w *webhook.Webhook) *webhook.Webhook {
	t.Helper()
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertWebhook(ctx, w) })
	return w
}

func saveWebhook(t testing.TB, s *store.Store, w *webhook.Webhook) {
	t.Helper()
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.SaveWebhook(ctx, w) })
}

// dueWebhook creates a webhook in a new account, with one due delivery.
func dueWebhook(t testing.TB, s *store.Store) *webhook.Webhook {
	t.Helper()
	account := newAccount(t, s)
	w := insertWebhook(t, s, newWebhook(account))
	insertEvents(t, s, newEvent(insertCard(t, s, newCard(account)), card.EventDetected))
	return w
}

func claim(t testing.TB, s *store.Store, n int, ttl time.Duration) []*webhook.Claim {
	t.Helper()
	claims, err := s.ClaimWebhooks(t.Context(), epoch, n, ttl)
	check(t, err)
	return claims
}

// claimOne claims the only due webhook.
func claimOne(t testing.TB, s *store.Store, ttl time.Duration) *webhook.Claim {
	t.Helper()
	claims := claim(t, s, 9, ttl)
	if len(claims) != 1 {
		t.Fatalf("%d webhooks were claimed", len(claims))
	}
	return claims[0]
}

func saveState(s *store.Store, c *webhook.Claim, state webhook.State) error {
	ctx := context.Background()
	return s.Do(ctx, func(tx *store.Tx) error { return tx.SaveWebhookState(ctx, c, state, epoch, time.Hour) })
}

// scalar reads one value directly from the database.
func scalar[T any](t testing.TB, url, q string) T {
	t.Helper()
	var one T
	check(t, rig.OpenSQL(t, url).QueryRow(q).Scan(&one))
	return one
}

func TestInsertWebhook_TheSameIDTwiceIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := insertWebhook(t, s, newWebhook(newAccount(t, s)))
		again := newWebhook(newAccount(t, s))
		again.ID, again.URL = w.ID, "https://other.example.com/"
		wantError(t, s.Do(t.Context(), func(tx *store.Tx) error { return tx.InsertWebhook(t.Context(), again) }),
			card.ErrDuplicate)
		got, err := s.WebhookByID(t.Context(), w.AccountID, w.ID)
		check(t, err)
		if diff := cmp.Diff(w, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCountWebhooks_OnlyTheAccountsOwn(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		insertWebhook(t, s, newWebhook(newAccount(t, s)))
		for want := range 3 {
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
				n, err := tx.CountWebhooks(ctx, account)
				if n != want {
					t.Errorf("%d webhooks, want %d", n, want)
				}
				return err
			})
			insertWebhook(t, s, newWebhook(account))
		}
		wantError(t, s.Do(t.Context(), func(tx *store.Tx) error { return tx.LockAccount(t.Context(), uuid.New()) }),
			card.ErrNoRow)
	})
}

func TestWebhook_EveryFieldComesBack(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account := t.Context(), newAccount(t, s)
		same := func(what string, want *webhook.Webhook) {
			t.Helper()
			got, err := s.WebhookByID(ctx, account, want.ID)
			check(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, by its id: %s", what, diff)
			}
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
				got, err := tx.LockWebhook(ctx, account, want.ID)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, locked: %s", what, diff)
				}
				return err
			})
			all, err := s.Webhooks(ctx, account)
			check(t, err)
			if diff := cmp.Diff([]*webhook.Webhook{want}, all); diff != "" {
				t.Errorf("%s, listed: %s", what, diff)
			}
		}
		w := newWebhook(account, card.EventGenerated, card.EventWebhookDisabled)
		w.Description, w.Sealed = "the \"shop's\" 🎉 ?\\ %_ $1", []byte{0, 1, 0xff, '\'', 0}
		same("new", insertWebhook(t, s, w))
		until, disabled, since := epoch.Add(24*time.Hour), epoch.Add(time.Hour), epoch.Add(-time.Hour)
		w.URL, w.Description, w.Types = "https://other.example.com:8443/?a=%27&b=?", "", nil
		w.Version, w.Sealed, w.SealedOld, w.OldUntil = 1<<40, []byte("newer"), []byte{0}, &until
		w.Enabled, w.DisabledReason, w.DisabledAt, w.FailingSince = false, webhook.DisabledByRequest, &disabled, &since
		saveWebhook(t, s, w)
		same("changed", w)
		w.SealedOld, w.OldUntil, w.Enabled, w.DisabledReason, w.DisabledAt, w.FailingSince = nil, nil, true, "", nil, nil
		w.Types = card.EventTypes()
		saveWebhook(t, s, w)
		same("emptied", w)
	})
}

func TestWebhooks_OldestFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		a, b, c := newWebhook(account), newWebhook(account), newWebhook(account)
		insertWebhook(t, s, newWebhook(newAccount(t, s)))
		for _, w := range []*webhook.Webhook{b, c, a} {
			insertWebhook(t, s, w)
		}
		saveWebhook(t, s, a)
		got, err := s.Webhooks(t.Context(), account)
		check(t, err)
		if diff := cmp.Diff([]*webhook.Webhook{a, b, c}, got); diff != "" {
			t.Error(diff)
		}
		none, err := s.Webhooks(t.Context(), newAccount(t, s))
		if err != nil || len(none) != 0 {
			t.Errorf("%v, error %v", none, err)
		}
	})
}

func TestWebhook_OfAnotherAccountIsNotFound(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, account, other := t.Context(), newAccount(t, s), newAccount(t, s)
		w := insertWebhook(t, s, newWebhook(account))
		for name, who := range map[string][2]uuid.UUID{
			"of another account": {other, w.ID}, "of nobody": {uuid.New(), w.ID}, "unknown": {account, uuid.New()},
			"zero": {uuid.Nil, uuid.Nil},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := s.WebhookByID(ctx, who[0], who[1])
				wantError(t, err, card.ErrNoRow)
				wantError(t, s.Do(ctx, func(tx *store.Tx) error { _, err := tx.LockWebhook(ctx, who[0], who[1]); return err }),
					card.ErrNoRow)
				check(t, s.DeleteWebhook(ctx, who[0], who[1])) // has no effect
			})
		}
		_, err := s.WebhookByID(ctx, account, w.ID)
		check(t, err)
	})
}

func TestDeleteWebhook_TakesItsDeliveriesAlong(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		ctx, account := t.Context(), newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		gone, stays := insertWebhook(t, s, newWebhook(account)), insertWebhook(t, s, newWebhook(account))
		insertEvents(t, s, newEvent(c, card.EventDetected), newEvent(c, card.EventGenerated))
		check(t, s.DeleteWebhook(ctx, account, gone.ID))
		_, err := s.WebhookByID(ctx, account, gone.ID)
		wantError(t, err, card.ErrNoRow)
		check(t, s.DeleteWebhook(ctx, account, gone.ID)) // a retry
		if n := scalar[int](t, url, "SELECT COUNT(*) FROM deliveries"); n != 2 {
			t.Errorf("%d deliveries are left", n)
		}
		wantDeliveries(t, s, stays.ID, "2 pending", "1 pending")
		if got := seqs(t, s, account); !cmp.Equal(got, []int64{1, 2}) {
			t.Errorf("remaining events: %v", got)
		}
		insertEvents(t, s, newEvent(c, card.EventReversed))
		wantDeliveries(t, s, stays.ID, "3 pending", "2 pending", "1 pending")
	})
}

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
		insertWebhook(t, s, newWebhook(newAccount(t, s))) // has nothing to send
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

// Many failing receivers must not delay healthy ones.
func TestClaimWebhooks_FewestFailuresFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		failures := map[uuid.UUID]int{}
		for i := range 5 {
			dueWebhook(t, s)
			c := claimOne(t, s, expiredAtOnce) // the other claims continue
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
			t.Error("the old holder released the claim")
		}
		check(t, s.ReleaseWebhook(ctx, owner))
		check(t, s.ReleaseWebhook(ctx, owner)) // a retry
		if next := claimOne(t, s, time.Hour); next.Fence <= owner.Fence {
			t.Errorf("fence %d after %d", next.Fence, owner.Fence)
		}
	})
}

// A webhook that always has due deliveries must not delay other webhooks.
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
			t.Errorf("the old holder stored %s", diff)
		}
		check(t, saveState(s, owner, webhook.State{Failures: 2, FailingSince: &since}))
		check(t, s.DeleteWebhook(ctx, w.AccountID, w.ID))
		wantError(t, saveState(s, owner, gone), card.ErrFenced)
	})
}

// A sender with an outdated URL, secret or version of the webhook must not
// store its state.
func TestSaveWebhookState_ChangedWebhookCannotBeWritten(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		w := dueWebhook(t, s)
		c := claimOne(t, s, time.Hour)
		w.Description = "changed"
		saveWebhook(t, s, w) // a change that does not concern senders
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
		check(t, saveState(s, c, webhook.State{Failures: 7, FailingSince: &since, PausedUntil: webhook.Immediately()}))
		if got := claim(t, s, 9, time.Hour); len(got) != 0 {
			t.Error("the claim was not prolonged")
		}
		check(t, s.ReleaseWebhook(t.Context(), c))
		w.FailingSince = &since
		next := claimOne(t, s, time.Hour)
		if diff := cmp.Diff(&webhook.Claim{Webhook: w, Failures: 7, Fence: c.Fence + 1}, next); diff != "" {
			t.Error(diff)
		}
		check(t, saveState(s, next, webhook.State{PausedUntil: webhook.Immediately()}))
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
				t.Error("a disabled webhook was claimed")
			}
		}
	})
}

// Changing a webhook ends its pause: it is tried immediately.
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
