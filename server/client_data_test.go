package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/store"
)

// ownData is client data.
type ownData struct {
	UUID      string            `json:"uuid"`
	Reference *string           `json:"reference"`
	Metadata  map[string]string `json:"metadata"`
}

// orderWith returns the body of an order with additional fields in JSON.
func orderWith(further string) string { return `{"usd_amount":50,"currency":"monero",` + further + `}` }

func TestClientData_IsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		for name, sent := range map[string]string{
			"both":            `"reference":"order-4711","metadata":{"customer":"c-1208","campaign":"winter"}`,
			"other letters":   `"reference":"Ünï ☃ \ud83d\ude00 e\u0301 \ufffd","metadata":{"ключ":"значение","\ud83d\ude00":"\u202e"}`,
			"what is special": `"reference":"<a href=\"x\">&amp;\\'%_--","metadata":{"a/b~c":"\u0001\t\n","null":"null"}`,
			"the most": `"reference":"` + strings.Repeat("\U0001f600", 200) + `","metadata":{"` +
				strings.Repeat("\U0001f600", 40) + `":"` + strings.Repeat("\U0001f600", 500) + `"}`,
			"empty":       `"reference":"","metadata":{}`,
			"a reference": `"reference":"4111111111111111"`,
			"metadata":    `"metadata":{"reference":"order-4711"}`,
			"blanks":      `"reference":" \t a  ","metadata":{" ":" "}`,
		} {
			t.Run(name, func(t *testing.T) {
				token := d.token(t)
				var want ownData
				need(t, json.Unmarshal([]byte("{"+sent+"}"), &want))
				made := d.send(t, http.MethodPost, "/api/cards", token, orderWith(sent), "Idempotency-Key", "k").want(t,
					http.StatusCreated)
				want.UUID = bodyOf[ownData](t, made).UUID
				again := d.send(t, http.MethodPost, "/api/cards", token, orderWith(sent), "Idempotency-Key", "k").want(t,
					http.StatusCreated)
				equal(t, "repeated", again.body, made.body)
				one := "/api/cards/" + want.UUID
				paid := d.send(t, http.MethodPost, "/api/sandbox"+strings.TrimPrefix(one, "/api")+"/payments", token, "").want(t,
					http.StatusOK)
				read := d.send(t, http.MethodGet, one, token, "").want(t, http.StatusOK)
				revealed := d.send(t, http.MethodPost, one+"/reveal", token, "").want(t, http.StatusOK)
				for what, a := range map[string]answer{"made": made, "paid": paid, "read": read, "revealed": revealed} {
					equal(t, what, bodyOf[ownData](t, a), want)
				}
				for _, query := range []string{"", "?limit=1", "?currency=monero"} {
					equal(t, "listed"+query,
						bodyOf[[]ownData](t, d.send(t, http.MethodGet, "/api/cards"+query, token, "").want(t, http.StatusOK)),
						[]ownData{want})
				}
				events := bodyOf[[]ownData](t, d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK))
				for _, e := range events {
					if want.Reference != nil && *want.Reference != "" {
						equal(t, "reference of an event", e.Reference, want.Reference)
					} else if e.Reference != nil {
						t.Errorf("an event of %q", *e.Reference)
					}
				}
				if len(events) == 0 {
					t.Error("no events")
				}
			})
		}
		if log := d.log.String(); strings.Contains(log, "order-4711") || strings.Contains(log, "c-1208") ||
			strings.Contains(log, "winter") {
			t.Errorf("logged: %s", log)
		}
	})
}

// A client that does not use client data never sees it.
func TestClientData_None_IsAbsent(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	list := d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	if all := made.body + list.body; strings.Contains(all, "reference") || strings.Contains(all, "metadata") {
		t.Error(all)
	}
}

func TestClientData_ManyErrors_AreAllListed(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		var pairs []string
		for i := range 21 {
			pairs = append(pairs, fmt.Sprintf(`"key %d":""`, i))
		}
		for sent, pointers := range map[string][]string{
			`"reference":"` + strings.Repeat("x", 201) + `"`: {"/reference"},
			`"reference":"a\u0000b","metadata":{"a":"\u0000","b\u0000":""}`: {"/reference", "/metadata/a",
				"/metadata/b\x00"},
			`"reference":null,"metadata":null`: {"/reference", "/metadata"},
			`"reference":4711,"metadata":[]`:   {"/reference", "/metadata"},
			`"metadata":{"a":1,"b":null,"c":{},"d":["x"],"e":"fine"}`: {"/metadata/a", "/metadata/b",
				"/metadata/c", "/metadata/d"},
			`"metadata":{"":"x","` + strings.Repeat("k", 41) +
				`":"x"}`: {"/metadata/", "/metadata/" + strings.Repeat("k", 41)},
			`"metadata":{"a/b~c":"` + strings.Repeat("x", 501) + `"}`:                 {"/metadata/a~1b~0c"},
			`"metadata":{` + strings.Join(pairs, ",") + `}`:                           {"/metadata"},
			`"reference":"` + strings.Repeat("x", 201) + `","metadata":{"":""},"x":1`: {"/reference", "/metadata/", "/x"},
			`"metadata":{` + strings.Join(pairs, ",") +
				`,"a":"\u0000","":1},"x":null`: {"/metadata", "/metadata/a", "/metadata/", "/x"},
		} {
			p := d.send(t, http.MethodPost, "/api/cards", token, orderWith(sent)).invalid(t, pointers...)
			for _, e := range p.Errors {
				if strings.Contains(e.Detail, "xxx") || strings.Contains(e.Detail, "kkk") {
					t.Errorf("%s quotes the request: %s", e.Pointer, e.Detail)
				}
			}
		}
		d.send(t, http.MethodPost, "/api/cards", token,
			`{"usd_amount":49,"currency":"x","reference":"\u0000","metadata":{"":""}}`).
			invalid(t, "/usd_amount", "/currency", "/reference", "/metadata/")
		equal(t, "cards", count(t, d.client(t, token)), 0)
	})
}

func TestListCards_Link_KeepsConditions(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		var all, named, paid []string
		var times []string
		for i := range 7 {
			body := orderWith(`"reference":"order 47/11 & <é> + \ud83d\ude00"`)
			if i%3 == 0 {
				body = orderBody("50")
			}
			a := d.send(t, http.MethodPost, "/api/cards", token, body).want(t, http.StatusCreated)
			made := bodyOf[struct {
				UUID      string
				CreatedAt string `json:"created_at"`
			}](t, a)
			all, times = append(all, made.UUID), append(times, made.CreatedAt)
			if i%3 != 0 {
				named = append(named, made.UUID)
				if i > 1 {
					d.send(t, http.MethodPost, "/api/sandbox/cards/"+made.UUID+"/payments", token, "").want(t, http.StatusOK)
					paid = append(paid, made.UUID)
				}
			}
		}
		for _, ids := range [][]string{all, named, paid} {
			slices.Reverse(ids)
		}
		created := func(after, before string) (want []string) { // several cards may have the same time
			for i, at := range times {
				if at >= after && (before == "" || at < before) {
					want = append([]string{all[len(all)-1-i]}, want...)
				}
			}
			return want
		}
		reference := "reference=" + url.QueryEscape("order 47/11 & <é> + \U0001f600")
		east, err := time.Parse(time.RFC3339, times[2])
		need(t, err)
		since := url.QueryEscape(east.In(time.FixedZone("", 5400)).Format(time.RFC3339Nano))
		for query, want := range map[string][]string{
			reference:            named,
			"reference=order":    nil,
			"payment_state=paid": paid,
			"payment_state=late": nil,
			"currency=monero":    all,
			"currency=monero&payment_state=paid&" + reference:                                paid,
			"status=awaiting_payment&payment_state=paid":                                     nil,
			"status=generated&" + reference:                                                  paid,
			"created_after=" + times[2]:                                                      created(times[2], ""),
			"created_after=" + since:                                                         created(times[2], ""),
			"created_before=" + times[2]:                                                     created("", times[2]),
			"created_before=0001-01-01T00:00:00Z":                                            nil,
			"created_before=9999-12-31T23:59:59-23:59":                                       all,
			"created_after=" + times[1] + "&created_before=" + times[5] + "&currency=monero": created(times[1], times[5]),
			"created_after=" + times[5] + "&created_before=" + times[5]:                      nil,
			"created_after=" + times[5] + "&created_before=" + times[1]:                      nil,
		} {
			list, _ := d.page(t, token, query)
			equal(t, "list "+query, list, want)
			var walk []string
			for next := query + "&limit=2"; next != ""; {
				ids, further := d.page(t, token, next)
				walk, next = append(walk, ids...), further
			}
			equal(t, "walk "+query, walk, want)
		}
		if strings.Contains(d.log.String(), "47/11") || strings.Contains(d.log.String(), "47%2F11") {
			t.Errorf("logged: %s", d.log.String())
		}
	})
}

func TestQuery_UnknownParameter_IsRefused(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		id := uuid.NewString()
		for _, x := range []struct{ method, target, pointer, detail string }{
			{"GET", "/api/cards?stauts=generated", "query/stauts",
				`is not a query parameter of this operation: did you mean "status"?`},
			{"GET", "/api/cards?Status=generated", "query/Status",
				`is not a query parameter of this operation: did you mean "status"?`},
			{"GET", "/api/cards?created_at=x", "query/created_at",
				`is not a query parameter of this operation: did you mean "created_after"?`},
			{"GET", "/api/cards?paymentState=paid", "query/paymentState",
				`is not a query parameter of this operation: did you mean "payment_state"?`},
			{"GET", "/api/cards?limt=2", "query/limt", `is not a query parameter of this operation: did you mean "limit"?`},
			{"GET", "/api/cards?q=x", "query/q",
				"is not a query parameter of this operation, which has: status, payment_state, currency, reference, created_after, created_before, limit, cursor"},
			{"GET", "/api/cards?" + strings.Repeat("status", 100) + "=x", "query/" + strings.Repeat("status", 100),
				"is not a query parameter of this operation, which has: status, payment_state, currency, reference, created_after, created_before, limit, cursor"},
			{"GET", "/api/cards?status[]=generated", "query/status[]",
				`is not a query parameter of this operation: did you mean "status"?`},
			{"GET", "/api/cards?=x", "query/",
				"is not a query parameter of this operation, which has: status, payment_state, currency, reference, created_after, created_before, limit, cursor"},
			{"GET", "/api/cards?limit=1&limit=2", "query/limit", "must be sent once"},
			{"GET", "/api/cards?currency=monero&currency=monero", "query/currency", "must be sent once"},
			{"GET", "/api/cards?status=generated;limit=1", "query",
				`is not well-formed: percent-encode "%", "&", "+" and ";" in names and values`},
			{"GET", "/api/cards?currency=dogecoin", "query/currency",
				"is not a currency of this service; choose one of: monero"},
			{"GET", "/api/cards?reference=%00", "query/reference", "must not contain the character U+0000"},
			{"GET", "/api/cards?reference=%ff", "query/reference", "must be UTF-8"},
			{"GET", "/api/cards?reference=" + strings.Repeat("x", 201), "query/reference", "must have 1 to 200 characters"},
			{"GET", "/api/cards?created_after=yesterday", "query/created_after",
				"must be a time such as 2026-11-20T14:46:00.120Z"},
			{"GET", "/api/cards?created_before=2026-11-20T14:46:00%2B01:00x", "query/created_before",
				"must be a time such as 2026-11-20T14:46:00.120Z"},
			{"GET", "/api/cards?created_before=2026-11-20", "query/created_before",
				"must be a time such as 2026-11-20T14:46:00.120Z"},
			{"GET", "/api/cards/" + id + "?limit=1", "query/limit",
				"is not a query parameter of this operation, which has none"},
			{"POST", "/api/cards/" + id + "/reveal?x", "query/x", "is not a query parameter of this operation, which has none"},
			{"POST", "/api/sandbox/cards/" + id + "/payments?amount=1", "query/amount",
				"is not a query parameter of this operation, which has none"},
			{"GET", "/api/currencies?x=1&x=2", "query/x", "is not a query parameter of this operation, which has none"},
			{"GET", "/api/offers?x", "query/x", "is not a query parameter of this operation, which has none"},
			{"GET", "/api/events?limit=1&afer=2", "query/afer",
				`is not a query parameter of this operation: did you mean "after"?`},
			{"GET", "/api/webhooks?limit=1", "query/limit", "is not a query parameter of this operation, which has none"},
			{"DELETE", "/api/webhooks/" + id + "?force", "query/force",
				"is not a query parameter of this operation, which has none"},
		} {
			t.Run(fmt.Sprintf("%.60s", x.target), func(t *testing.T) {
				p := d.send(t, x.method, x.target, token, "").invalid(t, x.pointer)
				equal(t, "detail", p.Errors[0].Detail, x.detail)
			})
		}
		d.send(t, http.MethodGet, "/api/cards?limit=0&b=1&a=1&currency=x&status=x", token, "").
			invalid(t, "query/limit", "query/status", "query/currency", "query/a", "query/b")
		d.send(t, http.MethodPost, "/api/cards?key=k", token, `{"usd_amount":49,"currency":"monero"}`).invalid(t,
			"query/key", "/usd_amount")
		d.send(t, http.MethodGet, "/api/cards?", token, "").want(t, http.StatusOK)
	})
}

// A page is held in memory, so a page with much metadata is short. Pagination
// continues.
func TestListCards_MuchMetadata_PagesAreShort(t *testing.T) {
	t.Parallel()
	var template *card.Card
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		return hooked{Store: s, cards: func(_ context.Context, filter order.Filter) ([]*card.Card, error) {
			return slices.Repeat([]*card.Card{template}, filter.Limit), nil
		}}
	}})
	token := d.token(t)
	template = many(t, d, token)
	pairs := map[string]string{}
	for i := range 20 {
		pairs[fmt.Sprintf("key %02d", i)] = strings.Repeat("\U0001f600", 500)
	}
	text, err := json.Marshal(pairs)
	need(t, err)
	template.Metadata = card.Secret(text)
	for limit, want := range map[string]int{"5": 5, "27": 27, "28": 27, "1000": 27} { // 27 exceed 1 MiB
		ids, next := d.page(t, token, "limit="+limit)
		if len(ids) != want || next == "" {
			t.Errorf("limit %s: %d cards, next %q", limit, len(ids), next)
		}
	}
}
