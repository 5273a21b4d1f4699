package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/store"
)

// wantDoubtful fails the test unless these items are doubtful, in this order.
func wantDoubtful(t *testing.T, s *store.Store, want ...uuid.UUID) []card.DoubtfulItem {
	t.Helper()
	found, err := s.DoubtfulStock(t.Context())
	check(t, err)
	var got []uuid.UUID
	for _, item := range found {
		got = append(got, item.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	return found
}

func TestReleaseStock_LeavesOutWhatWasGivenOut(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		items := stockUp(t, s, 3)
		wantDoubtful(t, s)
		_, err := s.HoldStock(t.Context(), shelf)
		check(t, err)
		wantDoubtful(t, s, items[0].ID, items[1].ID, items[2].ID)
		if n, err := s.ReleaseStock(t.Context(), shelf, []uuid.UUID{items[0].ID, items[2].ID}); err != nil || n != 1 {
			t.Errorf("%d released, error %v", n, err)
		}
		wantStock(t, s, 1, 0, 0, 2)
		wantDoubtful(t, s, items[0].ID, items[2].ID)
	})
}

func TestDoubtfulStock_HasWhatACardNeverGot(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		all := stockUp(t, s, 4)
		payCards(t, s, 3)
		claimed, err := s.ClaimIntents(t.Context(), claimOf(shelf), 3, time.Hour)
		check(t, err)
		var items []card.StockItem
		for _, intent := range claimed {
			item, err := s.TakeStock(t.Context(), shelf, intent.CardUUID, 150_50, epoch)
			check(t, err)
			items = append(items, item)
		}
		wantDoubtful(t, s) // they are on their way
		for i, hash := range [][]byte{items[0].NumberHash, []byte("made by another supplier")} {
			made := issued(claimed[i], "x")
			made.NumberHash = hash
			check(t, s.IssueTx(t.Context(), func(tx issue.Tx) error {
				return tx.SaveIssued(t.Context(), []issue.IssuedCard{made})
			}))
		}
		wantDoubtful(t, s, items[1].ID)
		parked := claimed[2]
		parked.State = issue.StateParked
		check(t, s.SaveIntents(t.Context(), []issue.Intent{parked}))
		for i, item := range wantDoubtful(t, s, items[1].ID, items[2].ID) {
			if item.CardUUID != claimed[i+1].CardUUID || item.State != card.StockIssued || item.Sealed == nil {
				t.Errorf("%+v", item)
			}
		}
		_, err = s.HoldStock(t.Context(), shelf)
		check(t, err)
		if held := wantDoubtful(t, s, items[1].ID, items[2].ID, all[3].ID); held[2].CardUUID != uuid.Nil ||
			held[2].State != card.StockHeld {
			t.Errorf("%+v", held[2])
		}
	})
}
