package order_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// An issued card whose credentials can't be decrypted must not look as if it
// were not issued. It is omitted; other cards are listed.
func TestListCards_CorruptCredentials_OtherCardsAreReturned(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		var log bytes.Buffer
		s.db.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
		var cards []*card.Card
		for range 5 {
			c := s.create("150", "")
			s.generate(c, credentials)
			cards = append(cards, c)
		}
		s.exec("UPDATE credentials SET security_code = $1 WHERE card_uuid IN ($2, $3)", []byte("canary"), cards[4].UUID,
			cards[2].UUID)
		for limit, want := range map[int][]uuid.UUID{
			0: {cards[3].UUID, cards[1].UUID, cards[0].UUID},
			1: {cards[3].UUID},
			2: {cards[3].UUID, cards[1].UUID},
			3: {cards[3].UUID, cards[1].UUID, cards[0].UUID},
		} {
			if got := s.list(order.Filter{Limit: limit}); !slices.Equal(got, want) {
				t.Errorf("limit %d: %v, want %v", limit, got, want)
			}
		}
		for _, c := range []*card.Card{cards[4], cards[2]} {
			if n := strings.Count(log.String(), "card="+c.UUID.String()); n != 1 {
				t.Errorf("card %s was reported %d times", c.UUID, n)
			}
			var public *card.Error
			if got, err := s.orders.GetCard(t.Context(), s.account, c.UUID); got != nil || err == nil ||
				errors.As(err, &public) || !strings.Contains(err.Error(), c.UUID.String()) {
				t.Errorf("%v, %v", got, err)
			}
		}
		if text := log.String(); strings.Count(text, "level=ERROR") != 2 || strings.Contains(text, "canary") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

func TestListCards_PageOfCorruptCredentials_Continues(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.db.LogTo(slog.New(slog.DiscardHandler))
		ids := s.insertCards(502)
		s.exec("UPDATE cards SET status = 'generated' WHERE uuid NOT IN ($1, $2)", ids[500], ids[501])
		s.exec("INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) SELECT uuid, $1, $1, $1, $1, $1 FROM cards WHERE status = 'generated'", []byte("damaged"))
		for limit, want := range map[int][]uuid.UUID{0: ids[500:], 2: ids[500:], 1: ids[500:501]} {
			if got := s.list(order.Filter{Limit: limit}); !slices.Equal(got, want) {
				t.Errorf("limit %d: %v, want %v", limit, got, want)
			}
		}
	})
}
