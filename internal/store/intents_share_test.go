package store_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/store"
)

// claimOf returns the claim of the only supplier.
func claimOf(supplier string) issue.Claim {
	return issue.Claim{Supplier: supplier, Shares: []issue.Share{{Supplier: supplier, Min: card.MinUSD, Max: card.MaxUSD}}}
}

// Each supplier's issuer claims what that supplier is to be asked for, and the
// first one also what is nobody's.
func TestClaimIntents_EachSupplierHasItsShare(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		cards := payCards(t, s, 3)
		usd := cards[0].USD
		claims := func(supplier string, shares ...issue.Share) int {
			t.Helper()
			got, err := s.ClaimIntents(t.Context(), issue.Claim{Supplier: supplier, Shares: shares}, 9, expiredAtOnce)
			check(t, err)
			for _, i := range got { // as if nobody had been asked
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
		// An intent that was given to a supplier stays with it, whatever its
		// share, until the supplier is gone.
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
