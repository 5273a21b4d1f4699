package store_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/store"
)

func newTransfer(txid string, output int64, address string, amount card.Amount) card.Transfer {
	return card.Transfer{Currency: "monero", TxID: txid, Output: output, Address: address, Amount: amount, Height: 3,
		Counted: true, FirstSeenAt: epoch}
}

// newAttribution returns a decision that attributes a transfer to a card, or
// refunds it if the UUID is zero.
func newAttribution(t card.Transfer, to uuid.UUID) operator.Attribution {
	kind := operator.ToCard
	if to == uuid.Nil {
		kind = operator.GiveBack
	}
	return operator.Attribution{TransferID: operator.TransferID{Currency: t.Currency, TxID: t.TxID, Output: t.Output},
		ID: uuid.Must(uuid.NewV7()), Kind: kind,
		CardUUID: to, Amount: t.Amount, Note: "n", Operator: "o", CreatedAt: epoch}
}

func attribute(t *testing.T, s *store.Store, as ...operator.Attribution) {
	t.Helper()
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.InsertAttributions(ctx, as) })
}

func TestAttributions_CountTowardTheirCardsAndNowhereElse(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx, owner := t.Context(), newAccount(t, s)
		one, two := insertCard(t, s, newCard(owner)), insertCard(t, s, newCard(owner))
		own, moved, gone, back, stray := newTransfer("a", 0, one.Address, 1), newTransfer("b", 0, "nobody", 10),
			newTransfer("b", 1, "nobody", 100),
			newTransfer("c", 0, "elsewhere", 1000), newTransfer("d", 0, "elsewhere", 10000)
		gone.Counted = false
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx, []card.Transfer{own, moved, gone, back, stray})
		})
		toTwo, goneToTwo, returned := newAttribution(moved, two.UUID), newAttribution(gone, two.UUID),
			newAttribution(back, uuid.Nil)
		attribute(t, s, toTwo, goneToTwo, returned)

		counting := moved
		counting.Address = two.Address // as if it had been sent there
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			for _, tt := range []struct {
				addresses []string
				want      []card.Transfer
			}{
				{[]string{one.Address}, []card.Transfer{own}},
				{[]string{two.Address}, []card.Transfer{counting}},
				{[]string{one.Address, two.Address}, []card.Transfer{own, counting}},
				{[]string{"nobody"}, nil},
				{[]string{"elsewhere"}, []card.Transfer{stray}},
			} {
				got, err := tx.TransfersTo(ctx, "monero", tt.addresses)
				check(t, err)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("to %v: %s", tt.addresses, diff)
				}
			}
			for address, want := range map[string]*card.Card{"nobody": two, one.Address: one, "elsewhere": nil} {
				got, err := tx.LockCards(ctx, "monero", []string{address}, card.Tip{})
				check(t, err)
				if want == nil && len(got) != 0 || want != nil && (len(got) != 1 || got[0].UUID != want.UUID) {
					t.Errorf("by %s: %v", address, got)
				}
			}
			since, err := tx.TransfersIn(ctx, "monero", 0, nil)
			check(t, err)
			for _, x := range since {
				if x.TxID == "b" && x.Address != "nobody" {
					t.Errorf("a pass compares with %+v", x)
				}
			}
			a, err := tx.Arrival(ctx, toTwo.TransferID)
			check(t, err)
			if diff := cmp.Diff(operator.Arrival{Transfer: moved, Attribution: &toTwo}, a); diff != "" {
				t.Error(diff)
			}
			a, err = tx.Arrival(ctx, operator.TransferID{Currency: "monero", TxID: "a"})
			check(t, err)
			if diff := cmp.Diff(operator.Arrival{Transfer: own, CardUUID: one.UUID}, a); diff != "" {
				t.Error(diff)
			}
			_, err = tx.Arrival(ctx, operator.TransferID{Currency: "bitcoin", TxID: "a"})
			wantError(t, err, card.ErrNoRow)
			return nil
		})

		left, err := s.Unattributed(ctx, 9)
		check(t, err)
		if diff := cmp.Diff([]card.Transfer{stray}, left); diff != "" {
			t.Error(diff)
		}
		strays, err := s.Strays(ctx, 9)
		check(t, err)
		if diff := cmp.Diff(
			[]operator.Arrival{{Transfer: moved, Attribution: &toTwo}, {Transfer: gone, Attribution: &goneToTwo},
				{Transfer: back, Attribution: &returned},
				{Transfer: stray}}, strays); diff != "" {
			t.Error(diff)
		}
		if some, err := s.Strays(ctx, 2); err != nil || len(some) != 2 {
			t.Errorf("%v, %v", some, err)
		}
		in, err := s.ArrivalsIn(ctx, "b")
		check(t, err)
		if len(in) != 2 || in[0].Output != 0 || in[1].Output != 1 {
			t.Errorf("%+v", in)
		}
		r, err := s.CardDetail(ctx, two.UUID)
		check(t, err)
		if diff := cmp.Diff([]card.Transfer{moved, gone}, r.Transfers); diff != "" {
			t.Error(diff)
		}
		if len(r.Resolutions) != 2 || r.Resolutions[0].Kind != operator.Attribute || r.Resolutions[0].Amount != 10 ||
			r.Resolutions[0].ID != toTwo.ID {
			t.Errorf("%+v", r.Resolutions)
		}
		assess(t, s, one, card.Assessment{State: card.Underpaid, Received: 1})
		assess(t, s, two, card.Assessment{State: card.Underpaid, Received: 10})
		books := readBooks(t, s)
		want := operator.Books{
			Coins: []operator.CoinBooks{{Currency: "monero", Counted: card.TotalOf(11011), Unattributed: card.TotalOf(10000),
				Returned: card.TotalOf(1000), Open: card.TotalOf(11)}}}
		if diff := cmp.Diff(want.Coins, books.Coins); diff != "" {
			t.Error(diff)
		}
	})
}

func TestInsertAttributions_OnceForATransfer(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		arrived := newTransfer("a", 0, "nobody", 1)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx, []card.Transfer{arrived})
		})
		attribute(t, s, newAttribution(arrived, c.UUID))
		err := s.Do(t.Context(), func(tx *store.Tx) error {
			return tx.InsertAttributions(t.Context(), []operator.Attribution{newAttribution(arrived, uuid.Nil)})
		})
		wantError(t, err, card.ErrDuplicate)
	})
}

func TestConfirmations_ThoseOfTheNewestCard(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		coin := chain.Currencies()[0]
		if n, err := s.Confirmations(t.Context(), coin); err != nil || n != coin.Confirmations {
			t.Errorf("without a card %d, %v", n, err)
		}
		owner := newAccount(t, s)
		for _, required := range []int{5, 17} {
			c := newCard(owner)
			c.ConfirmationsRequired = required
			insertCard(t, s, c)
		}
		if n, err := s.Confirmations(t.Context(), coin); err != nil || n != 17 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Earlier versions, which don't count attributions, are refused once the first
// one exists.
func TestInsertAttributions_LeavesOlderProgramsBehind(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		oldest := func() (n int64) {
			t.Helper()
			check(t, s.Scalar(t.Context(), &n, "SELECT oldest FROM schema_compatibility"))
			return n
		}
		if n := oldest(); n != 6 {
			t.Errorf("before: %d", n)
		}
		arrived := newTransfer("a", 0, "nobody", 1)
		inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.UpsertTransfers(ctx, []card.Transfer{arrived})
		})
		attribute(t, s, newAttribution(arrived, uuid.Nil))
		if n := oldest(); n != 8 {
			t.Errorf("after: %d", n)
		}
		_, err := store.Migration{}.With(later(t, url, "UPDATE schema_compatibility SET oldest = 6;")).Run(t.Context(), url)
		check(t, err)
		if n := oldest(); n != 8 {
			t.Errorf("after another migration: %d", n)
		}
	})
}
