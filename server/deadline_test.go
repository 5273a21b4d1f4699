package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// A hanging database must not hold requests forever. Only streamed lists have
// no deadline.
func TestRequest_DatabaseHangs_TimesOut(t *testing.T) {
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
				return nil, fmt.Errorf("select card: %w", card.ErrUnavailable.WithCause(context.DeadlineExceeded))
			},
			cards: func(ctx context.Context, _ order.Filter) ([]*card.Card, error) {
				note(ctx)
				return nil, nil
			},
		}
	}})
	token := d.token(t)
	d.send(t, http.MethodGet, "/api/cards/"+uuid.NewString(), token, "").refused(t, http.StatusServiceUnavailable,
		"unavailable")
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

// A streamed list has no deadline, but its first byte has one. It ends when its
// client disconnects.
func TestStream_NoCardBeforeDeadline_IsUnavailable(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for real time")
	}
	t.Parallel()
	for name, x := range map[string]struct {
		cards int
		hangs int // the page that hangs
		want  string
	}{
		"before the first card": {0, 0, "HTTP/1.1 503"},
		"after the first page":  {500, 1, "HTTP/1.1 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, ended := 0, make(chan time.Time, 1)
			d := deploy(t, setup{wrap: func(s *store.Store) hooked {
				return hooked{Store: s, cards: func(ctx context.Context, filter order.Filter) ([]*card.Card, error) {
					if page++; page <= x.hangs {
						return slices.Repeat([]*card.Card{{UUID: uuid.New(), Coin: chain.Currencies()[0]}}, x.cards), nil
					}
					<-ctx.Done()
					ended <- time.Now()
					return nil, fmt.Errorf("select cards: %w", ctx.Err())
				}}
			}})
			token, start := d.token(t), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 19*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.web.URL+"/api/cards", nil)
			need(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := d.web.Client().Do(r)
			need(t, err)
			defer func() { _ = res.Body.Close() }()
			equal(t, "status", res.Proto+" "+res.Status[:3], x.want)
			if res.StatusCode == http.StatusServiceUnavailable {
				equal(t, "asks to try again", res.Header.Get("Retry-After"), "5")
				return
			}
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Error("the part ends like a complete list")
			}
			if took := (<-ended).Sub(start); took < 18*time.Second {
				t.Errorf("a list that had begun was aborted after %s", took)
			}
		})
	}
}
