package webhook_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/webhook"
)

// once returns the service for one repeated request.
func (s *fixture) once(operation string) (*webhook.Service, *webhook.KeyedRequest) {
	o := &webhook.KeyedRequest{AccountID: s.account, Key: "k", Request: []string{operation}}
	return s.webhooks.Keyed(o), o
}

// The first request fails, either without effect or after its commit. A
// repetition leaves one webhook, and returns its secret.
func TestOnce_CreateReplyLost_ReplaysWebhook(t *testing.T) {
	lost := errors.New("connection lost")
	for name, around := range map[string]func(func() error) error{
		"failed":                func(func() error) error { return lost },
		"committed, reply lost": func(do func() error) error { return errors.Join(do(), lost) },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				url := "https://shop.example.com/hooks"
				create := func() (*webhook.Webhook, card.Secret, bool, error) {
					hooks, o := s.once("create")
					w, secret, err := hooks.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &url})
					return w, secret, o.Replayed, err
				}
				s.around = around
				_, _, _, err := create()
				wantError(t, err, lost)
				s.around = nil
				w, secret, replayed, err := create()
				check(t, err)
				if replayed != (name == "committed, reply lost") {
					t.Errorf("replayed %t", replayed)
				}
				all, err := s.webhooks.ListWebhooks(t.Context(), s.account)
				check(t, err)
				if len(all) != 1 || all[0].ID != w.ID {
					t.Fatalf("%d webhooks", len(all))
				}
				kept, err := s.vault.Open(w.ID, s.account, "webhook_secret", all[0].Sealed)
				check(t, err)
				if kept.Reveal() != secret.Reveal() {
					t.Error("signed with another secret")
				}
			})
		})
	}
}

// If the reply to a rotation was lost, a repetition does not rotate again: the
// secret that the receiver knows still signs.
func TestOnce_RotationReplyLost_ReplaysSecret(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		lost := errors.New("connection lost")
		w, first := s.createWebhook("https://shop.example.com/hooks")
		var second card.Secret
		for range 3 {
			s.around = func(do func() error) error { return errors.Join(do(), lost) }
			hooks, _ := s.once("rotate")
			_, _, err := hooks.RotateWebhookSecret(t.Context(), s.account, w.ID)
			wantError(t, err, lost)
			s.around = nil
			hooks, o := s.once("rotate")
			_, secret, err := hooks.RotateWebhookSecret(t.Context(), s.account, w.ID)
			check(t, err)
			if second != "" && secret.Reveal() != second.Reveal() || !o.Replayed {
				t.Errorf("replayed %t", o.Replayed)
			}
			second = secret
		}
		now, err := s.webhooks.GetWebhook(t.Context(), s.account, w.ID)
		check(t, err)
		for sealed, want := range map[*[]byte]card.Secret{&now.Sealed: second, &now.SealedOld: first} {
			if got, err := s.vault.Open(w.ID, s.account, "webhook_secret", *sealed); err != nil ||
				got.Reveal() != want.Reveal() {
				t.Errorf("signed with another secret: %v", err)
			}
		}
	})
}

// A repeated redelivery request causes no second redelivery, even if its first
// reply was lost.
func TestOnce_RedeliveryReplyLost_RedeliversOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		w, _ := s.createWebhook("https://shop.example.com/hooks")
		e := s.insertEvents(1)[0]
		lost := errors.New("connection lost")
		s.around = func(do func() error) error { return errors.Join(do(), lost) }
		hooks, _ := s.once("redeliver")
		wantError(t, hooks.Redeliver(t.Context(), s.account, w.ID, e.ID), lost)
		s.around = nil
		before, _, err := s.webhooks.ListDeliveries(t.Context(), s.account, w.ID, webhook.DeliveryFilter{Limit: 1})
		check(t, err)
		s.advance(time.Minute)
		hooks, o := s.once("redeliver")
		check(t, hooks.Redeliver(t.Context(), s.account, w.ID, e.ID))
		after, _, err := s.webhooks.ListDeliveries(t.Context(), s.account, w.ID, webhook.DeliveryFilter{Limit: 1})
		check(t, err)
		if !o.Replayed || !after[0].DueAt.Equal(before[0].DueAt) {
			t.Errorf("replayed %t, due %s and then %s", o.Replayed, before[0].DueAt, after[0].DueAt)
		}
		another := &webhook.KeyedRequest{AccountID: s.account, Key: "k", Request: []string{"another"}}
		wantError(t, s.webhooks.Keyed(another).Redeliver(t.Context(), s.account, w.ID, e.ID), card.ErrKeyReused)
	})
}

// Replies are encrypted, and bound to their account.
func TestOnce_CorruptReply_IsNotReplayed(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		url := "https://shop.example.com/hooks"
		hooks, _ := s.once("create")
		_, _, err := hooks.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &url})
		check(t, err)
		db := rig.OpenSQL(t, s.url)
		if _, err := db.Exec("UPDATE idempotency_keys SET id = '" + uuid.NewString() + "'"); err != nil {
			t.Fatal(err)
		}
		hooks, o := s.once("create")
		if _, _, err := hooks.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &url}); err == nil || o.Replayed {
			t.Errorf("replayed %t: %v", o.Replayed, err)
		}
	})
}

// Replies are kept for two days, even if deliveries are pruned earlier.
func TestPrune_KeepsReplies(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		url := "https://shop.example.com/hooks"
		for i, want := range []bool{false, true} {
			hooks, o := s.once("create")
			_, _, err := hooks.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &url})
			check(t, err)
			if o.Replayed != want {
				t.Errorf("time %d: replayed %v", i, o.Replayed)
			}
			check(t, s.sender.Prune(t.Context()))
		}
	})
}

// An order uses the key between the request's lookup and its commit. PostgreSQL
// only: SQLite has one writer.
func TestOnce_KeyUsedByConcurrentOrder_IsRejected(t *testing.T) {
	t.Parallel()
	s := newFixture(t, databases.Postgres(t))
	ordered := insertCard(t, s.store, s.account)
	order, err := rig.OpenSQL(t, s.url).Begin()
	check(t, err)
	defer func() { _ = order.Rollback() }()
	_, err = order.Exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
		confirmations_required, idempotency_key, request_hash) SELECT gen_random_uuid(), account_id, created_at, usd_cents, currency, amount, 'another', rate,
		rate_at, rate_source, expires_at, confirmations_required, 'k', 'order' FROM cards WHERE uuid = $1`, ordered.UUID)
	check(t, err)
	done := make(chan struct{})
	url, failed := "https://shop.example.com/hooks", error(nil)
	go func() {
		defer close(done)
		hooks, _ := s.once("create")
		_, _, failed = hooks.CreateWebhook(context.Background(), s.account, webhook.Request{URL: &url})
	}()
	awaitLock(t, s.url, done)
	check(t, order.Commit())
	<-done
	wantError(t, failed, card.ErrKeyReused)
	all, err := s.webhooks.ListWebhooks(t.Context(), s.account)
	check(t, err)
	if len(all) > 0 {
		t.Errorf("%d webhooks were created with the key of an order", len(all))
	}
}
