package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestTestWebhook_SendsExample_StoresNothing(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database})
		one, made := h.register(t, `{"url":"https://shop.example.com/hooks","types":["payment.late"]}`)
		at := time.Date(2026, 11, 20, 15, 6, 0, 131e6, time.UTC)
		for body, want := range map[string]card.EventType{"": "card.generated", "{}": "card.generated",
			`{"type":"payment.expired"}`: "payment.expired", `{"type":"webhook.disabled"}`: "webhook.disabled"} {
			h.answer = webhook.Attempt{At: at, Took: 84*time.Millisecond + 999*time.Microsecond, Status: 200, Answer: "<ok>"}
			text := h.ask(t, http.StatusOK, http.MethodPost, one+"/test", body).body
			equal(t, "answer", strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(text),
				`{"at":"2026-11-20T15:06:00.131Z","duration_ms":84,"status":200,"answer":"<ok>","error":null}`+"\n")
			p := h.last(t)
			equal(t, "url", p.url, made.Webhook.URL)
			equal(t, "secrets", p.secrets, []string{made.Secret})
			equal(t, "type", p.event.Type, want)
			equal(t, "seq", p.event.Seq, 0)
			equal(t, "account", p.event.AccountID, h.account)
		}
		h.answer = webhook.Attempt{At: at, Error: "no connection within 15 s"}
		h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":false}`)
		text := h.ask(t, http.StatusOK, http.MethodPost, one+"/test", "").body
		equal(t, "answer", text,
			`{"at":"2026-11-20T15:06:00.131Z","duration_ms":0,"status":null,"answer":"","error":"no connection within 15 s"}`+
				"\n")
		equal(t, "sent", len(h.posts), 5)
		equal(t, "events", h.ask(t, http.StatusOK, http.MethodGet, "/api/events", "").body, "[]\n")
		equal(t, "deliveries", h.ask(t, http.StatusOK, http.MethodGet, one+"/deliveries", "").body, "[]\n")
	})
}

// Clients must not be able to fill the service with examples for a receiver
// that does not respond.
func TestTestWebhook_Concurrency_IsLimited(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{})
	one, _ := h.register(t, hookURL)
	h.hold = make(chan struct{})
	statuses := make(chan int)
	send := func(token, target string) {
		go func() { statuses <- h.serve(t, http.MethodPost, target+"/test", token, "").status }()
	}
	for range 3 {
		send(h.token, one)
	}
	equal(t, "the one too many", <-statuses, http.StatusServiceUnavailable)
	other, _ := h.owner(t)
	theirs := h.send(t, http.MethodPost, "/api/webhooks", other, hookURL).want(t,
		http.StatusCreated).header.Get("Location")
	for range 3 { // the other account has its own limit
		send(other, theirs)
	}
	equal(t, "the other account's one too many", <-statuses, http.StatusServiceUnavailable)
	close(h.hold)
	for range 4 {
		equal(t, "the others", <-statuses, http.StatusOK)
	}
	h.ask(t, http.StatusOK, http.MethodPost, one+"/test", "")
}

func TestListDeliveries_ReturnsAttempts(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database, clock: &clock{}})
		one, _ := h.register(t, hookURL)
		events := h.happen(t, h.account, card.EventDetected, card.EventGenerated)
		equal(t, "new",
			bodyOf[[]map[string]any](t, h.ask(t, http.StatusOK, http.MethodGet, one+"/deliveries", ""))[1]["next_attempt_at"],
			any(events[0].CreatedAt.Format("2006-01-02T15:04:05.000Z")))
		h.settle(t, 200, 0)
		h.clock.advance(time.Minute)
		h.settle(t, 503)
		all := bodyOf[[]map[string]any](t, h.ask(t, http.StatusOK, http.MethodGet, one+"/deliveries", ""))
		shown := bodyOf[[]map[string]any](t, h.ask(t, http.StatusOK, http.MethodGet, "/api/events", ""))
		equal(t, "deliveries", len(all), 2)
		for i, d := range all {
			equal(t, "event", d["event"], any(shown[1-i]))
		}
		attempts := func(i int) (all []string) {
			for _, a := range bodyOf[[]struct{ Attempts []map[string]any }](t,
				h.ask(t, http.StatusOK, http.MethodGet, one+"/deliveries", ""))[i].Attempts {
				all = append(all, fmt.Sprint(a["status"], " ", a["duration_ms"], " ", a["answer"], " ", a["error"]))
			}
			return all
		}
		equal(t, "attempts", attempts(1), []string{`200 84 an "answer" <b> <nil>`})
		equal(t, "attempts", attempts(0), []string{"<nil> 84  no connection", `503 84 an "answer" <b> <nil>`})
		equal(t, "states", h.states(t, one+"/deliveries"), []string{"2 pending", "1 delivered"})
		if all[1]["next_attempt_at"] != nil {
			t.Errorf("a delivered event is sent again at %v", all[1]["next_attempt_at"])
		}
		next, err := time.Parse(time.RFC3339, fmt.Sprint(all[0]["next_attempt_at"]))
		if wait := next.Sub(h.clock.now()); err != nil || wait < 3*time.Minute || wait > 6*time.Minute {
			t.Errorf("the next attempt is in %v, error %v", wait, err)
		}
	})
}

// failed makes the last attempts of pending deliveries fail.
func (h *hooks) failed(t testing.TB, one string) {
	t.Helper()
	id := uuid.MustParse(strings.TrimPrefix(one, "/api/webhooks/"))
	before, err := h.store.Deliveries(t.Context(), id, webhook.DeliveryFilter{State: webhook.DeliveryPending, Limit: 1000})
	need(t, err)
	after := slices.Clone(before)
	for i := range after {
		after[i].State, after[i].DueAt, after[i].Tries = webhook.DeliveryFailed, time.Time{}, 10
	}
	need(t, h.store.WebhookTx(t.Context(), func(tx webhook.Tx) error {
		return tx.SaveDeliveries(t.Context(), id, before, after)
	}))
}

func TestListDeliveries_FiltersAndPaginates(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database})
		one, _ := h.register(t, hookURL)
		h.happen(t, h.account, slices.Repeat([]card.EventType{card.EventDetected}, 3)...)
		h.settle(t, 200, 200, 200)
		h.happen(t, h.account, card.EventLate, card.EventLate, card.EventLate)
		h.failed(t, one)
		h.happen(t, h.account, card.EventLate)
		all := []string{"7 pending", "6 failed", "5 failed", "4 failed", "3 delivered", "2 delivered", "1 delivered"}
		for query, x := range map[string]struct {
			want  []string
			pages int
		}{
			"": {all, 1}, "?limit=7": {all, 1}, "?limit=6": {all, 2}, "?limit=1": {all, 7}, "?limit=3": {all, 3},
			"?before=6": {all[2:], 1}, "?before=6&limit=2": {all[2:], 3},
			"?before=1": {nil, 1}, "?state=failed": {all[1:4], 1}, "?state=failed&limit=1": {all[1:4], 3},
			"?limit=2&state=delivered": {all[4:], 2}, "?state=pending&limit=1": {all[:1], 1},
			"?state=delivered&before=3&limit=1": {all[5:], 2},
		} {
			var got []string
			pages := 0
			h.walk(t, one+"/deliveries"+query, h.token, func(answer) { pages++ })
			got = h.states(t, one+"/deliveries"+query)
			equal(t, "deliveries of "+query, got, x.want)
			equal(t, "pages of "+query, pages, x.pages)
		}
		for query, pointers := range map[string][]string{
			"state=lost": {"query/state"}, "state=": {"query/state"}, "limit=0": {"query/limit"},
			"limit=1001&before=0&state=x": {"query/limit", "query/before", "query/state"},
			"before=-1":                   {"query/before"}, "before=9223372036854775808": {"query/before"},
		} {
			t.Run(query, func(t *testing.T) {
				h.send(t, http.MethodGet, one+"/deliveries?"+query, h.token, "").invalid(t, pointers...)
			})
		}
	})
}

func TestRedeliver_AndRecoverSendAgain(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database, clock: &clock{}})
		d, l := card.EventDetected, card.EventLate
		events := h.happen(t, h.account, d) // before the webhook was created
		one, _ := h.register(t, `{"url":"https://shop.example.com/hooks","types":["payment.detected"]}`)
		events = append(events, h.happen(t, h.account, d, l, d)...)
		h.settle(t, 200)
		h.failed(t, one)
		h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":false}`)
		events = append(events, h.happen(t, h.account, d)...)
		redeliver := func(seq int) string { return one + "/deliveries/" + events[seq-1].ID.String() + "/redeliver" }
		recover := func(since time.Time) string {
			return one + "/recover?since=" + url.QueryEscape(since.Format("2006-01-02T15:04:05.000Z07:00"))
		}
		h.send(t, http.MethodPost, redeliver(2), h.token, "").refused(t, http.StatusUnprocessableEntity, "webhook_disabled")
		h.send(t, http.MethodPost, recover(time.Unix(0, 0)), h.token, "").refused(t, http.StatusUnprocessableEntity,
			"webhook_disabled")
		equal(t, "deliveries", h.states(t, one+"/deliveries"), []string{"4 failed", "2 delivered"})
		h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":true}`)
		woken := h.woken.Load()

		equal(t, "redelivered", h.ask(t, http.StatusAccepted, http.MethodPost, redeliver(2), "").body, "")
		equal(t, "deliveries", h.states(t, one+"/deliveries"), []string{"4 failed", "2 pending"})
		if n := h.woken.Load() - woken; n != 1 {
			t.Errorf("the sender was woken %d times", n)
		}
		stranger := h.happen(t, func() uuid.UUID { _, other := h.owner(t); return other }(), d)[0]
		for name, event := range map[string]string{"unknown": uuid.Must(uuid.NewV7()).String(),
			"of another account": stranger.ID.String(), "not wanted": events[2].ID.String()} {
			p := h.send(t, http.MethodPost, one+"/deliveries/"+event+"/redeliver", h.token, "").refused(t, http.StatusNotFound,
				"not_found")
			if !strings.Contains(p.Detail, "no delivery") {
				t.Errorf("%s: %s", name, p.Detail)
			}
		}
		h.send(t, http.MethodPost, one+"/deliveries/x/redeliver", h.token, "").invalid(t, "path/event_id")

		early, late := events[0].CreatedAt, events[0].CreatedAt
		for _, e := range events {
			if e.CreatedAt.After(late) {
				late = e.CreatedAt
			}
		}
		count := func(since time.Time, want string) {
			t.Helper()
			woken := h.woken.Load()
			equal(t, "recovered since "+since.String(), h.ask(t, http.StatusAccepted, http.MethodPost, recover(since), "").body,
				want+"\n")
			if n := h.woken.Load() - woken; n != 1 {
				t.Errorf("the sender was woken %d times", n)
			}
		}
		count(late.Add(time.Millisecond), `{"count":0}`)
		// one failed, one is older than the webhook, and one occurred while it
		// was disabled
		count(early.In(time.FixedZone("east", 2*60*60)), `{"count":3}`)
		count(early, `{"count":0}`)
		equal(t, "deliveries", h.states(t, one+"/deliveries"), []string{"5 pending", "4 pending", "2 pending", "1 pending"})
		h.settle(t, 200, 200, 200, 200)
		equal(t, "deliveries", h.states(t, one+"/deliveries"),
			[]string{"5 delivered", "4 delivered", "2 delivered", "1 delivered"})
	})
}

func TestRecoverWebhook_InvalidSince_IsRefused(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database})
		one, _ := h.register(t, hookURL)
		h.send(t, http.MethodPost, one+"/recover", h.token, "").invalid(t, "query/since")
		for _, since := range []string{
			"", "yesterday", "2026-11-19", "2026-11-19T00:00:00", "2026-11-19 00:00:00Z", "2026-11-19T24:00:00Z",
			"2026-02-30T00:00:00Z", "1795186000", "null",
			"2026-11-19T00:00:00+0200", "2026-11-19T00:00:00Z\x00", "12026-11-19T00:00:00Z",
			"2026-11-19T00:00:00Z,2026-11-19T00:00:00Z",
		} {
			t.Run(since, func(t *testing.T) {
				h.send(t, http.MethodPost, one+"/recover?since="+url.QueryEscape(since), h.token, "").invalid(t, "query/since")
			})
		}
		for _, since := range []string{
			"2026-11-19T00:00:00Z", "2026-11-19T00:00:00.000Z", "2026-11-19T00:00:00.123456789Z", "2026-11-19T00:00:00+02:00",
			"2026-11-19T00:00:00-14:00",
			"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
		} {
			t.Run(since, func(t *testing.T) {
				equal(t, "answer",
					h.ask(t, http.StatusAccepted, http.MethodPost, one+"/recover?since="+url.QueryEscape(since), "").body,
					`{"count":0}`+"\n")
			})
		}
	})
}

// Checks that every operation on webhooks and events in the contract has a test
// here.
func TestWebhooks_EveryOperationIsTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"GET /api/events": true, "GET /api/webhooks": true, "POST /api/webhooks": true}
	for _, o := range operations(uuid.NewString()) {
		template, _, _ := findPath(strings.Split("/api/webhooks/"+uuid.NewString()+o.path, "?")[0])
		tested[o.method+" "+template] = true
	}
	got := map[string]bool{}
	for template, item := range contract().Paths.Map() {
		for method, operation := range item.Operations() {
			if slices.Contains(operation.Tags, "Webhooks") || slices.Contains(operation.Tags, "Events") {
				got[method+" "+template] = true
			}
		}
	}
	equal(t, "operations", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(tested)))
}
