package operator_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// A card that can't be decoded delays no other, in any state, and is reported.
func TestReconcile_CorruptCard_Reported(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		bad, good := s.order(), s.order()
		s.exec("UPDATE cards SET payment_state = 'canary' WHERE uuid = $1", bad.UUID)
		s.pay(bad, coin, 10)
		s.pay(good, coin, 10)
		s.settle()
		s.settle()
		s.wantIssued(1)
		books, err := s.service.Reconcile(t.Context(), operator.Audit{})
		check(t, err)
		want := []string{
			"its received amount does not match its transfers",
			"its row can't be decoded: this version does not know its currency or its payment's state",
			"monero: 2000000000000 were counted, but 1000000000000 credited, 0 surplus, 0 unattributed and 0 returned make 1000000000000",
		}
		if len(books.Discrepancies) != len(want) {
			t.Fatalf("discrepancies %+v", books.Discrepancies)
		}
		for i, d := range books.Discrepancies {
			if d.Text != want[i] || i < 2 && d.ID != bad.UUID {
				t.Errorf("discrepancy %+v, want %q", d, want[i])
			}
		}
		_, err = s.service.ResolveCard(t.Context(),
			operator.Decision{CardUUID: bad.UUID, Kind: operator.Accept, Note: "n", Operator: "o"})
		if !errors.Is(err, card.ErrCorrupt) || errors.Is(err, card.ErrNoRow) {
			t.Errorf("resolve: %v", err)
		}

		s.exec("UPDATE cards SET payment_state = 'unpaid' WHERE uuid = $1", bad.UUID)
		s.mine(1)
		s.settle()
		s.wantIssued(2)
	})
}

func TestReconcile_UndecryptableCards_Reported(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var cards []*card.Card
		for range 3 {
			c := s.order()
			s.pay(c, coin, 10)
			cards = append(cards, c)
		}
		s.settle()
		s.wantIssued(3)
		wantDiscrepancies := func(want ...operator.Discrepancy) {
			t.Helper()
			for _, full := range []bool{false, true} {
				books, err := s.service.Reconcile(t.Context(), operator.Audit{Full: full, Vault: s.vault})
				check(t, err)
				if diff := cmp.Diff(want, books.Discrepancies, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("full %v: %s", full, diff)
				}
			}
		}
		wantDamaged := func(want ...uuid.UUID) {
			t.Helper()
			var discrepancies []operator.Discrepancy
			for _, id := range want {
				discrepancies = append(discrepancies, operator.Discrepancy{ID: id, Text: "its credentials can't be decrypted"})
			}
			wantDiscrepancies(discrepancies...)
		}
		wantDamaged()
		s.exec("UPDATE credentials SET url = $1 WHERE card_uuid = $2", []byte("canary"), cards[1].UUID)
		wantDamaged(cards[1].UUID)
		wantDamaged(cards[1].UUID) // read again
		stranger := append((s.vault.Keys().Primary ^ 1).Prefix(), "sealed"...)
		s.exec("UPDATE credentials SET url = $1 WHERE card_uuid = $2", stranger, cards[1].UUID)
		wantDiscrepancies(operator.Discrepancy{ID: cards[1].UUID,
			Text: "its credentials can't be decrypted: the key file does not have the key"})
		s.exec("UPDATE credentials SET url = $1", []byte("canary"))
		wantDamaged(cards[0].UUID, cards[1].UUID, cards[2].UUID)
		broken := operator.New(&faultyStore{Store: s.store, sealed: errBroken}, s.rates, nil)
		if _, err := broken.Reconcile(t.Context(), operator.Audit{Full: true, Vault: s.vault}); !errors.Is(err, errBroken) ||
			!strings.HasPrefix(err.Error(), "check encrypted fields: ") {
			t.Errorf("%v", err)
		}
	})
}

// Damaged cards beyond the limit of a report are read again next time.
func TestReconcile_ManyUndecryptableCards_AllReportedInTurn(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		const n = 23
		for range n {
			s.order()
		}
		s.exec("UPDATE cards SET refund_address = $1", []byte("canary"))
		f := &faultyStore{Store: s.store}
		books, err := operator.New(f, s.rates, nil).Reconcile(t.Context(), operator.Audit{Vault: s.vault})
		check(t, err)
		if len(books.Discrepancies) != 20 || len(f.kept.Recheck) != n {
			t.Errorf("%d discrepancies, %d cards to read again", len(books.Discrepancies), len(f.kept.Recheck))
		}
	})
}

// sealed is a store with its own encrypted cards.
type sealed struct {
	faultyStore
	cards []operator.SealedCard // by uuid
}

func (s *sealed) SealedCards(_ context.Context, from uuid.UUID, n int) ([]operator.SealedCard, error) {
	first := slices.IndexFunc(s.cards, func(c operator.SealedCard) bool { return bytes.Compare(c.UUID[:], from[:]) >= 0 })
	if first < 0 {
		return nil, nil
	}
	return s.cards[first:min(first+n, len(s.cards))], nil
}

func (s *sealed) KeepBooks(_ context.Context, r operator.Reading) error {
	s.kept = r
	return nil
}

// Every encrypted card is decrypted at every page size, and only damaged ones
// are read again next time.
func TestReconcile_Pages_CoverEveryCard(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		for _, n := range []int{0, 1, 499, 500, 501, 1000, 1001} {
			on := &sealed{faultyStore: faultyStore{Store: s.store}}
			for i := range n {
				c := operator.SealedCard{UUID: uuid.UUID{14: byte(i >> 8), 15: byte(i)}, AccountID: s.account}
				on.cards = append(on.cards, c)
			}
			if n > 0 { // only the last card is damaged
				on.cards[n-1].RefundAddress = []byte("canary")
			}
			books, err := operator.New(on, s.rates, nil).Reconcile(t.Context(), operator.Audit{Vault: s.vault})
			check(t, err)
			if len(books.Discrepancies) != min(n, 1) || len(on.kept.Recheck) != min(n, 1) {
				t.Errorf("of %d cards, %d were reported and %d will be read again, want %d", n, len(books.Discrepancies),
					len(on.kept.Recheck), min(n, 1))
			}
		}
	})
}

func TestReconcile_UndecryptableRefundAddress_Reported(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		good, bad := s.order(), s.order()
		for _, c := range []*card.Card{good, bad} {
			sealed, err := s.vault.Seal(good.UUID, good.AccountID, card.RefundAddressField, "an address")
			check(t, err)
			s.exec("UPDATE cards SET refund_address = $1 WHERE uuid = $2", sealed, c.UUID) // both cards get the ciphertext of one
		}
		s.order() // without a refund address
		books, err := s.service.Reconcile(t.Context(), operator.Audit{Full: true, Vault: s.vault})
		check(t, err)
		if diff := cmp.Diff([]operator.Discrepancy{{ID: bad.UUID, Text: "its refund address can't be decrypted"}},
			books.Discrepancies); diff != "" {
			t.Error(diff)
		}
	})
}
