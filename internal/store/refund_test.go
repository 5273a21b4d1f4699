package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// Every read of a card includes its refund address and its last refund.
func TestCards_EveryReadHasTheRefund(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		type refund struct {
			To   string
			Sum  card.Amount
			TxID string
			At   time.Time
		}
		owner := newAccount(t, s)
		c := newCard(owner)
		c.SealedRefundAddress, c.IdempotencyKey = []byte{1, 0, 255}, "k"
		insertCard(t, s, c)
		other := insertCard(t, s, newCard(owner))
		want := func(want refund) {
			t.Helper()
			one, err := s.CardByUUID(t.Context(), owner, c.UUID)
			check(t, err)
			listed, err := s.Cards(t.Context(), order.Filter{AccountID: owner, Limit: 9})
			check(t, err)
			some, err := s.CardsByUUID(t.Context(), []uuid.UUID{c.UUID})
			check(t, err)
			record, err := s.CardDetail(t.Context(), c.UUID)
			check(t, err)
			for i, got := range []*card.Card{one, listed[1], some[0], record.Card} {
				if diff := cmp.Diff(want,
					refund{string(got.SealedRefundAddress), got.Refunded, got.RefundTxID, got.RefundedAt}); diff != "" {
					t.Errorf("read %d: %s", i, diff)
				}
			}
			if o := listed[0]; o.UUID != other.UUID || o.SealedRefundAddress != nil || o.Refunded != 0 {
				t.Errorf("another card has a refund: %+v", o)
			}
		}
		decide := func(kind operator.ResolutionKind, amount card.Amount, txid string, at time.Time) {
			t.Helper()
			check(t, s.OperatorTx(t.Context(), func(tx operator.Tx) error {
				if kind == operator.Refund {
					c.Refunded += amount
				}
				return tx.InsertResolution(context.WithoutCancel(t.Context()),
					operator.Resolution{ID: uuid.Must(uuid.NewV7()), CardUUID: c.UUID, Kind: kind,
						Amount: amount, TxID: txid, Note: "x", Operator: "x", CreatedAt: at}, c)
			}))
		}
		first, second := epoch.Add(time.Hour).UTC(), epoch.Add(2*time.Hour).UTC()
		const to = "\x01\x00\xff"
		want(refund{To: to})
		decide(operator.Accept, 5, "", first)
		want(refund{To: to})
		decide(operator.Refund, 7, "", first)
		want(refund{to, 7, "", first})
		decide(operator.Refund, 0, "a", second) // names the transaction of the previous decision
		want(refund{to, 7, "a", first})
		decide(operator.Refund, 2, "", second)
		want(refund{to, 9, "", second})
		decide(operator.WriteOff, 1, "", second)
		want(refund{to, 9, "", second})
	})
}
