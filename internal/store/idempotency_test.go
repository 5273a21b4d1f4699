package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func newReply(account uuid.UUID, key string) webhook.Reply {
	return webhook.Reply{ID: uuid.Must(uuid.NewV7()), AccountID: account, Key: key, RequestHash: []byte("hash"),
		Sealed: []byte("sealed"), CreatedAt: epoch}
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
		wantError(t, s.Do(ctx, func(tx *store.Tx) error { return tx.InsertReply(ctx, newReply(owner, "k")) }),
			card.ErrDuplicate)
	})
}

// Another request can't use the key of an order.
func TestReply_FindsTheKeysOfOrders(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := newCard(newAccount(t, s))
		c.IdempotencyKey, c.RequestHash = "k", []byte("order")
		insertCard(t, s, c)
		got, err := findReply(t.Context(), s, c.AccountID, "k")
		check(t, err)
		if got.RequestHash != nil || got.Sealed != nil {
			t.Errorf("%+v", got)
		}
	})
}

// An order can't use the key of another request.
func TestInsertCard_NotWithTheKeyOfAReply(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 1)
		owner := newAccount(t, s)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, newReply(owner, "k")) })
		if id, err := s.CardOfKey(t.Context(), owner, "k"); err != nil || id != uuid.Nil {
			t.Errorf("the reply's key belongs to card %s: %v", id, err)
		}
		_, err := s.CardOfKey(t.Context(), owner, "other")
		wantError(t, err, card.ErrNoRow)
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

// A database constraint prevents a card and a reply from sharing a key, so that
// no order of statements assigns one key to two operations.
func TestIdempotencyKeys_KeyOfACard_IsRefusedToAReply(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := newCard(newAccount(t, s))
		c.IdempotencyKey, c.RequestHash = "k", []byte("order")
		insertCard(t, s, c)
		wantError(t,
			s.Do(t.Context(), func(tx *store.Tx) error { return tx.InsertReply(t.Context(), newReply(c.AccountID, "k")) }),
			card.ErrDuplicate)
		other := newAccount(t, s)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, newReply(other, "k")) })
	})
}

func TestIdempotencyKeys_ReplyInAnOpenTransaction_InsertCardWaits(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		c := newCard(newAccount(t, s))
		c.IdempotencyKey, c.RequestHash = "k", []byte("order")
		inserted := make(chan bool, 1)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			check(t, tx.LockAccount(ctx, c.AccountID))
			check(t, tx.InsertReply(ctx, newReply(c.AccountID, "k")))
			go func() {
				stored, err := s.InsertCard(context.Background(), c, 0)
				inserted <- stored || err != nil
			}()
			waitForLock(t, url, func() bool { return len(inserted) > 0 })
			return nil
		})
		if <-inserted {
			t.Error("a card was stored with the key of a reply")
		}
	})
}

// waitForLock returns once a statement waits for a lock, or stop returns true.
// In SQLite all other writes wait anyway.
func waitForLock(t *testing.T, url string, stop func() bool) {
	t.Helper()
	if strings.HasPrefix(url, "sqlite:") {
		return
	}
	beside := rig.OpenSQL(t, url)
	for waits := false; !waits && !stop(); {
		check(t, beside.QueryRow(
			"SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
	}
}

func TestIdempotencyKeys_DeletedRow_ReleasesItsKey(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertReply(ctx, newReply(owner, "k")) })
		if n, err := s.PruneReplies(t.Context(), epoch.Add(time.Hour), 1); err != nil || n != 1 {
			t.Fatalf("%d deleted: %v", n, err)
		}
		c := newCard(owner)
		c.IdempotencyKey, c.RequestHash = "k", []byte("order")
		if stored, err := s.InsertCard(t.Context(), c, 0); err != nil || !stored {
			t.Fatalf("stored %t: %v", stored, err)
		}
	})
}

// The migrations keep all keys. A key that a card and a reply shared becomes
// the card's. Programs of the previous version insert and delete replies as if
// they had their own table.
func TestMigrate_IdempotencyKeys_AreThoseOfCardsAndReplies(t *testing.T) {
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		_, beside := migrateTo(t, url, 26)
		exec := func(format string, args ...any) error {
			_, err := beside.Exec(fmt.Sprintf(format, args...))
			return err
		}
		owner := uuid.Must(uuid.NewV7())
		check(t, exec("INSERT INTO accounts (id, name, created_at) VALUES ('%s', 'a', 0)", owner))
		addCard := func(key string) error {
			return exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
				confirmations_required, idempotency_key) VALUES ('%s', '%s', 0, 1, 'monero', 1, '%s', 1, 0, 's', 0, 1, %s)`, uuid.Must(uuid.NewV7()), owner, uuid.NewString(), key)
		}
		blob := map[bool]string{true: "x'00'", false: "'\\x00'"}[strings.HasPrefix(url, "sqlite:")]
		addReply := func(key string) error {
			return exec(
				"INSERT INTO replies (id, account_id, idempotency_key, request_hash, reply, created_at) VALUES ('%s', '%s', '%s', %s, %s, 0)",
				uuid.Must(uuid.NewV7()), owner, key, blob, blob)
		}
		for _, err := range []error{addCard("'card'"), addCard("'both'"), addCard("NULL"), addReply("reply"),
			addReply("both")} {
			check(t, err)
		}
		migrate(t, url)
		for range 2 { // the second time, each key is taken
			_ = addCard("'card 2'")
			_ = addReply("reply 2")
		}
		if addCard("'reply 2'") == nil || addReply("card") == nil {
			t.Error("a key belongs to a card and a reply")
		}
		check(t, exec("DELETE FROM replies WHERE idempotency_key = 'reply 2'"))
		check(t, addReply("reply 3"))
		var keys []string
		query(t, url, &keys, `SELECT idempotency_key || CASE WHEN card_uuid IS NULL THEN '' ELSE ' of a card' END ||
			CASE WHEN id IS NULL THEN '' ELSE ' of a reply' END FROM idempotency_keys ORDER BY idempotency_key`)
		want := []string{"both of a card", "card of a card", "card 2 of a card", "reply of a reply", "reply 3 of a reply"}
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Error(diff)
		}
		var replies []string
		query(t, url, &replies, "SELECT idempotency_key FROM replies ORDER BY idempotency_key")
		if diff := cmp.Diff([]string{"reply", "reply 3"}, replies); diff != "" {
			t.Error(diff)
		}
	})
}
