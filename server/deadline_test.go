package server_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// A database that hangs must not hold on to requests for ever; only a list that is streamed has no end of its own.
func TestRequest_IsGivenUpAfterAWhile(t *testing.T) {
	t.Parallel()
	deadlines := make(chan bool, 1)
	note := func(ctx context.Context) {
		end, has := ctx.Deadline()
		deadlines <- has && time.Until(end) <= 20*time.Second
	}
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		return hooked{
			Store: s,
			cardByUUID: func(ctx context.Context, _ uuid.UUID) (*card.Card, error) {
				note(ctx)
				return nil, fmt.Errorf("select card: %w", card.ErrUnavailable.Because(context.DeadlineExceeded))
			},
			cards: func(ctx context.Context, _ order.Filter) ([]*card.Card, error) {
				note(ctx)
				return nil, nil
			},
		}
	}})
	token := d.token(t)
	d.send(t, http.MethodGet, "/api/cards/"+uuid.NewString(), token, "").refused(t, http.StatusServiceUnavailable, "unavailable")
	if !<-deadlines {
		t.Error("a card is read without a deadline")
	}
	d.send(t, http.MethodGet, "/api/cards?limit=1", token, "").want(t, http.StatusOK)
	if !<-deadlines {
		t.Error("a page is read without a deadline")
	}
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	if <-deadlines {
		t.Error("the whole list is read with a deadline")
	}
}
