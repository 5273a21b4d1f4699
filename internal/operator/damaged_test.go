package operator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// From the payment to the credentials, a card that can't be decoded is in nobody's way, and the operator is told which it is.
func TestReconcile_NamesTheCardThatCantBeDecoded(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		bad, good := s.order(), s.order()
		s.exec("UPDATE cards SET payment_state = 'canary' WHERE uuid = $1", bad.UUID)
		s.pay(bad, coin, 10)
		s.pay(good, coin, 10)
		s.settle()
		s.settle()
		s.wantIssued(1)
		books, err := s.desk.Reconcile(t.Context())
		check(t, err)
		want := []string{
			"its received amount does not match its transfers",
			"its row can't be decoded: this version does not know its currency or its payment's state",
			"monero: 2000000000000 were counted, but 1000000000000 credited, 0 surplus, 0 unattributed and 0 returned make 1000000000000",
		}
		if len(books.Doubts) != len(want) {
			t.Fatalf("doubts %+v", books.Doubts)
		}
		for i, d := range books.Doubts {
			if d.Text != want[i] || i < 2 && d.ID != bad.UUID {
				t.Errorf("doubt %+v, want %q", d, want[i])
			}
		}
		_, err = s.desk.ResolveCard(t.Context(), operator.Decision{CardUUID: bad.UUID, Kind: operator.Accept, Note: "n", Operator: "o"})
		if !errors.Is(err, card.ErrDamaged) || errors.Is(err, card.ErrNoRow) {
			t.Errorf("resolving it: %v", err)
		}

		s.exec("UPDATE cards SET payment_state = 'unpaid' WHERE uuid = $1", bad.UUID)
		s.mine(1)
		s.settle()
		s.wantIssued(2)
	})
}

func TestCheckCredentials_NamesTheCardsThatCantBeDecrypted(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		var cards []*card.Card
		for range 3 {
			c := s.order()
			s.pay(c, coin, 10)
			cards = append(cards, c)
		}
		s.settle()
		s.wantIssued(3)
		if doubts, err := s.desk.CheckCredentials(t.Context(), s.vault); err != nil || len(doubts) > 0 {
			t.Errorf("%+v, %v", doubts, err)
		}
		s.exec("UPDATE credentials SET url = $1 WHERE card_uuid = $2", []byte("canary"), cards[1].UUID)
		doubts, err := s.desk.CheckCredentials(t.Context(), s.vault)
		check(t, err)
		if len(doubts) != 1 || doubts[0] != (operator.Doubt{ID: cards[1].UUID, Text: "its credentials can't be decrypted"}) {
			t.Errorf("%+v", doubts)
		}
		s.exec("UPDATE credentials SET url = $1", []byte("canary"))
		if doubts, err = s.desk.CheckCredentials(t.Context(), s.vault); err != nil || len(doubts) != 3 {
			t.Errorf("%+v, %v", doubts, err)
		}
		broken := operator.New(&faulty{Store: s.store, sealed: errBroken}, s.rates, nil)
		if doubts, err := broken.CheckCredentials(t.Context(), s.vault); doubts != nil || !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "check credentials: ") {
			t.Errorf("%+v, %v", doubts, err)
		}
	})
}
