package client

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

const (
	testWebhook = `{"id":"019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17","url":"https://shop.test/hook","description":"","types":[],"enabled":true,
"disabled_reason":null,"disabled_at":null,"failing_since":null,"created_at":"2026-11-20T14:47:00.120Z"}`
	testWithSecret = `{"webhook":` + testWebhook + `,"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`
	testAttempt    = `{"at":"2026-11-20T15:06:00.131Z","duration_ms":84,"status":null,"answer":"","error":"no answer"}`
)

var (
	hookID  = uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	eventID = uuid.MustParse("019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11")
	hook    = Webhook{ID: hookID, URL: "https://shop.test/hook", Types: []EventType{}, Enabled: true,
		CreatedAt: time.Date(2026, 11, 20, 14, 47, 0, 120_000_000, time.UTC)}
)

// webhookCall is an operation on webhooks, with its request, the response and
// the result.
type webhookCall struct {
	do            func(context.Context, *Client) (any, error)
	request, body string
	answer        step
	want          any
}

func webhookCalls() map[string]webhookCall {
	const path = "/api/webhooks/019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17"
	none := func(err error) (any, error) { return nil, err }
	return map[string]webhookCall{
		"CreateWebhook": {
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.CreateWebhook(ctx,
					CreateWebhookRequest{URL: "https://shop.test/hook", Types: []EventType{EventTypeCardGenerated}})
			},
			request: "POST /api/webhooks", body: `{"url":"https://shop.test/hook","types":["card.generated"]}`,
			answer: answer(201, testWithSecret), want: &WebhookWithSecret{Webhook: hook, Secret: testSecret},
		},
		"ListWebhooks": {
			do:      func(ctx context.Context, c *Client) (any, error) { return c.ListWebhooks(ctx) },
			request: "GET /api/webhooks", answer: answer(200, "["+testWebhook+"]"), want: []Webhook{hook},
		},
		"GetWebhook": {
			do:      func(ctx context.Context, c *Client) (any, error) { return c.GetWebhook(ctx, hookID) },
			request: "GET " + path, answer: answer(200, testWebhook), want: &hook,
		},
		"UpdateWebhook": {
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.UpdateWebhook(ctx, hookID, UpdateWebhookRequest{Enabled: ptr(false), Types: &[]EventType{}})
			},
			request: "PATCH " + path, body: `{"types":[],"enabled":false}`, answer: answer(200, testWebhook), want: &hook,
		},
		"DeleteWebhook": {
			do:      func(ctx context.Context, c *Client) (any, error) { return none(c.DeleteWebhook(ctx, hookID)) },
			request: "DELETE " + path, answer: answer(204, "", "Content-Type", ""),
		},
		"RotateWebhookSecret": {
			do:      func(ctx context.Context, c *Client) (any, error) { return c.RotateWebhookSecret(ctx, hookID) },
			request: "POST " + path + "/rotate-secret", answer: answer(200, testWithSecret),
			want: &WebhookWithSecret{Webhook: hook, Secret: testSecret},
		},
		"TestWebhook": {
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.TestWebhook(ctx, hookID, TestWebhookRequest{})
			},
			request: "POST " + path + "/test", body: "{}", answer: answer(200, testAttempt),
			want: &DeliveryAttempt{At: time.Date(2026, 11, 20, 15, 6, 0, 131_000_000, time.UTC), DurationMs: 84,
				Error: "no answer"},
		},
		"Redeliver": {
			do:      func(ctx context.Context, c *Client) (any, error) { return none(c.Redeliver(ctx, hookID, eventID)) },
			request: "POST " + path + "/deliveries/019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11/redeliver",
			answer:  answer(202, "", "Content-Type", ""),
		},
		"RecoverWebhook": {
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.RecoverWebhook(ctx, hookID, time.Date(2026, 11, 19, 1, 0, 0, 5_000_000, time.FixedZone("CET", 3600)))
			},
			request: "POST " + path + "/recover?since=2026-11-19T00%3A00%3A00.005Z", answer: answer(202, `{"count":12}`),
			want: &Recovery{Count: 12},
		},
	}
}

func TestWebhooks_SendAndReadWhatTheContractSays(t *testing.T) {
	for name, call := range webhookCalls() {
		t.Run(name, func(t *testing.T) {
			c, s := scripted(t, []step{call.answer})
			got, err := call.do(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if diff := difference(call.want, got); diff != "" {
				t.Error(diff)
			}
			if got := s.seen[0].Method + " " + s.seen[0].URL.RequestURI(); got != call.request || s.bodies[0] != call.body {
				t.Errorf("sent %s %s\nwant %s %s", got, s.bodies[0], call.request, call.body)
			}
		})
	}
}

// Repeating these operations would do harm, so all attempts of a POST have the
// same key.
func TestWebhooks_AreRepeatedWithoutHarm(t *testing.T) {
	for name, call := range webhookCalls() {
		for fault, broken := range map[string]step{"reset": reset, "hangs": hang, "502": answer(502, ""),
			"503": problem(503, ProblemCodeUnavailable), "504": answer(504, "")} {
			t.Run(name+" "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, s := scripted(t, []step{broken, call.answer})
					_, err := call.do(t.Context(), c)
					if err != nil || len(s.seen) != 2 {
						t.Fatalf("%v after %d attempts", err, len(s.seen))
					}
					one, other := s.seen[0].Header.Get("Idempotency-Key"), s.seen[1].Header.Get("Idempotency-Key")
					if post := s.seen[0].Method == http.MethodPost; one != other || post != (one != "") {
						t.Errorf("the keys are %q and %q", one, other)
					}
				})
			})
		}
		t.Run(name+" 429", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, []step{problem(429, ""), call.answer})
				if _, err := call.do(t.Context(), c); err != nil || len(s.seen) != 2 {
					t.Errorf("%v after %d attempts", err, len(s.seen))
				}
			})
		})
	}
}

func TestDeleteWebhook_GoneAfterABrokenAttemptIsDone(t *testing.T) {
	gone := problem(404, ProblemCodeNotFound)
	for name, tc := range map[string]struct {
		steps []step
		done  bool
	}{
		"never there":            {[]step{gone}, false},
		"broken":                 {[]step{reset, gone}, true},
		"hangs":                  {[]step{hang, gone}, true},
		"503":                    {[]step{problem(503, ProblemCodeUnavailable), gone}, true},
		"broken, then throttled": {[]step{reset, problem(429, ""), gone}, true},
		"throttled":              {[]step{problem(429, ""), gone}, false}, // the service did not execute it
		"request timeout":        {[]step{problem(408, ProblemCodeRequestTimeout), gone}, false},
		"404 of a proxy":         {[]step{reset, answer(404, "no route", "Content-Type", "text/plain")}, false},
		"another refusal":        {[]step{reset, problem(401, ProblemCodeUnauthorized)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, tc.steps)
				if err := c.DeleteWebhook(t.Context(), hookID); tc.done != (err == nil) || len(s.seen) != len(tc.steps) {
					t.Errorf("%v after %d attempts", err, len(s.seen))
				}
			})
		})
	}
}

func TestGetWebhook_GoneAfterABrokenAttemptIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, []step{reset, problem(404, ProblemCodeNotFound)})
		if w, err := c.GetWebhook(t.Context(), hookID); err == nil || w != nil {
			t.Errorf("%v, %v", w, err)
		}
	})
}

func TestRedeliver_AnswerThatIsNotTheServices(t *testing.T) {
	for name, tc := range map[string]struct {
		answer step
		good   bool
	}{
		"nothing":               {answer(202, "", "Content-Type", ""), true},
		"nothing, with a type":  {answer(202, "", "Content-Type", "text/plain"), true},
		"a body of the future":  {answer(202, `{"state":"pending"}`), true},
		"login page":            {answer(200, "<html>", "Content-Type", "text/html"), false},
		"something unspecified": {answer(200, "hello", "Content-Type", ""), false},
		"moved":                 {answer(http.StatusFound, "", "Location", "https://evil.test/"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := scripted(t, []step{tc.answer})
			if err := c.Redeliver(t.Context(), hookID, eventID); tc.good != (err == nil) {
				t.Error(err)
			}
		})
	}
}
