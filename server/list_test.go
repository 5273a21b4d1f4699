package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

var nextLink = regexp.MustCompile(`^</api/cards\?([^>]*)>; rel="next"$`)

// page returns the uuids of one page and the query of the next one.
func (d *deployment) page(t testing.TB, token, query string) (ids []string, next string) {
	t.Helper()
	a := d.send(t, http.MethodGet, "/api/cards?"+query, token, "").want(t, http.StatusOK)
	var cards []struct{ UUID string }
	need(t, json.Unmarshal([]byte(a.body), &cards))
	for _, c := range cards {
		ids = append(ids, c.UUID)
	}
	if link := a.header.Get("Link"); link != "" {
		if strings.Contains(link, query) && strings.Contains(query, "cursor=") {
			t.Fatalf("the page after %s is the same page", query)
		}
		found := nextLink.FindStringSubmatch(link)
		if found == nil {
			t.Fatalf("Link is %q", link)
		}
		next = found[1]
	}
	return ids, next
}

func TestListCards_WalkDuringInserts_HasEveryCardOnce(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		c := d.client(t, token)
		create := func() string {
			t.Helper()
			made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
			need(t, err)
			return made.UUID.String()
		}
		var want []string
		for range 11 {
			want = append(want, create())
		}
		slices.Reverse(want)
		for _, limit := range []int{1, 2, 3, 10, 11, 12, 1000} {
			t.Run(fmt.Sprint(limit), func(t *testing.T) {
				all, _ := d.page(t, token, "")
				newer := len(all) - len(want)
				equal(t, "the whole list, newest first", all[newer:], want)
				var got []string
				for query := fmt.Sprintf("limit=%d", limit); query != ""; {
					ids, next := d.page(t, token, query)
					if len(ids) > limit || next != "" && len(ids) != limit {
						t.Fatalf("a page of %d cards, next %q", len(ids), next)
					}
					got, query = append(got, ids...), next
					create() // precedes the cards that were read
				}
				equal(t, "walk", got, all)
			})
		}
	})
}

func TestListCards_Link_KeepsFilter(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	c := d.client(t, token)
	var paid, unpaid []string
	for i := range 9 {
		made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
		need(t, err)
		if i%2 == 1 {
			unpaid = append(unpaid, made.UUID.String())
			continue
		}
		paid = append(paid, made.UUID.String())
		_, err = c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
		need(t, err)
	}
	slices.Reverse(paid)
	slices.Reverse(unpaid)
	walk := func(query string) (got []string) {
		t.Helper()
		for query != "" {
			ids, next := d.page(t, token, query)
			got, query = append(got, ids...), next
		}
		return got
	}
	equal(t, "generated", walk("status=generated&limit=2"), paid)
	equal(t, "awaiting", walk("limit=2&status=awaiting_payment"), unpaid)
	equal(t, "as many as fit", walk("limit=5&status=generated"), paid)
	for _, status := range []client.CardStatus{client.CardStatusGenerated, client.CardStatusAwaitingPayment} {
		for one, err := range c.ListCards(t.Context(), client.ListCardsOptions{Status: status, PageSize: 2}) {
			need(t, err)
			equal(t, "status", one.Status, status)
			equal(t, "has credentials", one.Credentials != client.Credentials{}, status == client.CardStatusGenerated)
		}
	}
}

// A cursor of another account returns a part of the caller's list, and
// discloses nothing.
func TestListCards_CursorOfOtherAccount_DisclosesNothing(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	mine, theirs := d.token(t), d.token(t)
	want := map[string][]string{}
	for i := range 8 {
		token := []string{mine, theirs}[i%2]
		a := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
		want[token] = append(want[token], strings.TrimPrefix(a.header.Get("Location"), "/api/cards/"))
	}
	slices.Reverse(want[mine])
	_, next := d.page(t, theirs, "limit=2")
	query, err := url.ParseQuery(next)
	need(t, err)
	ids, _ := d.page(t, mine, "cursor="+query.Get("cursor"))
	equal(t, "mine behind their cursor", ids, want[mine][1:])
	for _, nobodys := range []string{"AAAAAAAAAAAAAAAAAAAAAA", "_____________________w"} {
		ids, next := d.page(t, d.token(t), "limit=1&cursor="+nobodys)
		if len(ids) > 0 || next != "" {
			t.Errorf("an account without cards gets %v", ids)
		}
	}
}

// many returns a card, and makes the list longer than one buffer.
func many(t testing.TB, d *deployment, token string) *card.Card {
	t.Helper()
	a := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	id, err := uuid.Parse(strings.TrimPrefix(a.header.Get("Location"), "/api/cards/"))
	need(t, err)
	tokens, err := d.store.Tokens(t.Context())
	need(t, err)
	c, err := d.store.CardByUUID(t.Context(), tokens[0].AccountID, id)
	need(t, err)
	return c
}

// An aborted list must not look complete, neither by its bytes nor by its end.
func TestListCards_FailsMidway_AbortsConnection(t *testing.T) {
	t.Parallel()
	var template *card.Card
	var pages int
	var end func() error
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		return hooked{Store: s, cards: func(_ context.Context, filter order.Filter) ([]*card.Card, error) {
			if pages--; pages < 0 {
				return nil, end()
			}
			return slices.Repeat([]*card.Card{template}, filter.Limit), nil
		}}
	}})
	token := d.token(t)
	template = many(t, d, token)
	breaks := func() error { return card.ErrUnavailable.WithCause(errors.New("connection reset")) }
	for name, x := range map[string]struct {
		pages  int
		end    func() error
		status int
		code   string
	}{
		"on the first page": {0, breaks, http.StatusServiceUnavailable, "unavailable"},
		"unknown, on the first page": {0, func() error {
			return errors.New("?")
		}, http.StatusInternalServerError, "internal"},
		"panic, on the first page": {0, func() error { panic("?") }, http.StatusInternalServerError, "internal"},
		"on the second page":       {1, breaks, 0, ""},
		"unknown, on a later page": {4, func() error { return errors.New("?") }, 0, ""},
		"panic, on a later page":   {4, func() error { panic("?") }, 0, ""},
	} {
		pages, end = x.pages, x.end
		t.Run(name, func(t *testing.T) {
			if x.status > 0 {
				d.send(t, http.MethodGet, "/api/cards", token, "").refused(t, x.status, x.code)
				return
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.web.URL+"/api/cards", nil)
			need(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := (&http.Client{Transport: checked{t, d.web.Client().Transport}}).Do(r)
			need(t, err)
			defer func() { _ = res.Body.Close() }()
			text, err := io.ReadAll(res.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the response ends with %v, like a complete one", err)
			}
			if json.Valid(text) || len(text) < 30<<10 {
				t.Errorf("%d bytes, valid: %t", len(text), json.Valid(text))
			}
		})
		// A page is sent once it is complete, so that every failure gets an
		// error response.
		pages = min(x.pages, 1)
		t.Run(name+", with a limit", func(t *testing.T) {
			a := d.send(t, http.MethodGet, "/api/cards?limit=1000", token, "")
			if a.status != http.StatusServiceUnavailable && a.status != http.StatusInternalServerError {
				t.Errorf("status %d", a.status)
			}
		})
	}
}

// Cards are sent while later ones are being read, so that memory does not grow
// with the list.
func TestListCards_Streams(t *testing.T) {
	t.Parallel()
	var template *card.Card
	goOn := make(chan struct{})
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		pages := 0
		return hooked{Store: s, cards: func(_ context.Context, filter order.Filter) ([]*card.Card, error) {
			if pages++; pages == 2 {
				<-goOn
			}
			if pages == 7 {
				return nil, nil
			}
			return slices.Repeat([]*card.Card{template}, filter.Limit), nil
		}}
	}})
	token := d.token(t)
	template = many(t, d, token)
	l := listen(t, unbent)
	serveOn(t, l, d.handler)
	conn := dial(t, l.Addr().String())
	_, err := fmt.Fprintf(conn, "GET /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token)
	need(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	need(t, err)
	part := make([]byte, 30<<10)
	_, err = io.ReadFull(res.Body, part) // the store has not continued yet
	need(t, err)
	early := l.writeDeadlines.Load()
	close(goOn)
	rest, err := io.ReadAll(res.Body)
	need(t, err)
	var cards []client.Card
	need(t, json.Unmarshal(append(part, rest...), &cards))
	equal(t, "cards", len(cards), 1_350)
	if late := l.writeDeadlines.Load(); late < early+20 {
		t.Errorf("the deadline of a reader that keeps up was extended only %d times", late-early)
	}
}

// A client that disconnects must not keep the store busy.
func TestListCards_ClientDisconnects_StopsReading(t *testing.T) {
	t.Parallel()
	var template *card.Card
	ended := make(chan error, 1)
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		var once sync.Once
		return hooked{Store: s, cards: func(ctx context.Context, filter order.Filter) ([]*card.Card, error) {
			once.Do(func() { context.AfterFunc(ctx, func() { close(ended) }) }) // with the request
			return slices.Repeat([]*card.Card{template}, filter.Limit), nil     // endless
		}}
	}})
	token := d.token(t)
	template = many(t, d, token)
	conn := dial(t, d.address())
	_, err := fmt.Fprintf(conn, "GET /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token)
	need(t, err)
	_, err = io.ReadFull(conn, make([]byte, 64<<10))
	need(t, err)
	need(t, conn.Close())
	if err := <-ended; err != nil {
		t.Errorf("after the client disconnected: %v", err)
	}
}
