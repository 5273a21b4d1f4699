package store_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// anyAmount returns an amount of any size, often one at the edge of what fits.
func anyAmount(r *rand.Rand) int64 {
	switch r.IntN(4) {
	case 0:
		return []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 32, 1<<32 - 1, 1, 0}[r.IntN(6)]
	case 1:
		return r.Int64N(1 << 33)
	}
	return r.Int64()
}

// wantSum compares a sum with the same by math/big.
func wantSum(t *testing.T, name string, got card.Total, amounts ...int64) {
	t.Helper()
	want := new(big.Int)
	for _, a := range amounts {
		want.Add(want, big.NewInt(a))
	}
	if got.String() != want.String() {
		t.Errorf("%s: %s, want %s, of %d", name, got, want, amounts)
	}
}

func TestBooks_SumsOfAnySizeAreExact(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, db := open(t, url), rig.OpenSQL(t, url)
		account := newAccount(t, s)
		var cards []*card.Card
		for range 5 {
			cards = append(cards, insertCard(t, s, newCard(account)))
		}
		exec := func(statement string, args ...any) {
			t.Helper()
			for n := 1; strings.Contains(statement, "?"); n++ { // SQLite takes these, too
				statement = strings.Replace(statement, "?", fmt.Sprint("$", n), 1)
			}
			_, err := db.Exec(statement, args...)
			check(t, err)
		}
		rounds := 40
		if testing.Short() {
			rounds = 10
		}
		for round := range rounds {
			r := rand.New(rand.NewPCG(uint64(round), 1))
			exec("DELETE FROM transfers")
			var all, stray, held, refunded, lost []int64
			var doubtful []operator.Doubt
			for i, c := range cards {
				received, own := new(big.Int), []int64(nil)
				for range r.IntN(4) {
					own = append(own, anyAmount(r))
					received.Add(received, big.NewInt(own[len(own)-1]))
				}
				for j, a := range own {
					exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', ?, ?, ?, ?, 5, FALSE, TRUE, 1)",
						fmt.Sprint(i), j, c.Address, a)
				}
				all = append(all, own...)
				stored := received.Int64() // wraps around
				k := [3]int64{anyAmount(r), anyAmount(r), -anyAmount(r)}
				if r.IntN(3) > 0 {
					k = [3]int64{stored, 0, 0}
				}
				if !received.IsInt64() {
					doubtful = append(doubtful, operator.Doubt{ID: c.UUID, Text: "its received amount does not match its transfers"})
				}
				if new(big.Int).Add(big.NewInt(k[0]), big.NewInt(k[1])).Cmp(big.NewInt(stored)) != 0 {
					doubtful = append(doubtful, operator.Doubt{ID: c.UUID, Text: "its credits do not add up to its received amount"})
				}
				held, refunded, lost = append(held, k[0]), append(refunded, k[1]), append(lost, k[2])
				exec("UPDATE cards SET received = ?, credit_held = ?, credit_refunded = ?, credit_lost = ?, payment_state = 'late' WHERE uuid = ?", stored, k[0], k[1], k[2], c.UUID.String())
			}
			for j := range r.IntN(4) {
				stray = append(stray, anyAmount(r))
				exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', 'x', ?, 'nowhere', ?, 0, FALSE, TRUE, 1)", j, stray[j])
			}
			books := readBooks(t, s)
			b := books.Coins[0]
			wantSum(t, "counted", b.Counted, append(slices.Clone(all), stray...)...)
			wantSum(t, "unattributed", b.Unattributed, stray...)
			wantSum(t, "held", b.Held, held...)
			wantSum(t, "refunded", b.Refunded, refunded...)
			wantSum(t, "lost", b.Lost, lost...)
			wantDoubtsOf(t, books, doubtful)
		}
	})
}

// wantDoubtsOf compares the doubts about the sums of cards.
func wantDoubtsOf(t *testing.T, books operator.Books, want []operator.Doubt) {
	t.Helper()
	got := slices.DeleteFunc(slices.Clone(books.Doubts), func(d operator.Doubt) bool {
		return d.Text != "its received amount does not match its transfers" &&
			d.Text != "its credits do not add up to its received amount"
	})
	byText := func(a, b operator.Doubt) int {
		return cmp.Or(strings.Compare(a.Text, b.Text), bytes.Compare(a.ID[:], b.ID[:]))
	}
	slices.SortFunc(got, byText)
	slices.SortFunc(want, byText)
	if !slices.Equal(got, want) {
		t.Errorf("doubts %+v, want %+v", got, want)
	}
}

// What ten payments of a million coins did to an installation before they were
// refused.
func TestBooks_ACardWhoseSumWrappedAroundIsDoubted(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		c := insertCard(t, s, newCard(newAccount(t, s)))
		const million = 999_999_999999999999
		for range 10 {
			arrive(t, s, card.Transfer{Address: c.Address, Amount: million})
		}
		sum := int64(million)
		sum *= 10
		assess(t, s, c, card.Assessment{State: card.Underpaid, Received: card.Amount(sum)})
		books := readBooks(t, s)
		wantSum(t, "counted", books.Coins[0].Counted, slices.Repeat([]int64{million}, 10)...)
		if !slices.Contains(books.Doubts,
			operator.Doubt{ID: c.UUID, Text: "its received amount does not match its transfers"}) {
			t.Errorf("doubts: %+v", books.Doubts)
		}
	})
}
