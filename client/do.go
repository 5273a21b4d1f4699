package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// Do calls an operation that the package has no method for, with everything
// that its methods have: the token, retries, errors and options. The path
// starts with "/api/" and may have a query; in is sent as JSON, nil for no
// body; the answer is decoded into *out, nil for an answer that is of no
// interest.
//
//	var card struct{ Status string }
//	err := c.Do(ctx, http.MethodGet, "/api/cards/"+id, nil, &card)
//
// A POST is repeated like any other call only if it has an Idempotency-Key of
// [WithIdempotencyKey], and only after 408 and 429 otherwise.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, opts ...CallOption) error {
	u, err := url.Parse(path)
	switch {
	case err != nil || !strings.HasPrefix(path, "/") || u.Host != "" || u.Fragment != "":
		return errors.New(`Do: the path must be like "/api/cards?limit=10", without the service's address`)
	case method == "" || method != strings.ToUpper(method):
		return errors.New("Do: the method must be one such as GET, in upper case")
	}
	if to := reflect.ValueOf(out); out != nil && (to.Kind() != reflect.Pointer || to.IsNil()) {
		return errors.New("Do: out must be nil or a pointer to what the answer is decoded into")
	}
	r := request{operation: operation{name: method + " " + u.EscapedPath(), method: method, path: u.EscapedPath()},
		query: u.RawQuery, in: in, keyable: true}
	return c.exec(ctx, r, out, opts)
}

// RoundTripperFunc is a function that sends a request, as an
// [http.RoundTripper]. See [WithMiddleware].
type RoundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// WithMiddleware has each attempt of each call sent through what wrap returns,
// for example to trace, count or sign requests. Of several the first is
// outermost. A middleware sees whole requests and answers, the token and
// credentials included; it must keep the rules of [http.RoundTripper]. An error
// that it returns counts as a connection that broke: the call is repeated where
// that is safe.
//
//	client.WithMiddleware(func(next http.RoundTripper) http.RoundTripper {
//		return client.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
//			start := time.Now()
//			res, err := next.RoundTrip(r)
//			latency.Observe(time.Since(start).Seconds())
//			return res, err
//		})
//	})
func WithMiddleware(wrap func(next http.RoundTripper) http.RoundTripper) Option {
	return clientOption(func(c *Client) { c.middleware = append(c.middleware, wrap) })
}

// wrapped is the transport inside all the middleware.
func wrapped(transport http.RoundTripper, middleware []func(http.RoundTripper) http.RoundTripper) (http.RoundTripper,
	error) {
	if transport == nil {
		transport = http.DefaultTransport
	}
	for i := len(middleware) - 1; i >= 0; i-- {
		if middleware[i] == nil {
			return nil, errors.New("WithMiddleware needs a function")
		}
		if transport = middleware[i](transport); transport == nil {
			return nil, fmt.Errorf("middleware %d of %d has returned nil", i+1, len(middleware))
		}
	}
	return transport, nil
}
