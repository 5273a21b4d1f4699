package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/webhook"
)

// happen inserts events of a card's account, one of each type, and returns them
// with their numbers.
func (d *deployment) happen(t testing.TB, account uuid.UUID, types ...card.EventType) []card.Event {
	t.Helper()
	es := make([]card.Event, len(types))
	for i, kind := range types {
		es[i] = card.ExampleEvent(uuid.Must(uuid.NewV7()), account, uuid.Must(uuid.NewV7()), kind)
		if kind != card.EventWebhookDisabled && kind != card.EventFeedReset {
			es[i].CardUUID = d.cardOf(t, account)
		}
	}
	need(t, d.store.WebhookTx(t.Context(), func(tx webhook.Tx) error { return tx.InsertEvents(t.Context(), es) }))
	all, err := d.store.Events(t.Context(), account, 0, 10_000)
	need(t, err)
	return all[len(all)-len(es):]
}

// cardOf returns a card of an account.
func (d *deployment) cardOf(t testing.TB, account uuid.UUID) uuid.UUID {
	t.Helper()
	cards, err := d.store.Cards(t.Context(), order.Filter{AccountID: account, Limit: 1})
	need(t, err)
	if len(cards) > 0 {
		return cards[0].UUID
	}
	c, err := create(t.Context(), d.orders, account, "50")
	need(t, err)
	return c.UUID
}

// owner returns a token of a new account, and the account.
func (d *deployment) owner(t testing.TB) (token string, account uuid.UUID) {
	t.Helper()
	name := d.account(t)
	_, token = d.tokenOf(t, name, 0)
	a, err := d.store.AccountByName(t.Context(), name)
	need(t, err)
	return token, a.ID
}

// walk follows the Link headers from target on, calls f with every response,
// and returns their number.
func (d *deployment) walk(t testing.TB, target, token string, f func(answer)) (pages int) {
	t.Helper()
	for target != "" {
		a := d.send(t, http.MethodGet, target, token, "").want(t, http.StatusOK)
		f(a)
		pages++
		link := a.header.Get("Link")
		found := regexp.MustCompile(`^<(/[^>]+)>; rel="next"$`).FindStringSubmatch(link)
		if (found == nil) != (link == "") || pages > 100 {
			t.Fatalf("page %d of %s has Link %q", pages, target, link)
		}
		target = ""
		if found != nil {
			target = found[1]
		}
	}
	return pages
}

func bodyOf[T any](t testing.TB, a answer) (value T) {
	t.Helper()
	need(t, json.Unmarshal([]byte(a.body), &value))
	return value
}

// Webhook payloads and events of listEvents are equal, so that programs can
// share code for both.
func TestListEvents_EqualsWebhookPayloads(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token, account := d.owner(t)
		want := d.happen(t, account, card.EventTypes()...)
		got := bodyOf[[]json.RawMessage](t, d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK))
		if len(got) != len(want) {
			t.Fatalf("%d events, want %d", len(got), len(want))
		}
		for i, e := range want {
			var shown, sent map[string]any
			need(t, json.Unmarshal(got[i], &shown))
			need(t, json.Unmarshal(e.Payload(), &sent))
			equal(t, "id", shown["id"], any(e.ID.String()))
			delete(shown, "id")
			equal(t, string(e.Type), shown, sent)
			if e.Seq != int64(i+1) || len(sent) < 4 {
				t.Errorf("event %d is %s", i+1, e.Payload())
			}
		}
	})
}

func TestListEvents_PaidCard_HasItsEvents(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	equal(t, "before", d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK).body, "[]\n")
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	id := strings.TrimPrefix(made.header.Get("Location"), "/api/cards/")
	paid := d.send(t, http.MethodPost, "/api/sandbox/cards/"+id+"/payments", token, "").want(t, http.StatusOK)
	equal(t, "status", bodyOf[struct{ Status string }](t, paid).Status, "generated")
	events := d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK).body
	one := `^\[(\{"id":"[0-9a-f-]{36}","type":"[a-z.]+","timestamp":"[-0-9T:.]+Z","seq":\d+,"card_uuid":"` + id +
		`","status":"[a-z_]+","payment_state":"[a-z]+"\},?)+\]\n$`
	if !regexp.MustCompile(one).MatchString(events) {
		t.Errorf("got %s, want %s", events, one)
	}
	if n := strings.Count(events, `"type":"card.generated"`); n != 1 ||
		!strings.Contains(events, `"status":"generated","payment_state":"paid"`) {
		t.Errorf("the card was issued %d times: %s", n, events)
	}
	equal(t, "another account's", d.send(t, http.MethodGet, "/api/events", d.token(t), "").want(t, http.StatusOK).body,
		"[]\n")
}

func TestListEvents_WalkHasNoGaps(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token, account := d.owner(t)
		_, other := d.owner(t)
		types := make([]card.EventType, 0, 101)
		for i := range cap(types) {
			types = append(types, card.EventTypes()[i%7])
		}
		want := d.happen(t, account, types...)
		d.happen(t, other, card.EventLate)
		for _, x := range []struct {
			query string
			after int
			pages int
		}{
			{"", 0, 2}, {"?limit=100", 0, 2}, {"?limit=101", 0, 1}, {"?limit=1000", 0, 1}, {"?limit=50", 0, 3},
			{"?after=0", 0, 2}, {"?after=1", 1, 1},
			{"?after=91&limit=3", 91, 4}, {"?limit=1&after=98", 98, 3}, {"?after=100", 100, 1}, {"?after=101", 101, 1},
		} {
			var got []uuid.UUID
			pages := d.walk(t, "/api/events"+x.query, token, func(a answer) {
				for _, e := range bodyOf[[]struct{ ID uuid.UUID }](t, a) {
					got = append(got, e.ID)
				}
			})
			equal(t, "pages of "+x.query, pages, x.pages)
			var ids []uuid.UUID
			for _, e := range want[x.after:] {
				ids = append(ids, e.ID)
			}
			equal(t, "events of "+x.query, got, ids)
		}
	})
}

func TestListEvents_InvalidParameters_AreRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for query, pointers := range map[string][]string{
		"after=-1": {"query/after"}, "after=x": {"query/after"}, "after=9223372036854775808": {"query/after"},
		"after=1.5": {"query/after"}, "after=": {"query/after"},
		"limit=0": {"query/limit"}, "limit=1001": {"query/limit"}, "limit=-1&after=-1": {"query/after", "query/limit"},
	} {
		t.Run(query, func(t *testing.T) {
			d.send(t, http.MethodGet, "/api/events?"+query, token, "").invalid(t, pointers...)
		})
	}
}

// After a restore, a consumer may be ahead of the feed. It must get an error
// instead of waiting for the numbers to catch up.
func TestListEvents_AfterUnknownNumber_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	d.send(t, http.MethodGet, "/api/events?after=0", token, "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/api/events?after=1", token, "").invalid(t, "query/after")
	d.happen(t, account, card.EventDetected, card.EventLate)
	d.send(t, http.MethodGet, "/api/events?after=2", token, "").want(t, http.StatusOK)
	for _, after := range []string{"3", "9223372036854775807"} {
		p := d.send(t, http.MethodGet, "/api/events?after="+after, token, "").invalid(t, "query/after")
		if !strings.Contains(p.Errors[0].Detail, ", 2:") {
			t.Errorf("the problem does not name the newest event: %s", p.Errors[0].Detail)
		}
	}
}

// A consumer that catches up after an outage gets the events page by page,
// while new ones are added.
func TestListEvents_IsAppendOnly(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	d.happen(t, account, card.EventDetected)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var after int64
	for n := int64(0); n < 12 && ctx.Err() == nil; {
		for _, e := range bodyOf[[]struct{ Seq int64 }](t,
			d.send(t, http.MethodGet, fmt.Sprintf("/api/events?limit=2&after=%d", after), token, "")) {
			n++
			equal(t, "seq", e.Seq, n)
			after = e.Seq
		}
		d.happen(t, account, card.EventDetected, card.EventLate)
	}
}
