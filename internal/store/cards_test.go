package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

func TestInsertCard_ReadsBackExactly(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := newCard(newAccount(t, s))
		c.Amount = c.Coin.MaxAmount()
		c.Credit.Due = c.Amount
		c.IdempotencyKey, c.RequestHash = `"~!'\ key`, []byte{0, 1, 255}
		insertCard(t, s, c)
		c.Transfers = []card.Transfer{}
		byUUID, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
		check(t, err)
		c.Tag = byUUID.Tag
		if diff := cmp.Diff(c, byUUID); diff != "" {
			t.Error(diff)
		}
		if id, err := s.CardOfKey(t.Context(), c.AccountID, c.IdempotencyKey); err != nil || id != c.UUID {
			t.Errorf("the key is that of %s: %v", id, err)
		}
	})
}

func TestCardByUUID_HasTheTransfersThatCount(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c, other := insertCard(t, s, newCard(newAccount(t, s))), insertCard(t, s, newCard(newAccount(t, s)))
		locked, pooled, gone, moved, given := newTransfer("l", 0, c.Address, math.MaxInt64-7),
			newTransfer("p", 3, c.Address, 1), newTransfer("g", 0, c.Address, 1),
			newTransfer("m", 0, c.Address, 1), newTransfer("x", 1, "elsewhere", 5)
		locked.Locked, locked.FirstSeenAt, pooled.Height, gone.Counted = true, epoch.Add(time.Second), 0, false
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			if err := tx.UpsertTransfers(ctx, []card.Transfer{locked, pooled, gone, moved, given}); err != nil {
				return err
			}
			return tx.SaveVerdicts(ctx,
				[]card.Verdict{{Card: c, Assessment: card.Assessment{State: card.Confirming, Received: 6}}})
		})
		attribute(t, s, newAttribution(moved, uuid.Nil), newAttribution(given, c.UUID))
		read := func(c *card.Card) *card.Card {
			t.Helper()
			got, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
			check(t, err)
			return got
		}
		for _, x := range []*card.Transfer{&locked, &pooled, &given} { // not in the contract, so not read
			x.Address, x.Output = "", 0
		}
		got := read(c)
		if diff := cmp.Diff([]card.Transfer{given, pooled, locked}, got.Transfers); diff != "" || got.Omitted != 0 {
			t.Errorf("%s, %d more", diff, got.Omitted)
		}
		if got := read(other); got.Transfers == nil || len(got.Transfers) != 0 {
			t.Errorf("of another card: %v", got.Transfers)
		}

		dust := make([]card.Transfer, 150)
		for i := range dust {
			dust[i] = newTransfer(fmt.Sprintf("d%03d", i), 0, c.Address, card.Amount(i%75+2))
		}
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, dust) })
		got = read(c)
		if len(got.Transfers) != 100 || got.Omitted != 53 || got.Transfers[99].TxID != "l" {
			t.Errorf("%d transfers, the last is %s, %d more", len(got.Transfers),
				got.Transfers[len(got.Transfers)-1].TxID, got.Omitted)
		}
		for _, x := range got.Transfers {
			if x.Amount < 27 {
				t.Errorf("%s of %d is not among the largest", x.TxID, x.Amount)
			}
		}
	})
}

func TestInsertCard_TwiceIsHarmless(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		inserted, err := s.InsertCard(t.Context(), c, 0)
		check(t, err)
		if inserted {
			t.Error("inserted twice")
		}
	})
}

func TestInsertCard_AddressAndKeyAreUnique(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account, other := newAccount(t, s), newAccount(t, s)
		first := newCard(account)
		first.IdempotencyKey = "key"
		insertCard(t, s, first)

		for name, change := range map[string]func(*card.Card){
			"same address":              func(c *card.Card) { c.Address = first.Address },
			"same address, other owner": func(c *card.Card) { c.Address, c.AccountID = first.Address, other },
			"same key":                  func(c *card.Card) { c.IdempotencyKey = "key" },
		} {
			c := newCard(account)
			change(c)
			if inserted, err := s.InsertCard(t.Context(), c, 0); err != nil || inserted {
				t.Errorf("%s: inserted %v, error %v", name, inserted, err)
			}
		}
		for _, change := range []func(*card.Card){
			func(c *card.Card) { c.IdempotencyKey, c.AccountID = "key", other },
			func(c *card.Card) { c.IdempotencyKey = "KEY" },
			func(c *card.Card) {}, // without a key
			func(c *card.Card) {},
		} {
			c := newCard(account)
			change(c)
			insertCard(t, s, c)
		}
	})
}

func TestInsertCard_NotWhereMoneyCameBefore(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := newCard(newAccount(t, s))
		arrive(t, s, card.Transfer{Address: c.Address, Amount: 1})
		if inserted, err := s.InsertCard(t.Context(), c, 0); err != nil || inserted {
			t.Errorf("inserted: %t, error %v", inserted, err)
		}
	})
}

func TestCardByUUID_AnotherAccountsCardIsNotFound(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		_, err := s.CardByUUID(t.Context(), newAccount(t, s), c.UUID)
		wantError(t, err, card.ErrNoRow)
	})
}

// generate marks a card as issued.
func generate(t *testing.T, s *store.Store, id uuid.UUID) {
	t.Helper()
	cards, err := s.CardsByUUID(t.Context(), []uuid.UUID{id})
	check(t, err)
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveVerdicts(ctx,
			verdicts(cards, card.Assessment{State: card.Paid, Received: cards[0].Amount, Settled: cards[0].Amount}))
	})
	claims, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 1, time.Hour)
	check(t, err)
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
		return tx.SaveIssued(ctx, []issue.IssuedCard{issued(claims[0], "number "+id.String())})
	})
}

func issued(i issue.Intent, number string) issue.IssuedCard {
	return issue.IssuedCard{Intent: i, NumberHash: []byte(number),
		Sealed: card.Sealed{CardNumber: []byte("n"), ExpirationDate: []byte("e"),
			SecurityCode: []byte("c"), URL: []byte("u"), URLPassword: []byte("p")}}
}

func TestCards_NewestFirstFilteredAndPaged(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		insertCard(t, s, newCard(newAccount(t, s))) // another account's
		var newest []uuid.UUID
		for range 7 {
			newest = append(newest, insertCard(t, s, newCard(account)).UUID)
		}
		slices.Reverse(newest)
		generate(t, s, newest[2])
		for name, tt := range map[string]struct {
			filter order.Filter
			want   []uuid.UUID
		}{
			"all":       {order.Filter{Limit: 100}, newest},
			"page":      {order.Filter{Limit: 3}, newest[:3]},
			"next page": {order.Filter{Limit: 3, Before: newest[2]}, newest[3:6]},
			"generated": {order.Filter{Status: card.Generated, Limit: 9}, newest[2:3]},
			"awaiting, paged": {order.Filter{Status: card.AwaitingPayment, Limit: 3},
				[]uuid.UUID{newest[0], newest[1], newest[3]}},
		} {
			tt.filter.AccountID = account
			var got []uuid.UUID
			found, err := s.Cards(t.Context(), tt.filter)
			check(t, err)
			for _, c := range found {
				got = append(got, c.UUID)
				if (c.Sealed != nil) != (c.Status == card.Generated) {
					t.Errorf("%s: card %s is %s, sealed credentials: %v", name, c.UUID, c.Status, c.Sealed != nil)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

func TestLockCards_FindsWhatTheTipAndTheTransfersConcern(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		var cards []*card.Card
		for range 4 {
			cards = append(cards, insertCard(t, s, newCard(account)))
		}
		idle, ready, expired, paidTo := cards[0], cards[1], newCard(account), cards[3]
		expired.ExpiresAt = epoch.Add(-time.Hour)
		insertCard(t, s, expired)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.SaveVerdicts(ctx, verdicts([]*card.Card{ready, cards[2]},
				card.Assessment{State: card.Confirming, Received: 5, Height: 91, ReadyHeight: 100},
				card.Assessment{State: card.Confirming, Received: 6, Height: 92, ReadyHeight: 101}))
		})
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			got, err := tx.LockCards(ctx, "monero", []string{paidTo.Address, "of nobody"}, card.Tip{Height: 100, Time: epoch})
			check(t, err)
			ids := map[uuid.UUID]bool{}
			for _, c := range got {
				ids[c.UUID] = true
			}
			want := map[uuid.UUID]bool{ready.UUID: true, expired.UUID: true, paidTo.UUID: true}
			if diff := cmp.Diff(want, ids); diff != "" {
				t.Errorf("%s (idle is %s)", diff, idle.UUID)
			}
			none, err := tx.LockCards(ctx, "bitcoin", []string{paidTo.Address}, card.Tip{Height: 100, Time: epoch})
			if len(none) > 0 {
				t.Errorf("found %d cards of another currency", len(none))
			}
			return err
		})
	})
}

func TestSaveVerdicts_MoreThanOneStatementHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: writes thousands of rows")
	}
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		var cards []*card.Card
		var as []card.Assessment
		for i := range 1203 {
			cards = append(cards, insertCard(t, s, newCard(account)))
			as = append(as, card.Assessment{State: card.Underpaid, Received: card.Amount(i), Height: int64(i)})
		}
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.SaveVerdicts(ctx, verdicts(cards, as...)) })
		for _, i := range []int{0, 499, 500, 1202} {
			c, err := s.CardByUUID(t.Context(), account, cards[i].UUID)
			check(t, err)
			if c.Received != card.Amount(i) || c.Height != int64(i) || c.State != card.Underpaid {
				t.Errorf("card %d: received %d, height %d, %s", i, c.Received, c.Height, c.State)
			}
		}
	})
}

func TestInsertEvents_SeqHasNoGapsInTheOrderOfCommits(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		event := func() card.Event {
			return card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: account, Type: card.EventDetected, CardUUID: c.UUID,
				Status: c.Status, State: card.Detected, CreatedAt: epoch}
		}
		rollback := errors.New("rollback")
		var all sync.WaitGroup
		var kept atomic.Int64
		for i := range 40 {
			all.Go(func() {
				err := s.Do(t.Context(), func(tx *store.Tx) error {
					if err := tx.InsertEvents(t.Context(), []card.Event{event(), event()}); err != nil {
						return err
					}
					if i%4 == 0 {
						return rollback
					}
					return nil
				})
				switch {
				case err == nil:
					kept.Add(2)
				case !errors.Is(err, rollback):
					t.Error(err)
				}
			})
		}
		all.Wait()
		var seqs []int64
		query(t, url, &seqs, "SELECT seq FROM events ORDER BY seq")
		if kept.Load() != 60 {
			t.Errorf("%d events were committed, want 60", kept.Load())
		}
		for i, seq := range seqs {
			if seq != int64(i+1) {
				t.Fatalf("event %d has seq %d", i+1, seq)
			}
		}
		if len(seqs) != 60 {
			t.Errorf("%d events are stored", len(seqs))
		}
	})
}

func TestInTx_ErrorUndoesEverything(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		c := insertCard(t, s, newCard(account))
		boom := errors.New("boom")
		err := s.Do(t.Context(), func(tx *store.Tx) error {
			if err := tx.SaveVerdicts(t.Context(),
				verdicts([]*card.Card{c}, card.Assessment{State: card.Paid, Received: 1})); err != nil {
				return err
			}
			return boom
		})
		wantError(t, err, boom)
		got, err := s.CardByUUID(t.Context(), account, c.UUID)
		check(t, err)
		if got.State != card.Unpaid {
			t.Errorf("state is %s", got.State)
		}
	})
}

func TestInTx_CancelledContextCommitsNothing(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Do(ctx, func(tx *store.Tx) error {
			defer cancel()
			return tx.SaveVerdicts(ctx, verdicts([]*card.Card{c}, card.Assessment{State: card.Paid}))
		})
		wantError(t, err, context.Canceled)
		got, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
		check(t, err)
		if got.State != card.Unpaid {
			t.Errorf("state is %s", got.State)
		}
	})
}

func TestStore_ClosedIsUnavailable(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		check(t, s.Close())
		_, err := s.CardByUUID(t.Context(), uuid.New(), uuid.New())
		wantError(t, err, card.ErrUnavailable)
		_, err = s.InsertCard(t.Context(), newCard(uuid.New()), 0)
		wantError(t, err, card.ErrUnavailable)
		wantError(t, s.Do(t.Context(), func(*store.Tx) error { return nil }), card.ErrUnavailable)
	})
}

func TestAccountsAndTokens(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "Shop", CreatedAt: epoch}
		check(t, s.InsertAccount(ctx, a))
		wantError(t, s.InsertAccount(ctx, account.Account{ID: uuid.New(), Name: "Shop", CreatedAt: epoch}), card.ErrDuplicate)
		// both databases compare case-sensitively
		check(t, s.InsertAccount(ctx, account.Account{ID: uuid.New(), Name: "shop", CreatedAt: epoch}))
		got, err := s.AccountByName(ctx, "Shop")
		check(t, err)
		if diff := cmp.Diff(a, got); diff != "" {
			t.Error(diff)
		}
		_, err = s.AccountByName(ctx, "nobody")
		wantError(t, err, card.ErrNoRow)

		expires := epoch.Add(time.Hour)
		token := account.Token{ID: uuid.Must(uuid.NewV7()), AccountID: a.ID, Account: "Shop", Name: "checkout",
			Hash: bytes.Repeat([]byte{7}, 32), CreatedAt: epoch, ExpiresAt: &expires}
		check(t, s.InsertToken(ctx, token))
		found, err := s.TokenByHash(ctx, token.Hash)
		check(t, err)
		if diff := cmp.Diff(token, found); diff != "" {
			t.Error(diff)
		}
		_, err = s.TokenByHash(ctx, []byte("other"))
		wantError(t, err, card.ErrNoRow)
		token.RevokedAt, token.Seal = new(epoch.Add(time.Minute)), []byte("seal")
		check(t, s.RevokeToken(ctx, token))
		all, err := s.Tokens(ctx)
		check(t, err)
		if diff := cmp.Diff([]account.Token{token}, all); diff != "" {
			t.Error(diff)
		}
		wantError(t, s.RevokeToken(ctx, newToken(a.ID, account.AllScopes)), card.ErrNoRow)
	})
}

func TestSetting_FirstValueStays(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		for i := range 3 {
			got, err := s.Setting(t.Context(), "name", fmt.Sprint("value ", i))
			check(t, err)
			if got != "value 0" {
				t.Errorf("attempt %d: %q", i, got)
			}
		}
	})
}

func TestInsertCard_OpenAmount_IsLimited(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner, other := newAccount(t, s), newAccount(t, s)
		within := func(account uuid.UUID, usd, limit card.USD, want bool) *card.Card {
			t.Helper()
			c := newCard(account)
			c.USD = usd
			inserted, err := s.InsertCard(t.Context(), c, limit)
			if err != nil || inserted != want {
				t.Errorf("a card of %s within %s: %t, %v", usd, limit, inserted, err)
			}
			return c
		}
		within(owner, 100_01, 100_00, false)
		first := within(owner, 60_00, 100_00, true)
		within(owner, 40_01, 100_00, false)
		second := within(owner, 40_00, 100_00, true) // exactly
		within(owner, 1, 100_00, false)
		within(other, 100_00, 100_00, true)
		within(owner, 1, 0, true) // no limit

		assess(t, s, first, card.Assessment{State: card.Underpaid, Received: 1})
		within(owner, 1, 100_01, false)
		assess(t, s, second, card.Assessment{State: card.Confirming, Received: 9})
		within(owner, 40_00, 100_01, true)

		// A statement whose reply was lost is repeated. The card must not count
		// as a duplicate of itself.
		if inserted, err := s.InsertCard(t.Context(), first, 1000_00); err != nil || inserted {
			t.Errorf("again: %t, %v", inserted, err)
		}
	})
}
