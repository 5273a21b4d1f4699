package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
)

func TestRequestID_UnsafeValue_IsReplaced(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	for _, id := range []string{"a", "order-4711", "A.b_c-9", strings.Repeat("x", 64), uuid.NewString()} {
		t.Run("taken "+id, func(t *testing.T) {
			a := d.serve(t, http.MethodGet, "/api/cards", "", "", "X-Request-Id", id)
			equal(t, "X-Request-Id", a.header.Get("X-Request-Id"), id)
			equal(t, "request_id", a.refused(t, http.StatusUnauthorized, "unauthorized").RequestID, id)
		})
	}
	for name, id := range map[string]string{
		"empty":            "",
		"too long":         strings.Repeat("x", 65),
		"64 kB":            strings.Repeat("x", 64<<10),
		"line breaks":      "a\r\nX-Injected: yes\r\n\r\n<html>",
		"carriage return":  "a\rb",
		"NUL":              "a\x00b",
		"blank":            "a b",
		"quotes":           `a","level":"ERROR","msg":"forged`,
		"terminal escape":  "\x1b[31mred",
		"emoji":            "🎉",
		"other letters":    "идентификатор",
		"not UTF-8":        "\xff\xfe",
		"line separator":   "a\u2028b",
		"HTML":             "<script>alert(1)</script>",
		"a path":           "../../etc/passwd",
		"a line break end": "abc\n",
	} {
		t.Run("replaced: "+name, func(t *testing.T) {
			// Bypasses the network: a client would refuse to send most of them.
			r := d.serve(t, http.MethodGet, "/api/cards", "", "", "X-Request-Id", id)
			got := r.header.Get("X-Request-Id")
			if parsed, err := uuid.Parse(got); err != nil || parsed.Version() != 7 {
				t.Errorf("X-Request-Id is %q, want a new id", got)
			}
			if r.header.Get("X-Injected") != "" {
				t.Error("a header was injected")
			}
		})
	}
	for _, e := range d.log.entries(t) {
		if e["level"] != "INFO" || e["msg"] != "request" {
			t.Errorf("an injected log line: %v", e)
		}
	}
}

// A line break that would start another header or request never reaches the
// service.
func TestRequestID_LineBreak_InjectsNothing(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	for name, line := range map[string]string{
		"a bare carriage return": "X-Request-Id: a\rX-Injected: yes\r\n",
		"a bare line feed":       "X-Request-Id: a\nX-Injected: yes\r\n",
		"a folded line":          "X-Request-Id: a\r\n X-Injected: yes\r\n",
		"a NUL":                  "X-Request-Id: a\x00b\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, d.address())
			_, err := fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\n\r\n", line)
			need(t, err)
			if got := readAll(t, conn); strings.Contains(got, "X-Injected") || strings.Count(got, "HTTP/1.1 ") != 1 {
				t.Errorf("answered:\n%s", got)
			}
		})
	}
	d.log.entries(t)
}

// Every request logs one line, and no line contains data of the client or of a
// card.
func TestLog_OneLinePerRequest_NoSecrets(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	const canary = "CANARY"
	account := d.account(t)
	_, token := d.tokenOf(t, account, 0)
	c := d.client(t, token)
	card, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"},
		client.WithIdempotencyKey(canary+"-key"))
	need(t, err)
	card, err = c.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{})
	need(t, err)
	for range c.ListCards(t.Context(), client.ListCardsOptions{}) {
	}
	d.send(t, http.MethodGet, "/api/cards?status="+canary+"&cursor="+canary+"&"+canary+"=%0d%0a{}", token, "",
		"User-Agent", canary, "Referer", canary, "Cookie", canary)
	d.send(t, http.MethodGet, "/api/cards/"+canary+"%0aforged", token, "")
	d.send(t, http.MethodGet, "/"+canary+"/%0d%0a", token, "")
	d.send(t, http.MethodPost, "/api/cards", token,
		`{"usd_amount":"`+canary+`","currency":"`+canary+`","`+canary+`":"`+canary+`"}`, "Idempotency-Key", canary+" ")
	d.send(t, http.MethodPost, "/api/cards", token, `{"`+canary+`":1,"`+canary+`":2}`)
	d.send(t, http.MethodGet, "/api/cards", "cm_test_"+canary, "")
	d.send(t, canary, "/livez", "", "")

	log := d.log.String()
	for name, secret := range map[string]string{
		"token": token, "random part of the token": token[len("cm_test_"):], "card number": card.Credentials.CardNumber,
		"url": card.Credentials.URL, "url password": card.Credentials.URLPassword, "payment address": card.Payment.Address,
	} {
		if strings.Contains(log, secret) {
			t.Errorf("the log contains the %s", name)
		}
	}
	if strings.Contains(strings.ReplaceAll(log, `"method":"`+canary+`"`, ""), canary) {
		t.Errorf("the log contains client data:\n%s", log)
	}

	var requests []map[string]any
	for _, e := range d.log.entries(t) {
		if e["msg"] == "request" {
			requests = append(requests, e)
		}
	}
	tokens, err := d.store.Tokens(t.Context())
	need(t, err)
	who := map[string]any{"account": tokens[0].AccountID.String(), "token": tokens[0].ID.String()}
	want := []map[string]any{
		{"method": "POST", "route": "/api/cards", "status": 201.0},
		{"method": "POST", "route": "/api/sandbox/cards/:uuid/payments", "status": 200.0},
		{"method": "GET", "route": "/api/cards", "status": 200.0},
		{"method": "GET", "route": "/api/cards", "status": 422.0},
		{"method": "GET", "route": "/api/cards/:uuid", "status": 422.0},
		{"method": "GET", "route": "none", "status": 404.0},
		{"method": "POST", "route": "/api/cards", "status": 422.0},
		{"method": "POST", "route": "/api/cards", "status": 400.0},
		{"method": "GET", "route": "/api/cards", "status": 401.0},
		{"method": canary, "route": "none", "status": 405.0},
	}
	for _, w := range want {
		if s := w["status"]; s != 401.0 && s != 404.0 && s != 405.0 {
			w["account"], w["token"] = who["account"], who["token"]
		}
	}
	for _, e := range requests {
		for _, key := range []string{"time", "request_id", "took", "bytes"} {
			if e[key] == nil {
				t.Errorf("a line without %s: %v", key, e)
			}
			delete(e, key)
		}
		for _, key := range []string{"level", "msg"} {
			delete(e, key)
		}
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// stale has no rate, and each time a different reason.
type stale struct{ asked atomic.Int64 }

func (s *stale) Rate(string) (card.Rate, error) {
	return card.Rate{}, card.ErrNoRate.WithCause(fmt.Errorf("the last one is %ds old", s.asked.Add(1)))
}

// A cause that affects every order is logged once, not for each order.
func TestLog_ManyOrdersRefusedForOneCause_CauseIsLoggedOnce(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{rates: &stale{}})
	token := d.token(t)
	const orders = 5
	for range orders {
		d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).refused(t, http.StatusServiceUnavailable,
			"rate_unavailable")
	}
	lines := map[string]int{}
	for _, e := range d.log.entries(t) {
		lines[fmt.Sprintf("%s %s", e["level"], e["msg"])]++
	}
	if want := map[string]int{"ERROR request failed": 1, "INFO request": orders}; !maps.Equal(lines, want) {
		t.Errorf("lines %v, want %v", lines, want)
	}
}
