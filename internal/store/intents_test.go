package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// payCards inserts n paid cards with intents.
func payCards(t *testing.T, s *store.Store, n int) []*card.Card {
	t.Helper()
	account := newAccount(t, s)
	var cards []*card.Card
	var as []card.Assessment
	for range n {
		cards, as = append(cards, insertCard(t, s, newCard(account))), append(as, card.Assessment{State: card.Paid})
	}
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
		vs := verdicts(cards, as...)
		return errors.Join(tx.SaveVerdicts(ctx, vs), tx.SaveVerdicts(ctx, vs)) // idempotent
	})
	return cards
}

func TestClaimIntents_EachIsClaimedByOne(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		payCards(t, s, 100)
		var mu sync.Mutex
		claimed := map[uuid.UUID]int{}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for {
					some, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 7, time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					if len(some) == 0 {
						return
					}
					mu.Lock()
					for _, i := range some {
						claimed[i.CardUUID]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(claimed) != 100 {
			t.Errorf("%d cards were claimed", len(claimed))
		}
		for id, times := range claimed {
			if times != 1 {
				t.Errorf("%s was claimed %d times", id, times)
			}
		}
	})
}

func TestClaimIntents_OnlyWhilePaid(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := payCards(t, s, 1)[0]
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { // a reorganization removed its payment
			return tx.SaveVerdicts(ctx, verdicts([]*card.Card{c}, card.Assessment{State: card.Unpaid}))
		})
		if got, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 5, time.Hour); err != nil || len(got) != 0 {
			t.Errorf("claimed %v, error %v", got, err)
		}
	})
}

// claimDue claims all due intents, in the order of the cards.
func claimDue(t *testing.T, s *store.Store, supplier string, ttl time.Duration) []issue.Intent {
	t.Helper()
	claimed, err := s.ClaimIntents(t.Context(), claimOf(supplier), 9, ttl)
	check(t, err)
	slices.SortFunc(claimed, func(a, b issue.Intent) int {
		return strings.Compare(a.CardUUID.String(), b.CardUUID.String())
	})
	return claimed
}

// wantIntent compares two intents except for the times of their claims.
func wantIntent(t *testing.T, got, want issue.Intent) {
	t.Helper()
	got.FirstAskedAt, got.DecidedAt, got.OpenedAt, got.ClaimedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClaimIntents_CommitsSupplierKeyAndTime(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		id := payCards(t, s, 1)[0].UUID
		first := claimDue(t, s, "a", -time.Hour)[0] // expired long enough for a process without that supplier
		wantIntent(t, first,
			issue.Intent{CardUUID: id, State: issue.StateOpen, Supplier: "a", Key: id.String(), Attempts: 1, Fence: 1})
		if asked := first.ClaimedAt.Sub(first.FirstAskedAt).Abs(); asked > time.Minute ||
			time.Since(first.ClaimedAt).Abs() > time.Minute {
			t.Errorf("asked first at %s, claimed at %s", first.FirstAskedAt, first.ClaimedAt)
		}
		r, err := s.CardDetail(t.Context(), id)
		check(t, err)
		if r.Intent.Supplier != "a" || r.Intent.FirstAskedAt == nil || !r.Intent.FirstAskedAt.Equal(first.FirstAskedAt) ||
			r.Intent.Answer != "" {
			t.Errorf("%+v", r.Intent)
		}
		// The process crashed. The next claim shows which supplier may have
		// been asked.
		time.Sleep(2 * time.Millisecond)
		second := claimDue(t, s, "b", time.Hour)[0]
		wantIntent(t, second,
			issue.Intent{CardUUID: id, State: issue.StateOpen, Supplier: "a", Key: id.String(), Asked: true,
				Answer: issue.Unknown, Attempts: 2, Fence: 2})
		if first.DecidedAt.IsZero() || !second.DecidedAt.Equal(first.DecidedAt) {
			t.Errorf("decided at %s, then %s", first.DecidedAt, second.DecidedAt)
		}
		if !first.OpenedAt.Equal(first.FirstAskedAt) || !second.OpenedAt.Equal(first.OpenedAt) {
			t.Errorf("opened at %s, then %s", first.OpenedAt, second.OpenedAt)
		}
		if !second.FirstAskedAt.Equal(first.FirstAskedAt) || !second.ClaimedAt.After(first.ClaimedAt) {
			t.Errorf("first asked at %s, then %s; claimed at %s, then %s", first.FirstAskedAt, second.FirstAskedAt,
				first.ClaimedAt, second.ClaimedAt)
		}
		if again := claimDue(t, s, "a", time.Hour); len(again) != 0 {
			t.Errorf("claimed twice: %+v", again)
		}
	})
}

func TestSaveIntents_TheNextClaimKnowsTheAnswer(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		id := payCards(t, s, 1)[0].UUID
		for attempt, outcome := range []issue.Outcome{issue.Pending, issue.Unknown, issue.Issued, issue.Declined} {
			i := claimDue(t, s, "a", time.Hour)[0]
			i.State, i.Asked, i.Answer, i.Reference, i.Reason = issue.StatePending, true, outcome, fmt.Sprint("r", attempt),
				`why, {"not"}?`
			check(t, s.SaveIntents(t.Context(), []issue.Intent{i}))
			check(t, s.SaveIntents(t.Context(), []issue.Intent{i})) // repeated after a lost reply
			r, err := s.CardDetail(t.Context(), id)
			check(t, err)
			if r.Intent.Answer != outcome.String() || r.Intent.Reference != i.Reference || r.Intent.Reason != i.Reason ||
				r.Intent.State != "pending" {
				t.Errorf("%+v", r.Intent)
			}
			next := claimDue(t, s, "a", expiredAtOnce)[0]
			wantIntent(t, next,
				issue.Intent{CardUUID: id, State: issue.StatePending, Supplier: "a", Key: id.String(), Reference: i.Reference,
					Asked: true, Answer: outcome, Attempts: 2*attempt + 2, Fence: int64(2*attempt + 2)})
			if !next.FirstAskedAt.Equal(i.FirstAskedAt) {
				t.Errorf("first asked at %s, then %s", i.FirstAskedAt, next.FirstAskedAt)
			}
		}
	})
}

func TestSaveIntents_NoRequestSent_NextClaimIsFirst(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		id := payCards(t, s, 1)[0].UUID
		i := claimDue(t, s, "a", time.Hour)[0]
		i.FirstAskedAt, i.Reason = time.Time{}, "slow"
		check(t, s.SaveIntents(t.Context(), []issue.Intent{i}))
		wantIntent(t, claimDue(t, s, "b", time.Hour)[0],
			issue.Intent{CardUUID: id, State: issue.StateOpen, Supplier: "b", Key: id.String(), Attempts: 2, Fence: 2})
	})
}

func TestSaveIntents_ComesBackAfterItsWait(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		payCards(t, s, 2)
		claims := claimDue(t, s, "a", time.Hour)
		claims[1].Wait = time.Hour
		check(t, s.SaveIntents(t.Context(), claims))
		again := claimDue(t, s, "a", time.Hour)
		if len(again) != 1 || again[0].CardUUID != claims[0].CardUUID {
			t.Errorf("claimed %+v", again)
		}
		r, err := s.CardDetail(t.Context(), claims[1].CardUUID)
		check(t, err)
		if off := r.Intent.DueAt.Sub(claims[1].ClaimedAt) - time.Hour; off < 0 || off > time.Minute {
			t.Errorf("due %s away from the hour", off)
		}
	})
}

func TestSaveIntents_EachStateButOpenAndPendingEndsTheAttempts(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		for state, comes := range map[issue.State]bool{issue.StateOpen: true, issue.StatePending: true,
			issue.StateParked: false, issue.StateRefundDue: false} {
			id := payCards(t, s, 1)[0].UUID
			i := claimDue(t, s, "a", time.Hour)[0]
			i.State = state
			check(t, s.SaveIntents(t.Context(), []issue.Intent{i}))
			again := claimDue(t, s, "a", time.Hour)
			if (len(again) == 1) != comes || len(again) == 1 && again[0].CardUUID != id {
				t.Errorf("%s: claimed %+v", state, again)
			}
			found, err := s.FindCards(t.Context(), operator.Search{NeedsOperator: true, Limit: 9})
			check(t, err)
			if slices.ContainsFunc(found, func(c *card.Card) bool { return c.UUID == id }) == comes {
				t.Errorf("%s: an operator sees %d cards", state, len(found))
			}
		}
	})
}

func TestSaveIntents_LostClaimCannotWrite(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		payCards(t, s, 3)
		zombies := claimDue(t, s, "a", expiredAtOnce)
		owners := claimDue(t, s, "a", time.Hour)
		zombies[1] = owners[1] // this claim was not lost
		for i := range zombies {
			zombies[i].State, zombies[i].Reason = issue.StateParked, "late"
		}
		save := func(i issue.Intent) error {
			return s.Do(ctx, func(tx *store.Tx) error {
				return tx.SaveIssued(ctx, []issue.IssuedCard{issued(i, "number "+i.CardUUID.String())})
			})
		}
		check(t, save(owners[2]))
		check(t, s.SaveIntents(ctx, zombies))
		for i, want := range []string{"open", "parked", "done"} {
			r, err := s.CardDetail(ctx, owners[i].CardUUID)
			check(t, err)
			if r.Intent.State != want {
				t.Errorf("intent %d is %s, want %s", i, r.Intent.State, want)
			}
		}
		wantError(t, save(zombies[0]), card.ErrFenced)
		check(t, save(owners[0]))
		wantError(t, save(owners[0]), card.ErrFenced) // the intent is done
		wantError(t, save(owners[1]), card.ErrFenced) // parked for an operator
		check(t, s.SaveIntents(ctx, owners))
		if again := claimDue(t, s, "a", time.Hour); len(again) != 0 {
			t.Errorf("claimed %+v", again)
		}
	})
}

func TestSaveIssued_APendingCardKeepsItsReference(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, id := t.Context(), payCards(t, s, 1)[0].UUID
		i := claimDue(t, s, "a", expiredAtOnce)[0]
		i.State, i.Asked, i.Answer, i.Reference, i.Reason = issue.StatePending, true, issue.Pending, "r1", "in the works"
		check(t, s.SaveIntents(ctx, []issue.Intent{i}))
		i = claimDue(t, s, "a", time.Hour)[0]
		check(t, s.Do(ctx, func(tx *store.Tx) error { return tx.SaveIssued(ctx, []issue.IssuedCard{issued(i, "number")}) }))
		r, err := s.CardDetail(ctx, id)
		check(t, err)
		r.Intent.DueAt, r.Intent.FirstAskedAt, r.Intent.OpenedAt = time.Time{}, nil, nil
		if diff := cmp.Diff(
			&operator.IntentRecord{State: "done", Supplier: "a", Reference: "r1", Answer: "issued", Attempts: 2},
			r.Intent); diff != "" {
			t.Error(diff)
		}
		if !r.Credentials || r.Card.Sealed != nil {
			t.Errorf("credentials are kept: %t, shown: %v", r.Credentials, r.Card.Sealed)
		}
	})
}

func TestSaveIssued_TheSameCardNumberTwiceIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		payCards(t, s, 2)
		claims := claimDue(t, s, "a", time.Hour)
		finish := func(i issue.Intent) error {
			return s.Do(ctx, func(tx *store.Tx) error { return tx.SaveIssued(ctx, []issue.IssuedCard{issued(i, "the same")}) })
		}
		check(t, finish(claims[0]))
		wantError(t, finish(claims[1]), card.ErrDuplicate)
		r, err := s.CardDetail(ctx, claims[1].CardUUID)
		check(t, err)
		if r.Intent.State != "open" || r.Credentials {
			t.Errorf("%+v", r)
		}
	})
}

// A reopened intent starts with a lookup, and keeps the time of the first
// request. A declined intent may go to another supplier immediately.
func TestReopenIntent_KeepsTheAnswer(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		payCards(t, s, 4)
		claims := claimDue(t, s, "a", time.Hour)
		for i, state := range []issue.State{issue.StateParked, issue.StateRefundDue, issue.StatePending, issue.StateOpen} {
			claims[i].State, claims[i].Asked, claims[i].Answer, claims[i].Reference = state, true, issue.Issued, "r"
			claims[i].Wait, claims[i].FirstAskedAt = time.Hour, epoch
		}
		claims[1].Answer = issue.Declined
		check(t, s.SaveIntents(t.Context(), claims))
		for _, i := range claims {
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.ReopenIntent(ctx, i.CardUUID) })
		}
		again := claimDue(t, s, "b", -time.Hour) // expired long enough for another supplier
		if len(again) != 2 {
			t.Fatalf("claimed %+v", again)
		}
		want := issue.Intent{CardUUID: claims[0].CardUUID, State: issue.StateOpen, Supplier: "a", Key: claims[0].Key,
			Reference: "r", Asked: true,
			Answer: issue.Issued, Attempts: 2, Fence: 2}
		wantIntent(t, again[0], want)
		want.CardUUID, want.Supplier, want.Key, want.Reference, want.Answer = claims[1].CardUUID, "b", claims[1].Key, "",
			issue.Declined
		wantIntent(t, again[1], want)
		if asked := again[1].ClaimedAt.Sub(again[1].FirstAskedAt).Abs(); asked > time.Minute ||
			!again[0].FirstAskedAt.Equal(epoch) {
			t.Errorf("first asked at %s and %s", again[0].FirstAskedAt, again[1].FirstAskedAt)
		}
		want.Attempts, want.Fence = 3, 3
		wantIntent(t, claimDue(t, s, "c", time.Hour)[1], want) // the attempt was interrupted; the decline is kept
	})
}

func TestClaimIntents_InTheOrderInWhichTheyAreDue(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		payCards(t, s, 3)
		claims := claimDue(t, s, "a", time.Hour)
		for i, wait := range []time.Duration{2 * time.Hour, time.Hour, 0} {
			claims[i].Wait = wait
		}
		check(t, s.SaveIntents(t.Context(), claims))
		_, err := rig.OpenSQL(t, url).Exec("UPDATE intents SET due_at = due_at - 10800000") // three hours later
		check(t, err)
		for _, want := range []int{2, 1, 0} {
			got, err := s.ClaimIntents(t.Context(), claimOf("a"), 1, time.Hour)
			check(t, err)
			if len(got) != 1 || got[0].CardUUID != claims[want].CardUUID {
				t.Errorf("claimed %+v", got)
			}
		}
	})
}

// The intents of an earlier version are looked up before they are requested
// again.
func TestMigrate_ToSuppliersAndBackKeepsIntents(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: migrates databases to and fro")
	}
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		const before = 4 // schema version
		ctx := t.Context()
		p, beside := migrateTo(t, url, before)
		owner := uuid.Must(uuid.NewV7())
		_, err := beside.Exec(fmt.Sprintf("INSERT INTO accounts (id, name, created_at) VALUES ('%s', 'a', 0)", owner))
		check(t, err)
		var ids []uuid.UUID
		insert := func(status, state, reason, hash string, attempts, due int) {
			id := uuid.Must(uuid.NewV7())
			ids = append(ids, id)
			for _, q := range []string{
				fmt.Sprintf(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
					confirmations_required, payment_state, status) VALUES ('%[1]s', '%[2]s', 0, 1, 'monero', 1, '%[1]s', 1, 0, 's', 0, 1, 'paid', '%[3]s')`, id, owner, status),
				fmt.Sprintf(`INSERT INTO intents (card_uuid, state, attempts, fence, due_at, reason, card_number_hash)
					VALUES ('%s', '%s', %d, %d, %d, %s, %s)`, id, state, attempts, attempts, due, reason, hash),
			} {
				_, err := beside.Exec(q)
				check(t, err)
			}
		}
		number := "x'01'" // keyed
		if strings.HasPrefix(url, "postgres") {
			number = `'\x01'`
		}
		insert("awaiting_payment", "open", "NULL", "NULL", 0, 0)
		insert("awaiting_payment", "open", "'no clear answer'", "NULL", 3, 7000)
		insert("awaiting_payment", "parked", "'declined by the issuer'", "NULL", 1, 8000)
		insert("awaiting_payment", "parked", "'expired'", "NULL", 2, 9000)
		insert("generated", "done", "NULL", number, 1, 10000)

		migrate(t, url)
		s := open(t, url)
		asked := func(ms int64) *time.Time { at := time.UnixMilli(ms).UTC(); return &at }
		for i, want := range []operator.IntentRecord{
			{State: "open", Supplier: "sandbox", DueAt: *asked(0)},
			{State: "open", Supplier: "sandbox", Answer: "unknown", FirstAskedAt: asked(7000), DueAt: *asked(7000), Attempts: 3,
				Reason: "no clear answer"},
			{State: "parked", Supplier: "sandbox", Answer: "declined", FirstAskedAt: asked(8000), DueAt: *asked(8000),
				Attempts: 1, Reason: "declined by the issuer"},
			{State: "parked", Supplier: "sandbox", Answer: "unknown", FirstAskedAt: asked(9000), DueAt: *asked(9000),
				Attempts: 2, Reason: "expired"},
			{State: "done", Supplier: "sandbox", Answer: "issued", FirstAskedAt: asked(10000), DueAt: *asked(10000),
				Attempts: 1},
		} {
			r, err := s.CardDetail(ctx, ids[i])
			check(t, err)
			if diff := cmp.Diff(&want, r.Intent); diff != "" {
				t.Errorf("%d: %s", i, diff)
			}
		}
		claims := claimDue(t, s, "sandbox", time.Hour)
		if len(claims) != 2 {
			t.Fatalf("claimed %+v", claims)
		}
		wantIntent(t, claims[0],
			issue.Intent{CardUUID: ids[0], State: issue.StateOpen, Supplier: "sandbox", Key: ids[0].String(), Attempts: 1,
				Fence: 1})
		wantIntent(t, claims[1],
			issue.Intent{CardUUID: ids[1], State: issue.StateOpen, Supplier: "sandbox", Key: ids[1].String(), Asked: true,
				Attempts: 4, Fence: 4})
		finish := func(i issue.Intent) error {
			return s.Do(ctx, func(tx *store.Tx) error { return tx.SaveIssued(ctx, []issue.IssuedCard{issued(i, "\x01")}) })
		}
		wantError(t, finish(claims[0]), card.ErrDuplicate) // issued card numbers are still known
		claims[0].State, claims[0].Asked, claims[0].Answer, claims[0].Reason = issue.StateRefundDue, true, issue.Declined,
			"out of stock"
		claims[1].State, claims[1].Answer, claims[1].Reference = issue.StatePending, issue.Pending, "r"
		check(t, s.SaveIntents(ctx, claims))
		check(t, s.Close())

		_, err = p.DownTo(ctx, before)
		check(t, err)
		var back []string
		query(t, url, &back,
			"SELECT state || ' ' || attempts || ' ' || COALESCE(reason, '-') FROM intents ORDER BY card_uuid")
		if diff := cmp.Diff(
			[]string{"parked 1 declined by the issuer", "open 4 -", "parked 1 declined by the issuer", "parked 2 expired",
				"done 1 -"}, back); diff != "" {
			t.Error(diff)
		}
		migrate(t, url) // and up again
		s = open(t, url)
		r, err := s.CardDetail(ctx, ids[0])
		check(t, err)
		if r.Intent.State != "parked" || r.Intent.Answer != "declined" {
			t.Errorf("%+v", r.Intent)
		}
	})
}

func TestProlongIntents_AClaimEndsSoonUnlessItIsProlonged(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		payCards(t, s, 2)
		claimed, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 2, 0)
		check(t, err)
		if len(claimed) != 2 {
			t.Fatalf("%d claimed", len(claimed))
		}
		lost := claimed[1]
		lost.Fence--
		check(t, s.ProlongIntents(t.Context(), []issue.Intent{claimed[0], lost}, time.Hour))
		again, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 2, time.Hour)
		check(t, err)
		if len(again) != 1 || again[0].CardUUID != lost.CardUUID {
			t.Errorf("claimed %+v", again)
		}
	})
}

// No card is issued while two databases may use one wallet, and for some
// seconds after an epoch begins.
func TestClaimIntents_NotInAConflictAndNotInTheQuietTime(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		addAddresses(t, s, 0, 3)
		payCards(t, s, 1)
		claims := func(want int) {
			t.Helper()
			claimed, err := s.ClaimIntents(t.Context(), claimOf("sandbox"), 1, 0)
			check(t, err)
			if len(claimed) != want {
				t.Errorf("%d claimed, want %d", len(claimed), want)
			}
		}
		claims(1)
		check(t, s.NoteConflict(t.Context(), "monero", "another database"))
		claims(0)
		takes(t, s)
		check(t, s.NoteConflict(t.Context(), "monero", "later")) // keeps the first reason
		cursor, err := s.Cursor(t.Context(), chain.Currencies()[0])
		check(t, err)
		if cursor.Conflict != "" { // the chain has not been watched yet
			t.Errorf("conflict %q", cursor.Conflict)
		}
		l, err := s.BeginEpoch(t.Context(), mark(t, s),
			settle.Epoch{Currency: "monero", Number: time.Now().UnixMilli(), First: 3, Quiet: time.Hour})
		check(t, err)
		claims(0)
		_, err = s.BeginEpoch(t.Context(), l, settle.Epoch{Currency: "monero", Number: l.Epoch + 1, First: 3})
		check(t, err)
		claims(1)
	})
}

// claimOf returns the claim of the only supplier.
func claimOf(supplier string) issue.Claim {
	return issue.Claim{Supplier: supplier, Shares: []issue.Share{{Supplier: supplier, Min: card.MinUSD, Max: card.MaxUSD}}}
}

// Each supplier's issuer claims the intents routed to it, and the first one
// also those without a supplier.
func TestClaimIntents_EachSupplierHasItsShare(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		cards := payCards(t, s, 3)
		usd := cards[0].USD
		claims := func(supplier string, shares ...issue.Share) int {
			t.Helper()
			got, err := s.ClaimIntents(t.Context(), issue.Claim{Supplier: supplier, Shares: shares}, 9, expiredAtOnce)
			check(t, err)
			for _, i := range got { // as if no supplier had been asked
				i.FirstAskedAt, i.Supplier = time.Time{}, ""
				check(t, s.SaveIntents(t.Context(), []issue.Intent{i}))
			}
			return len(got)
		}
		small, large := issue.Share{Supplier: "small", Min: card.MinUSD, Max: usd - 1},
			issue.Share{Supplier: "large", Min: usd, Max: card.MaxUSD}
		all := issue.Share{Supplier: "all", Min: card.MinUSD, Max: card.MaxUSD}
		for i, tt := range []struct {
			supplier string
			shares   []issue.Share
			want     int
		}{
			{"large", []issue.Share{small, large}, 3},
			{"small", []issue.Share{small, large}, 0},
			{"all", []issue.Share{large, all}, 0},
			{"all", []issue.Share{small, all}, 3},
			{"small", []issue.Share{small}, 3}, // which then says that nobody makes them
			{"all", []issue.Share{small, small, all, large}, 3},
			{"large", []issue.Share{small, all, large}, 0},
		} {
			if got := claims(tt.supplier, tt.shares...); got != tt.want {
				t.Errorf("%d: %s claimed %d, want %d", i, tt.supplier, got, tt.want)
			}
		}
		// An intent stays with its supplier until the supplier is removed,
		// even if the shares change.
		kept := claimDue(t, s, "large", expiredAtOnce)
		kept[0].Supplier, kept[0].FirstAskedAt, kept[0].Refusals, kept[0].Declines = "all", time.Time{},
			[]issue.Refusal{{Supplier: "large", Reason: "no", Temporary: true}}, 1
		kept[1].Supplier, kept[1].FirstAskedAt = "gone", time.Time{}
		kept[2].State = issue.StateParked
		check(t, s.SaveIntents(t.Context(), kept))
		got, err := s.ClaimIntents(t.Context(), issue.Claim{Supplier: "all", Shares: []issue.Share{large, all}}, 9,
			expiredAtOnce)
		if check(t, err); len(got) != 1 {
			t.Fatalf("claimed %+v", got)
		}
		wantIntent(t, got[0],
			issue.Intent{CardUUID: kept[0].CardUUID, State: issue.StateOpen, Supplier: "all", Key: kept[0].Key,
				Refusals: kept[0].Refusals,
				Declines: 1, Attempts: got[0].Attempts, Fence: got[0].Fence})
		got, err = s.ClaimIntents(t.Context(), issue.Claim{Supplier: "large", Shares: []issue.Share{large, all}}, 9,
			expiredAtOnce)
		if check(t, err); len(got) != 1 || got[0].CardUUID != kept[1].CardUUID || got[0].Supplier != "large" || got[0].Asked {
			t.Errorf("claimed %+v", got)
		}
	})
}
