package order_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

func TestTag_EqualsTagOfReadCards(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		s.create("60", "")
		var tags []string
		note := func(tag string, err error) {
			check(t, err)
			for _, other := range tags {
				if tag == other {
					t.Errorf("tag %d equals another one", len(tags))
				}
			}
			tags = append(tags, tag)
		}
		for _, generated := range []bool{false, true} {
			if generated {
				s.generate(c, credentials)
			}
			read, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
			check(t, err)
			note(s.orders.Tagger().TagOfCard(t.Context(), s.account, c.UUID))
			if got := s.orders.Tagger().Tag(read); got != tags[len(tags)-1] {
				t.Errorf("the card was read with tag %q, want %q", got, tags[len(tags)-1])
			}
			var listed []*card.Card
			filter := order.Filter{AccountID: s.account, Limit: 5, Tagged: true}
			check(t, s.orders.ListCards(t.Context(), filter, func(c *card.Card) error {
				listed = append(listed, c)
				return nil
			}))
			note(s.orders.Tagger().TagOfPage(t.Context(), filter))
			if got := s.orders.Tagger().Tag(listed...); got != tags[len(tags)-1] {
				t.Errorf("%d cards were listed with tag %q, want %q", len(listed), got, tags[len(tags)-1])
			}
		}
		for _, ask := range []struct{ account, card uuid.UUID }{{s.newAccount(), c.UUID}, {s.account, uuid.New()}} {
			if tag, err := s.orders.Tagger().TagOfCard(t.Context(), ask.account, ask.card); tag != "" ||
				!errors.Is(err, card.ErrNotFound) {
				t.Errorf("tag %q, %v", tag, err)
			}
		}
	})
}
