package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func newReply(account uuid.UUID, key string) webhook.Reply {
	return webhook.Reply{ID: uuid.Must(uuid.NewV7()), AccountID: account, Key: key, RequestHash: []byte("hash"), Sealed: []byte("sealed"), CreatedAt: epoch}
}

func findReply(ctx context.Context, s *store.Store, account uuid.UUID, key string) (r webhook.Reply, err error) {
	err = s.Do(ctx, func(tx *store.Tx) error {
		r, err = tx.Reply(ctx, account, key)
		return err
	})
	return r, err
}

func TestReply_BelongsToAnAccountAndHasOneKey(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, owner := t.Context(), newAccount(t, s)
		kept := newReply(owner, "k")
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, kept) })
		got, err := findReply(ctx, s, owner, "k")
		check(t, err)
		if diff := cmp.Diff(kept, got); diff != "" {
			t.Error(diff)
		}
		for _, of := range []struct {
			account uuid.UUID
			key     string
		}{{newAccount(t, s), "k"}, {owner, "K"}} {
			_, err := findReply(ctx, s, of.account, of.key)
			wantError(t, err, card.ErrNoRow)
		}
		wantError(t, s.Do(ctx, func(tx *store.Tx) error { return tx.InsertReply(ctx, newReply(owner, "k")) }), card.ErrDuplicate)
	})
}

// The key of an order is another request's.
func TestReply_FindsTheKeysOfOrders(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := newCard(newAccount(t, s))
		c.IdempotencyKey, c.RequestHash = "k", []byte("order")
		insertCard(t, s, c)
		got, err := findReply(t.Context(), s, c.AccountID, "k")
		check(t, err)
		if string(got.RequestHash) != "order" || got.Sealed != nil {
			t.Errorf("%+v", got)
		}
	})
}

// No order gets the key of another request.
func TestInsertCard_NotWithTheKeyOfAReply(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 1)
		owner := newAccount(t, s)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, newReply(owner, "k")) })
		used, err := s.KeyUsed(t.Context(), owner, "k")
		check(t, err)
		if free, err := s.KeyUsed(t.Context(), owner, "other"); err != nil || free || !used {
			t.Errorf("used %t, %t: %v", used, free, err)
		}
		for _, account := range []uuid.UUID{owner, newAccount(t, s)} {
			c := newCard(account)
			c.IdempotencyKey, c.RequestHash = "k", []byte("order")
			reserved, err := s.InsertCardReserving(t.Context(), c, 0, shelf, time.Hour)
			check(t, err)
			inserted, err := s.InsertCard(t.Context(), c, 0)
			check(t, err)
			if (reserved || inserted) != (account != owner) {
				t.Errorf("reserved %t, inserted %t", reserved, inserted)
			}
		}
		wantStock(t, s, 0, 1, 0, 0)
	})
}

func TestPruneReplies_TheOldestOnly(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, owner := t.Context(), newAccount(t, s)
		for i, key := range []string{"a", "b", "c"} {
			r := newReply(owner, key)
			r.CreatedAt = epoch.Add(time.Duration(i) * time.Hour)
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, r) })
		}
		for _, want := range []int64{1, 1, 0} { // the third is not old enough
			if n, err := s.PruneReplies(ctx, epoch.Add(2*time.Hour), 1); err != nil || n != want {
				t.Errorf("%d deleted, want %d: %v", n, want, err)
			}
		}
		if _, err := findReply(ctx, s, owner, "b"); !errors.Is(err, card.ErrNoRow) {
			t.Error(err)
		}
		_, err := findReply(ctx, s, owner, "c")
		check(t, err)
	})
}
