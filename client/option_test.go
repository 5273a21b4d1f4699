package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// everyCall is each method that sends requests. The answer is what it takes for
// its good one.
func everyCall() map[string]struct {
	answer string
	do     func(context.Context, *Client, ...CallOption) error
} {
	type calls = map[string]struct {
		answer string
		do     func(context.Context, *Client, ...CallOption) error
	}
	generated := strings.Replace(testCard, `"awaiting_payment"`, `"generated"`, 1)
	return calls{
		"CreateCard": {testCard, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.CreateCard(ctx, CreateCardRequest{}, opts...))
		}},
		"GetCard": {testCard, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.GetCard(ctx, testID, opts...))
		}},
		"RevealCard": {testCard, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.RevealCard(ctx, testID, opts...))
		}},
		"WaitForCard": {generated, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.WaitForCard(ctx, testID, opts...))
		}},
		"SimulatePayment": {testCard, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.SimulatePayment(ctx, testID, SimulatePaymentRequest{}, opts...))
		}},
		"ListCurrencies": {"[]", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.ListCurrencies(ctx, opts...))
		}},
		"ListOffers": {"[]", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.ListOffers(ctx, opts...))
		}},
		"ListCards": {"[]", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return drain(c.ListCards(ctx, ListCardsOptions{}, opts...))
		}},
		"ListDeliveries": {"[]", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return drain(c.ListDeliveries(ctx, hookID, ListDeliveriesOptions{}, opts...))
		}},
		"Events": {"[]", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return drain(c.Events(ctx, 0, opts...))
		}},
		"CancelCard": {testCard, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.CancelCard(ctx, testID, opts...))
		}},
		"Do": {testCard, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return c.Do(ctx, http.MethodGet, "/api/future", nil, &Card{}, opts...)
		}},
		"CreateWebhook": {testWithSecret, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.CreateWebhook(ctx, CreateWebhookRequest{}, opts...))
		}},
		"ListWebhooks": {"[]", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.ListWebhooks(ctx, opts...))
		}},
		"GetWebhook": {testWebhook, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.GetWebhook(ctx, hookID, opts...))
		}},
		"UpdateWebhook": {testWebhook, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.UpdateWebhook(ctx, hookID, UpdateWebhookRequest{}, opts...))
		}},
		"DeleteWebhook": {"", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return c.DeleteWebhook(ctx, hookID, opts...)
		}},
		"RotateWebhookSecret": {testWithSecret, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.RotateWebhookSecret(ctx, hookID, opts...))
		}},
		"TestWebhook": {testAttempt, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.TestWebhook(ctx, hookID, TestWebhookRequest{}, opts...))
		}},
		"Redeliver": {"", func(ctx context.Context, c *Client, opts ...CallOption) error {
			return c.Redeliver(ctx, hookID, eventID, opts...)
		}},
		"RecoverWebhook": {`{"events":1}`, func(ctx context.Context, c *Client, opts ...CallOption) error {
			return second(c.RecoverWebhook(ctx, hookID, time.Now(), opts...))
		}},
	}
}

func second[T any](_ T, err error) error { return err }

func drain[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCallOptions_AreTakenByEveryCall(t *testing.T) {
	calls := everyCall()
	of := reflect.TypeFor[*Client]()
	for i := range of.NumMethod() {
		m := of.Method(i)
		takes := m.Type.IsVariadic() && m.Type.In(m.Type.NumIn()-1) == reflect.TypeFor[[]CallOption]()
		if _, tested := calls[m.Name]; tested != takes || !takes && m.Name != "String" {
			t.Errorf("%s takes CallOptions: %v; is tested: %v", m.Name, takes, tested)
		}
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			c, s := scripted(t, []step{answer(200, call.answer, "X-Request-Id", "r7")})
			var res Response
			if err := call.do(t.Context(), c, WithHeader("x-request-id", "r7"), WithResponse(&res)); err != nil {
				t.Fatal(err)
			}
			if got := s.seen[0].Header.Get("X-Request-Id"); got != "r7" {
				t.Errorf("sent %q", got)
			}
			if res.Status != 200 || res.RequestID != "r7" || res.Attempts != 1 || res.Replayed ||
				res.Header.Get("Content-Type") == "" {
				t.Errorf("%+v", res)
			}

			c, s = scripted(t, []step{problem(503, ProblemCodeUnavailable, "X-Request-Id", "r8")})
			err := call.do(t.Context(), c, WithRetry(1, 0), WithResponse(&res))
			if e, ok := asType[*Error](err); !ok || e.Status != 503 || len(s.seen) != 1 || res.Status != 503 ||
				res.RequestID != "r8" {
				t.Errorf("%v after %d attempts, %+v", err, len(s.seen), res)
			}
		})
	}
}

// Invalid arguments are errors before a request is sent, and never panic.
func TestCallOptions_WhatCannotWorkIsAnError(t *testing.T) {
	var none Setting
	for name, opt := range map[string]CallOption{
		"nil": nil, "empty": none, "no response": WithResponse(nil), "no attempts": WithRetry(0, 0),
		"no time": WithAttemptTimeout(-1),
		"no name": WithHeader("", "x"), "space in a name": WithHeader("a b", "x"),
		"line break in a value": WithHeader("X-A", "hunter2\r\nX-B: y"),
		"our own header":        WithHeader("authorization", "hunter2"),
		"our own key":           WithHeader("Idempotency-Key", "hunter2"),
		"empty key":             WithIdempotencyKey(""), "long key": WithIdempotencyKey(strings.Repeat("k", 256)),
	} {
		c, s := scripted(t, []step{answer(201, testCard)})
		_, err := c.CreateCard(t.Context(), CreateCardRequest{}, WithHeader("X-Fine", "y"), opt, WithHeader("X-Fine", "y"))
		if err == nil || len(s.seen) > 0 || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v after %d attempts", name, err, len(s.seen))
		}
	}
	for name, call := range everyCall() {
		c, s := scripted(t, []step{answer(200, call.answer)})
		for _, err := range []error{
			call.do(nil, c), //nolint:staticcheck // it is what we test
			call.do(t.Context(), c, nil),
			call.do(t.Context(), new(Client)),
			call.do(t.Context(), nil),
		} {
			if err == nil || len(s.seen) > 0 {
				t.Errorf("%s: no error, after %d attempts", name, len(s.seen))
			}
		}
		err := call.do(t.Context(), c, WithIdempotencyKey("order-4711"))
		reads := slices.Contains(
			[]string{"GetCard", "WaitForCard", "ListCurrencies", "ListOffers", "ListCards", "ListDeliveries", "Events",
				"ListWebhooks",
				"GetWebhook", "UpdateWebhook", "DeleteWebhook"}, name) // or may be done twice by themselves
		if reads == (err == nil) {
			t.Errorf("%s with a key: %v", name, err)
		}
	}
	if got := (*Client)(nil).String() + new(Client).String(); !strings.Contains(got, "no service") {
		t.Error(got)
	}
}

func TestOptions_OfAClientAndOfACall(t *testing.T) {
	c, s := scripted(t, []step{answer(200, testCard)}, WithHeader("X-Shop", "hunter2"), WithHeader("X-Both", "client"))
	for _, opts := range [][]CallOption{{WithHeader("X-Both", "call")}, nil} {
		if _, err := c.GetCard(t.Context(), testID, opts...); err != nil {
			t.Fatal(err)
		}
	}
	for i, both := range []string{"call", "client"} {
		if h := s.seen[i].Header; h.Get("X-Shop") != "hunter2" || h.Get("X-Both") != both ||
			h.Get("Authorization") != "Bearer "+testToken {
			t.Errorf("%d: %v", i, h)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if printed := fmt.Sprintf(verb, c) + fmt.Sprintf(verb, *c); strings.Contains(printed, "hunter2") {
			t.Errorf("the header's value is printed by %s", verb)
		}
	}
}

func TestWithResponse_TellsAReplay(t *testing.T) {
	c, _ := scripted(t, []step{reset, answer(201, testCard, "Idempotency-Replayed", "true")})
	synctest.Test(t, func(t *testing.T) {
		var res Response
		if _, err := c.CreateCard(t.Context(), CreateCardRequest{}, WithResponse(&res)); err != nil {
			t.Fatal(err)
		}
		if !res.Replayed || res.Attempts != 2 || res.Status != 201 {
			t.Errorf("%+v", res)
		}
	})
	c, _ = scripted(t, []step{reset})
	res := Response{Status: 200, Header: http.Header{}, Replayed: true}
	if _, err := c.GetCard(t.Context(), uuid.Nil, WithResponse(&res), WithRetry(1, 0)); err == nil || res.Status != 0 ||
		res.Header != nil || res.Replayed || res.Attempts != 1 {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestWithTimeout_LimitsTheWholeCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, []step{hang})
		start := time.Now()
		_, err := c.GetCard(t.Context(), testID, WithTimeout(45*time.Second))
		if took := time.Since(start); took != 45*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
	})
}
