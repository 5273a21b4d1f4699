package client

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

func TestDo_CallsWhatHasNoMethod(t *testing.T) {
	c, s := scripted(t, []step{answer(200, `{"answer":42}`), answer(204, "", "Content-Type", "")})
	var out struct{ Answer int }
	if err := c.Do(t.Context(), http.MethodPut, "/api/future/a%2Fb?x=1&y", map[string]int{"question": 6},
		&out); err != nil || out.Answer != 42 {
		t.Errorf("%+v, %v", out, err)
	}
	if got := s.seen[0].Method + " " + s.seen[0].URL.String() + " " +
		s.bodies[0]; got != `PUT https://cards.test/api/future/a%2Fb?x=1&y {"question":6}` {
		t.Error(got)
	}
	if err := c.Do(t.Context(), http.MethodDelete, "/api/future", nil, nil); err != nil || s.bodies[1] != "" ||
		s.seen[1].Header.Get("Content-Type") != "" {
		t.Error(err)
	}
}

func TestDo_RefusesWhatCannotWork(t *testing.T) {
	c, s := scripted(t, []step{answer(200, `{}`)})
	for _, path := range []string{"", "api/cards", "https://elsewhere.test/api", "//elsewhere.test/api", "/api/cards#a",
		"/%zz"} {
		if err := c.Do(t.Context(), http.MethodGet, path, nil, nil); err == nil {
			t.Errorf("%q is sent", path)
		}
	}
	for _, method := range []string{"", "get", "GET /"} {
		if err := c.Do(t.Context(), method, "/api/cards", nil, nil); err == nil {
			t.Errorf("%q is sent", method)
		}
	}
	for _, out := range []any{Card{}, (*Card)(nil), 0} {
		if err := c.Do(t.Context(), http.MethodGet, "/api/cards", nil, out); err == nil {
			t.Errorf("%T is decoded into", out)
		}
	}
	if len(s.seen) > 0 {
		t.Errorf("%d requests were sent", len(s.seen))
	}
}

func TestDo_RepeatsAPOSTOnlyWithAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, []step{reset, answer(200, `{}`)})
		if err := c.Do(t.Context(), http.MethodPost, "/api/future", nil, nil); err == nil || len(s.seen) != 1 {
			t.Errorf("%v after %d attempts", err, len(s.seen))
		}
		c, s = scripted(t, []step{reset, answer(200, `{}`)})
		err := c.Do(t.Context(), http.MethodPost, "/api/future", nil, nil, WithIdempotencyKey("order-4711"))
		if err != nil || len(s.seen) != 2 || s.seen[1].Header.Get("Idempotency-Key") != "order-4711" {
			t.Errorf("%v after %d attempts", err, len(s.seen))
		}
	})
}

func TestWithMiddleware_IsAroundEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		around := func(name string) Option {
			return WithMiddleware(func(next http.RoundTripper) http.RoundTripper {
				return RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
					order = append(order, name)
					res, err := next.RoundTrip(r)
					order = append(order, "/"+name)
					return res, err
				})
			})
		}
		s := &script{steps: []step{reset, answer(200, "[]")}}
		// The order of the options does not matter.
		c, err := New("https://cards.test", testToken, around("a"), around("b"), WithHTTPClient(&http.Client{Transport: s}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListCurrencies(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "a b /b /a a b /b /a" || len(s.seen) != 2 {
			t.Error(got)
		}
	})
}

func TestWithLogger_SaysWhatHappensWithoutSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
		generated := strings.NewReplacer(`"awaiting_payment"`, `"generated"`, `"card_number":null`,
			`"card_number":"9912345678901232"`).Replace(testCard)
		c, _ := scripted(t,
			[]step{reset, problem(503, ProblemCodeUnavailable, "X-Request-Id", "r1"),
				answer(200, generated, "X-Request-Id", "r2"),
				answer(200, testWithSecret)}, WithLogger(logger), WithHeader("X-Gate", "hunter2"))
		if _, err := c.GetCard(t.Context(), testID); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateWebhook(t.Context(), CreateWebhookRequest{URL: "https://shop.test/hook"}); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{testToken, "9912345678901232", "whsec_", "hunter2"} {
			if strings.Contains(b.String(), secret) {
				t.Errorf("%s is logged", secret)
			}
		}
		type line struct {
			Level, Msg, Operation, Path, Err, Code string
			Attempt, Status                        int
			RequestID                              string `json:"request_id"`
		}
		const path = "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
		want := []line{
			{Level: "DEBUG", Msg: "cardmint request", Operation: "GetCard", Path: path, Attempt: 1, Err: errReset.Error()},
			{Level: "DEBUG", Msg: "cardmint retry", Operation: "GetCard"},
			{Level: "DEBUG", Msg: "cardmint request", Operation: "GetCard", Path: path, Attempt: 2, Status: 503,
				RequestID: "r1", Code: "unavailable"},
			{Level: "DEBUG", Msg: "cardmint retry", Operation: "GetCard"},
			{Level: "DEBUG", Msg: "cardmint request", Operation: "GetCard", Path: path, Attempt: 3, Status: 200,
				RequestID: "r2"},
			{Level: "DEBUG", Msg: "cardmint request", Operation: "CreateWebhook", Path: "/api/webhooks", Attempt: 1,
				Status: 200},
		}
		var got []line
		for decoder := json.NewDecoder(&b); decoder.More(); {
			var l line
			if err := decoder.Decode(&l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		if diff := difference(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWithLogger_LogsNoQueries(t *testing.T) {
	var b bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, _ := scripted(t, []step{reset}, WithLogger(logger), WithRetry(1, 0))
	if err := c.Do(t.Context(), http.MethodGet, "/api/future?q=hunter2", nil, nil); err == nil {
		t.Fatal("no error")
	}
	if b.Len() == 0 || strings.Contains(b.String(), "hunter2") {
		t.Error(b.String())
	}
}
