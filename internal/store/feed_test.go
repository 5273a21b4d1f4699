package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestCardEvents_AreThoseOfOneCardOfTheAccount(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		account := newAccount(t, s)
		one, two, foreign := insertCard(t, s, newCard(account)), insertCard(t, s, newCard(account)),
			insertCard(t, s, newCard(newAccount(t, s)))
		reset := newEvent(one, card.EventFeedReset)
		reset.CardUUID, reset.Status, reset.State = uuid.Nil, "", ""
		for _, e := range []card.Event{newEvent(one, card.EventDetected), newEvent(two, card.EventDetected),
			newEvent(foreign, card.EventDetected), reset,
			newEvent(one, card.EventUnderpaid), newEvent(one, card.EventGenerated)} {
			insertEvents(t, s, e)
		}
		for _, x := range []struct {
			account, card uuid.UUID
			after         int64
			limit         int
			want          []int64
		}{
			{account, one.UUID, 0, 9, []int64{1, 4, 5}}, {account, one.UUID, 1, 9, []int64{4, 5}},
			{account, one.UUID, 3, 1, []int64{4}},
			{account, one.UUID, 5, 9, nil}, {account, two.UUID, 0, 9, []int64{2}}, {account, foreign.UUID, 0, 9, nil},
			{foreign.AccountID, foreign.UUID, 0, 9, []int64{1}}, {foreign.AccountID, one.UUID, 0, 9, nil},
			{account, uuid.New(), 0, 9, nil},
		} {
			es, err := s.CardEvents(t.Context(), x.account, x.card, x.after, x.limit)
			check(t, err)
			var got []int64
			for _, e := range es {
				got = append(got, e.Seq)
				if e.CardUUID != x.card {
					t.Errorf("an event of card %s among those of %s", e.CardUUID, x.card)
				}
			}
			if diff := cmp.Diff(x.want, got); diff != "" {
				t.Errorf("%+v: %s", x, diff)
			}
		}
		seqs, err := s.LastSeqs(t.Context(), []uuid.UUID{account, foreign.AccountID, newAccount(t, s), uuid.New()})
		check(t, err)
		if len(seqs) != 3 || seqs[account] != 5 || seqs[foreign.AccountID] != 1 {
			t.Errorf("newest events of accounts: %v", seqs)
		}
		got, err := s.LastSeqsOfCards(t.Context(), []uuid.UUID{one.UUID, two.UUID, foreign.UUID, uuid.New()})
		check(t, err)
		want := map[webhook.Topic]int64{{AccountID: account, CardUUID: one.UUID}: 5,
			{AccountID: account, CardUUID: two.UUID}:               2,
			{AccountID: foreign.AccountID, CardUUID: foreign.UUID}: 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("newest events of cards: %s", diff)
		}
	})
}
