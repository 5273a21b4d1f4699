package order_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

func TestRevealCard_IsNotMasked(t *testing.T) {
	for name, mask := range map[string]bool{"masked": true, "not masked": false} {
		t.Run(name, func(t *testing.T) {
			onEach(t, setup{config: func(c *order.Config) { c.MaskCredentials = mask }}, func(t *testing.T, s *fixture) {
				s.ready()
				c := s.create("150", "")
				s.generate(c, credentials)
				read := credentials
				if mask {
					read = card.MaskCredentials("1111", credentials.ExpirationDate, credentials.URL)
				}
				s.spy.takeCalls()
				got, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
				if check(t, err); *got.Credentials != read {
					t.Errorf("read %q", got.Credentials.CardNumber.Reveal())
				}
				s.wantCalls("CardByUUID")
				got, err = s.orders.RevealCard(t.Context(), s.account, c.UUID)
				if check(t, err); *got.Credentials != credentials {
					t.Errorf("revealed %q", got.Credentials.CardNumber.Reveal())
				}
				s.wantCalls("CardByUUID")
				check(t, s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(c *card.Card) error {
					if *c.Credentials != read {
						t.Errorf("listed %q", c.Credentials.CardNumber.Reveal())
					}
					return nil
				}))
				if got, err := s.orders.RevealCard(t.Context(), s.newAccount(), c.UUID); got != nil ||
					!errors.Is(err, card.ErrNotFound) {
					t.Errorf("of another account: %v, %v", got, err)
				}
			})
		})
	}
}

// A list must not omit cards because a key is missing.
func TestListCards_MissingKey_IsUnavailable(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		s.create("150", "")
		s.generate(c, credentials)
		s.exec("UPDATE credentials SET url = $1", append((s.vault.Keys().Primary^1).Prefix(), "sealed"...))
		var shown []uuid.UUID
		err := s.orders.ListCards(t.Context(), order.Filter{AccountID: s.account}, func(c *card.Card) error {
			shown = append(shown, c.UUID)
			return nil
		})
		if !errors.Is(err, card.ErrUnavailable) || len(shown) != 1 {
			t.Errorf("%d cards, %v", len(shown), err)
		}
	})
}
