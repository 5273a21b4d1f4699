package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
)

// attempt is a card that is inserted concurrently with others.
type attempt struct {
	card  *card.Card
	limit card.USD
	want  bool // whether it is stored
}

// together starts to insert cards that share a statement, which wait runs. On
// SQLite, the first card gets its own statement, because nothing delays the
// first worker before it takes its batch.
func together(t *testing.T, s *store.Store, ctx context.Context, all []attempt) (stored []bool, errs []error,
	wait func()) {
	t.Helper()
	release, err := store.HoldWrites(t.Context(), s)
	check(t, err)
	stored, errs = make([]bool, len(all)), make([]error, len(all))
	blocked := store.BlockedWrites(s)
	var inserting sync.WaitGroup
	for i, a := range all {
		inserting.Go(func() { stored[i], errs[i] = s.InsertCard(ctx, a.card, a.limit) })
		for store.Queued(s) <= i || !store.Arrays(s) && store.BlockedWrites(s) == blocked {
			runtime.Gosched()
		}
	}
	return stored, errs, sync.OnceFunc(func() {
		release()
		inserting.Wait()
	})
}

// A card that shares its statement is stored, omitted or refused as it would be
// alone.
func TestInsertCard_InBatch_SameResultAsAlone(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account, other := newAccount(t, s), newAccount(t, s)
		var all []attempt
		add := func(want bool, change func(*card.Card)) *attempt {
			c := newCard(account)
			change(c)
			all = append(all, attempt{card: c, want: want})
			return &all[len(all)-1]
		}
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.InsertReply(ctx, newReply(account, "replied"))
		})
		earlier := newCard(account)
		earlier.IdempotencyKey = "earlier"
		insertCard(t, s, earlier)
		arrive(t, s, card.Transfer{Address: "paid before", Amount: 1})
		shared := card.Secret("x\x01\"'\\{},NULL")
		for i := range 10 {
			add(true, func(c *card.Card) { c.IdempotencyKey = fmt.Sprint("key ", 9-i) })
			add(true, func(c *card.Card) { c.Reference, c.Metadata = &shared, shared })
			add(true, func(c *card.Card) { c.RequestHash, c.SealedRefundAddress = []byte{0, '\\', 255}, []byte{1} })
		}
		add(false, func(c *card.Card) { c.IdempotencyKey = "key 5" })
		add(true, func(c *card.Card) { c.IdempotencyKey, c.AccountID = "key 5", other })
		add(false, func(c *card.Card) { c.IdempotencyKey = "replied" })
		add(false, func(c *card.Card) { c.IdempotencyKey = "earlier" })
		add(false, func(c *card.Card) { c.Address = "paid before" })
		_, _, wait := together(t, s, t.Context(), nil)
		wait()
		stored, errs, wait := together(t, s, t.Context(), all)
		wait()
		for i, a := range all {
			if stored[i] != a.want || errs[i] != nil {
				t.Errorf("card %d (key %q): stored %t, error %v; want %t", i, a.card.IdempotencyKey, stored[i], errs[i], a.want)
			}
			found, err := s.CardByUUID(t.Context(), a.card.AccountID, a.card.UUID)
			if !a.want {
				wantError(t, err, card.ErrNoRow)
				continue
			}
			check(t, err)
			a.card.Transfers, a.card.Tag, a.card.Credit.Due = []card.Transfer{}, found.Tag, a.card.Amount
			if diff := cmp.Diff(a.card, found); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestInsertCard_BadCardInBatch_OthersAreStored(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		earlier := insertCard(t, s, newCard(account))
		all := make([]attempt, 20)
		for i := range all {
			all[i].card = newCard(account)
		}
		all[7].card.Amount = -1 // the schema refuses it
		all[11].card.Address = earlier.Address
		stored, errs, wait := together(t, s, t.Context(), all)
		wait()
		for i := range all {
			if stored[i] == (i == 7 || i == 11) || (errs[i] != nil) != (i == 7) || errors.Is(errs[i], card.ErrUnavailable) {
				t.Errorf("card %d: stored %t, error %v", i, stored[i], errs[i])
			}
		}
	})
}

// An invalid card is rejected before it waits for a statement.
func TestInsertCard_InvalidRate_FailsWithoutWaiting(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		release, err := store.HoldWrites(t.Context(), s)
		check(t, err)
		defer release()
		c := newCard(uuid.Nil)
		c.Rate.USD = card.Decimal{Units: math.MaxInt64}
		if stored, err := s.InsertCard(t.Context(), c, 0); stored || err == nil {
			t.Errorf("stored: %t, error %v", stored, err)
		}
	})
}

// Cards of one statement count toward the quota of their account one by one.
func TestInsertCard_InBatch_QuotaCountsEachCard(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account, other := newAccount(t, s), newAccount(t, s)
		insertCard(t, s, newCard(account))
		var all []attempt
		for range 20 {
			all = append(all, attempt{card: newCard(account), limit: 5 * 150_50},
				attempt{card: newCard(other), limit: 100 * 150_50}, attempt{card: newCard(other)})
		}
		stored, errs, wait := together(t, s, t.Context(), all)
		wait()
		n := map[card.USD]int{}
		for i, a := range all {
			check(t, errs[i])
			if stored[i] {
				n[a.limit]++
			}
		}
		if want := map[card.USD]int{5 * 150_50: 4, 100 * 150_50: 20, 0: 20}; !cmp.Equal(n, want) {
			t.Errorf("stored %v, want %v", n, want)
		}
	})
}

// A card is not stored if its context ends before its statement is sent.
func TestInsertCard_CanceledWhileWaiting_IsNotStored(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		all := make([]attempt, 20)
		for i := range all {
			all[i].card = newCard(account)
		}
		_, errs, wait := together(t, s, ctx, all)
		defer wait()
		cancel()
		for store.Queued(s) > 0 {
			runtime.Gosched()
		}
		wait()
		gone := 0
		for i, a := range all {
			if !errors.Is(errs[i], context.Canceled) {
				t.Errorf("error %v, want %v", errs[i], context.Canceled)
			}
			if _, err := s.CardByUUID(t.Context(), account, a.card.UUID); errors.Is(err, card.ErrNoRow) {
				gone++
			}
		}
		if gone < len(all)-1 {
			t.Errorf("%d of %d cards were stored", len(all)-gone, len(all))
		}
	})
}
