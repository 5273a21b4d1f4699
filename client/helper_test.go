package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

const (
	testToken = "cm_test_kl2PqR7sTuVwXyZ0a1B2c3"
	testCard  = `{"uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88","created_at":"2026-11-20T14:46:00.120Z","status":"awaiting_payment",
"usd_amount":"150.50","payment":{"currency":"monero","amount":"0.983456789012","address":"8Bn","state":"unpaid",
"expires_at":"2026-11-20T15:46:00.120Z","uri":"monero:8Bn","amount_received":"0","amount_due":"0.983456789012","confirmations":0,
"confirmations_required":10,"rate":"152.52"},
"credentials":{"card_number":null,"expiration_date":null,"security_code":null,"url":null,"url_password":null}}`
)

// step is the reaction of the fake service to one request.
type step func(*http.Request) (*http.Response, error)

// script is a service that does one step for each request. The last step
// repeats. It has no network, so that testing/synctest can run its tests in
// fake time.
type script struct {
	mu    sync.Mutex
	steps []step
	// reaction to requests that wait for events, which are not counted; nil
	// refuses them, as an older service does
	feed   step
	seen   []*http.Request
	bodies []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	if r.URL.Query().Has("wait") {
		if s.feed == nil {
			return problem(http.StatusUnprocessableEntity, ProblemCodeInvalidRequest)(r)
		}
		return s.feed(r)
	}
	s.mu.Lock()
	s.seen, s.bodies = append(s.seen, r), append(s.bodies, body)
	do := s.steps[min(len(s.seen), len(s.steps))-1]
	s.mu.Unlock()
	return do(r)
}

// scripted returns a client of a service with these steps.
func scripted(t *testing.T, steps []step, opts ...Option) (*Client, *script) {
	t.Helper()
	s := &script{steps: steps}
	c, err := New("https://cards.test", testToken,
		append([]Option{WithHTTPClient(&http.Client{Transport: s})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// answer is a response with pairs of header names and values.
func answer(status int, body string, headers ...string) step {
	return func(r *http.Request) (*http.Response, error) {
		res := &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}},
			Body:   io.NopCloser(strings.NewReader(body)),
		}
		for i := 0; i < len(headers); i += 2 {
			res.Header.Set(headers[i], headers[i+1])
		}
		return res, nil
	}
}

// problem is a problem response.
func problem(status int, code ProblemCode, headers ...string) step {
	return answer(status, `{"title":"Refused","status":1,"detail":"No.","code":"`+string(code)+`","request_id":"r1"}`,
		append([]string{"Content-Type", "application/problem+json"}, headers...)...)
}

// card is the test card with its status and the state of its payment.
func card(status CardStatus, state PaymentState) step {
	return answer(http.StatusOK, strings.NewReplacer(
		`"awaiting_payment"`, `"`+string(status)+`"`, `"unpaid"`, `"`+string(state)+`"`).Replace(testCard))
}

var errReset = errors.New("connection reset by peer")

// reset is a connection that breaks before the response.
func reset(*http.Request) (*http.Response, error) { return nil, errReset }

// cutOff is a response whose connection breaks in the middle of the body.
func cutOff(status int, body string, headers ...string) step {
	return func(r *http.Request) (*http.Response, error) {
		res, err := answer(status, "", headers...)(r)
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader(body[:len(body)/2]), brokenReader{}))
		return res, err
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// hang is a service that never responds.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}
