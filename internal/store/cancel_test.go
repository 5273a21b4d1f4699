package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// canceling returns the event of a card that is canceled a minute after it was
// ordered.
func canceling(c *card.Card) card.Event {
	return card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: c.AccountID, Type: card.EventCanceled, CardUUID: c.UUID,
		Status: card.AwaitingPayment,
		State:  card.Canceled, CreatedAt: epoch.Add(time.Minute)}
}

func cancelIt(t testing.TB, s *store.Store, c *card.Card) bool {
	t.Helper()
	canceled, err := s.CancelCard(t.Context(), canceling(c))
	check(t, err)
	return canceled
}

func readCard(t testing.TB, s *store.Store, c *card.Card) *card.Card {
	t.Helper()
	found, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
	check(t, err)
	return found
}

// passOver stores a transfer to a card and assesses the card, as a pass does.
func passOver(ctx context.Context, s *store.Store, c *card.Card, t card.Transfer) error {
	return s.SettleTx(ctx, func(tx settle.Tx) error {
		if err := tx.UpsertTransfers(ctx, []card.Transfer{t}); err != nil {
			return err
		}
		cards, err := tx.LockCards(ctx, c.Coin.Code, []string{c.Address}, card.Tip{Height: 1, Time: epoch})
		if err != nil {
			return err
		}
		facts, err := tx.TransfersTo(ctx, c.Coin.Code, []string{c.Address})
		if err != nil {
			return err
		}
		return tx.SaveVerdicts(ctx,
			[]card.Verdict{card.Judge(cards[0], facts, card.Tip{Height: 1, Time: epoch}, card.Rate{}, uuid.Must(uuid.NewV7()))})
	})
}

func TestCancelCard_HappensOnceAndCompletely(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		stockUp(t, s, 1)
		owner := newAccount(t, s)
		hook := insertWebhook(t, s, newWebhook(owner))
		c, other := reserve(t, s, newCard(owner)), insertCard(t, s, newCard(owner))
		stranger := *c
		stranger.AccountID = newAccount(t, s)
		for name, not := range map[string]*card.Card{"another account's": &stranger, "unknown": newCard(owner)} {
			if cancelIt(t, s, not) {
				t.Errorf("%s: was canceled", name)
			}
		}
		wantStock(t, s, 0, 1, 0, 0)
		e := canceling(c)
		if canceled, err := s.CancelCard(t.Context(), e); err != nil || !canceled {
			t.Fatalf("%t, %v", canceled, err)
		}
		got := readCard(t, s, c)
		if got.State != card.Canceled || !got.CanceledAt.Equal(e.CreatedAt) || got.Credit != (card.Credit{}) {
			t.Errorf("%s at %s, %+v", got.State, got.CanceledAt, got.Credit)
		}
		wantStock(t, s, 1, 0, 0, 0)
		if cancelIt(t, s, c) {
			t.Error("it was canceled twice")
		}
		e.Seq = 1
		events, err := s.Events(t.Context(), owner, 0, 9)
		check(t, err)
		if diff := cmp.Diff([]card.Event{e}, events); diff != "" {
			t.Error(diff)
		}
		wantDeliveries(t, s, hook.ID, "1 pending")
		exposure, err := s.Exposure(t.Context(), owner, true)
		check(t, err)
		if exposure.OpenUSD != other.USD {
			t.Errorf("%s are open", exposure.OpenUSD)
		}
	})
}

func TestCancelCard_WithMoney_IsRefused(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		states := []card.PaymentState{card.Detected, card.Underpaid, card.Confirming, card.Paid, card.Late, card.Expired,
			card.Reversed}
		for _, state := range states {
			c := insertCard(t, s, newCard(owner))
			inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
				return tx.SaveVerdicts(ctx, verdicts([]*card.Card{c}, card.Assessment{State: state, Received: 1}))
			})
			if got := readCard(t, s, c); cancelIt(t, s, c) || readCard(t, s, c).State != got.State {
				t.Errorf("a card that is %s was canceled", state)
			}
		}
		// The card's row was corrupt, so no pass assessed it, but its money has
		// arrived.
		unassessed := insertCard(t, s, newCard(owner))
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx, []card.Transfer{newTransfer("unassessed", 0, unassessed.Address, 1)})
		})
		if cancelIt(t, s, unassessed) {
			t.Error("a card with money that was not assessed was canceled")
		}
		gone := insertCard(t, s, newCard(owner))
		left := newTransfer("gone", 0, gone.Address, 1)
		left.Counted = false
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.UpsertTransfers(ctx, []card.Transfer{left}) })
		if !cancelIt(t, s, gone) {
			t.Error("a card whose money left the chain was not canceled")
		}
		if last := seqs(t, s, owner); len(last) != 1 {
			t.Errorf("events %v", last)
		}
	})
}

// A cancellation and a concurrent pass that stores a transfer wait for each
// other. Either the card is paid and not canceled, or the pass assesses a
// canceled card.
func TestCancelCard_ConcurrentTransfer_OneWins(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		first, second := open(t, url), open(t, url)
		owner := newAccount(t, first)
		won := map[bool]int{}
		for range 60 {
			c := insertCard(t, first, newCard(owner))
			money := newTransfer(uuid.NewString(), 0, c.Address, c.Amount-1)
			money.FirstSeenAt = epoch.Add(time.Hour / 2)
			var canceled bool
			var errCancel, errArrive error
			var both sync.WaitGroup
			both.Go(func() { canceled, errCancel = first.CancelCard(t.Context(), canceling(c)) })
			both.Go(func() { errArrive = passOver(t.Context(), second, c, money) })
			both.Wait()
			check(t, errCancel)
			check(t, errArrive)
			won[canceled]++
			got := readCard(t, first, c)
			want := card.Underpaid
			if canceled { // a late payment of unknown value
				want = card.Confirming
			}
			if got.State != want || got.CanceledAt.IsZero() == canceled || got.Received != c.Amount-1 {
				t.Errorf("canceled %t: %s, canceled at %s, received %d", canceled, got.State, got.CanceledAt, got.Received)
			}
			if canceled && readCard(t, first, c).Credit.Due != 0 {
				t.Error("an amount is due")
			}
		}
		t.Logf("canceled: %v", won)
		for i, seq := range seqs(t, first, owner) {
			if seq != int64(i)+1 {
				t.Errorf("event %d is number %d", i, seq)
			}
		}
	})
}

// The pass commits its transfer while the cancellation waits for the card's
// lock. The cancellation must not decide by a row that it read before.
func TestCancelCard_CardLockedByPass_Waits(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		first, second := open(t, url), open(t, url)
		c := insertCard(t, first, newCard(newAccount(t, first)))
		answer := make(chan bool, 1)
		inTx(t, second, func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.LockCardsByUUID(ctx, []uuid.UUID{c.UUID})
			check(t, err)
			check(t, tx.UpsertTransfers(ctx, []card.Transfer{newTransfer("x", 0, c.Address, 1)}))
			go func() {
				canceled, err := first.CancelCard(context.Background(), canceling(c))
				answer <- canceled || err != nil
			}()
			return tx.SaveVerdicts(ctx, verdicts([]*card.Card{c}, card.Assessment{State: card.Underpaid, Received: 1}))
		})
		if <-answer {
			t.Error("the card was canceled, or canceling failed")
		}
		if got := readCard(t, first, c); got.State != card.Underpaid || !got.CanceledAt.IsZero() {
			t.Errorf("%s, canceled at %s", got.State, got.CanceledAt)
		}
	})
}

func TestFindCards_CanceledAndExpired_AreSeparate(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		owner := newAccount(t, s)
		canceled, expired, paidLate := insertCard(t, s, newCard(owner)), insertCard(t, s, newCard(owner)),
			insertCard(t, s, newCard(owner))
		cancelIt(t, s, canceled)
		cancelIt(t, s, paidLate)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.SaveVerdicts(ctx,
				verdicts([]*card.Card{expired, paidLate}, card.Assessment{State: card.Expired},
					card.Assessment{State: card.Late, Received: 1}))
		})
		for state, want := range map[card.PaymentState]*card.Card{card.Canceled: canceled, card.Expired: expired,
			card.Late: paidLate} {
			for name, account := range map[string]uuid.UUID{"all": uuid.Nil, "one": owner} {
				found, err := s.FindCards(t.Context(), operator.Search{AccountID: account, State: state, Limit: 9})
				check(t, err)
				if len(found) != 1 || found[0].UUID != want.UUID || found[0].State != state {
					t.Errorf("%s of %s: %d cards", state, name, len(found))
				}
			}
		}
		found, err := s.FindCards(t.Context(), operator.Search{NeedsOperator: true, Limit: 9})
		check(t, err)
		if len(found) != 1 || found[0].UUID != paidLate.UUID {
			t.Errorf("%d cards need an operator", len(found))
		}
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error { // a reorganization removed its payment
			return tx.SaveVerdicts(ctx, verdicts([]*card.Card{paidLate}, card.Assessment{State: card.Canceled}))
		})
		if got := readCard(t, s, paidLate); got.State != card.Canceled {
			t.Error(got.State)
		}
	})
}

// Earlier versions, which lack the state, read a canceled card as expired.
func TestCancelCard_OlderPrograms_SeeExpired(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		cancelIt(t, s, c)
		var state string
		check(t, s.Scalar(t.Context(), &state, "SELECT payment_state FROM cards"))
		if state != "expired" {
			t.Error(state)
		}
	})
}

func TestCancelCard_RoundTrips(t *testing.T) {
	proxy := startCountingProxy(t, databases.Postgres(t))
	s := open(t, proxy.url)
	c := insertCard(t, s, newCard(newAccount(t, s)))
	// Two for each statement: the card, the stock, three for the event. If the
	// card is already canceled, only the first.
	for _, want := range []int64{12, 4} {
		before := proxy.ready.Load()
		cancelIt(t, s, c)
		if n := proxy.ready.Load() - before; n != want {
			t.Errorf("%d round trips, want %d", n, want)
		}
	}
}
