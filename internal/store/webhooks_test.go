package store_test

import (
	"context"
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

// dueWebhook has one event of an account of its own to be sent.
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

// claimOne claims the only webhook that can be.
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

// scalar reads one value from the database beside the store.
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
				check(t, s.DeleteWebhook(ctx, who[0], who[1])) // which does nothing
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
		check(t, s.DeleteWebhook(ctx, account, gone.ID)) // a repeated statement
		if n := scalar[int](t, url, "SELECT COUNT(*) FROM deliveries"); n != 2 {
			t.Errorf("%d deliveries are left", n)
		}
		wantDeliveries(t, s, stays.ID, "2 pending", "1 pending")
		if got := seqs(t, s, account); !cmp.Equal(got, []int64{1, 2}) {
			t.Errorf("events %v are left", got)
		}
		insertEvents(t, s, newEvent(c, card.EventReversed))
		wantDeliveries(t, s, stays.ID, "3 pending", "2 pending", "1 pending")
	})
}
