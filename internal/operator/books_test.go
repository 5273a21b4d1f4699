package operator_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// fillBooks puts a different amount into every sum of the books, and returns the
// expected sums.
func (s *fixture) fillBooks() ledger {
	s.t.Helper()
	c, short, late, back := s.order(), s.order(), s.order(), s.order()
	s.pay(c, coin+1000, 10)
	s.pay(late, 10, 10)
	s.pay(back, 100, 10)
	stray, err := s.store.TakeAddresses(s.t.Context(), "monero", 1)
	check(s.t, err)
	s.pay(&card.Card{Address: stray[0]}, 10000, 10)
	s.settle()
	s.now = s.now.Add(3 * time.Hour)
	s.mine(1)
	s.settle()
	s.resolve(back, operator.Refund)
	s.rates.usd = "10"
	s.pay(short, 1, 0)
	s.settle()
	want := ledger{Counted: coin + 11111, Made: coin, Open: 1, Held: 10, Refunded: 100, Surplus: 1000,
		Unattributed: 10000, Unconfirmed: 1, Paid: 1, Issued: 1, Late: 1}
	s.wantBooks(want)
	return want
}

func TestReconcile_EverySum_AddsUp(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		books := s.fillBooks().books()
		if got, want := books.Credited(), card.TotalOf(coin+111); !got.Equal(want) {
			t.Errorf("credited %s, want %s", got, want)
		}
	})
}

func TestReconcile_SumsDiffer_ReportsDiscrepancy(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.fillBooks()
		s.exec("UPDATE cards SET credit_paid = credit_paid + 1 WHERE credit_paid = 1")
		s.discrepancies = []string{
			"its credits do not add up to its received amount",
			"monero: 1000000011111 were counted, but 1000000000112 credited, 1000 surplus, 10000 unattributed and 0 returned make 1000000011112",
		}
	})
}

func TestReconcile_ReadFails_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		broken := operator.New(&faultyStore{Store: s.store, books: errBroken}, s.rates, nil)
		books, err := broken.Reconcile(t.Context(), operator.Audit{})
		if diff := cmp.Diff(operator.Books{}, books); diff != "" || !errors.Is(err, errBroken) {
			t.Errorf("%s, %v", diff, err)
		}
	})
}

func TestReconcile_KeepFails_ReturnsBooks(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		want := s.fillBooks()
		var log bytes.Buffer
		broken := operator.New(&faultyStore{Store: s.store, keep: errBroken}, s.rates, slog.New(slog.NewTextHandler(&log, nil)))
		books, err := broken.Reconcile(t.Context(), operator.Audit{})
		check(t, err)
		if diff := cmp.Diff([]operator.CoinBooks{want.books()}, books.Coins); diff != "" ||
			!strings.Contains(log.String(), errBroken.Error()) {
			t.Errorf("%s, logged %s", diff, &log)
		}
	})
}

func TestAfter_ReturnsNextUUID(t *testing.T) {
	for id, want := range map[string]string{
		"00000000-0000-0000-0000-000000000000": "00000000-0000-0000-0000-000000000001",
		"01900000-0000-7000-80ff-ffffffffffff": "01900000-0000-7000-8100-000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff": "00000000-0000-0000-0000-000000000000",
	} {
		if got := operator.After(uuid.MustParse(id)); got.String() != want {
			t.Errorf("after %s: %s, want %s", id, got, want)
		}
	}
}
