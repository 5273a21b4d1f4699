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

// Do calls an operation that has no method in this package, with the same
// token, retries, errors and options. The path starts with "/api/" and may have
// a query. The request body is in, encoded as JSON, or empty if in is nil. The
// response is decoded into *out, or ignored if out is nil.
//
//	var card struct{ Status string }
//	err := c.Do(ctx, http.MethodGet, "/api/cards/"+id, nil, &card)
//
// A POST is fully retried only if it has a key from [WithIdempotencyKey];
// otherwise only after 408 and 429.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, opts ...CallOption) error {
	u, err := url.Parse(path)
	switch {
	case err != nil || !strings.HasPrefix(path, "/") || u.Host != "" || u.Fragment != "":
		return errors.New(`Do: the path must be like "/api/cards?limit=10", without the service's address`)
	case method == "" || method != strings.ToUpper(method):
		return errors.New("Do: the method must be one such as GET, in upper case")
	}
	if to := reflect.ValueOf(out); out != nil && (to.Kind() != reflect.Pointer || to.IsNil()) {
		return errors.New("Do: out must be nil or a pointer that the response is decoded into")
	}
	r := request{operation: operation{name: method + " " + u.EscapedPath(), method: method, path: u.EscapedPath()},
		query: u.RawQuery, in: in, keyable: true}
	return c.exec(ctx, r, out, opts)
}

// RoundTripperFunc adapts a function to an [http.RoundTripper]. See
// [WithMiddleware].
type RoundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// WithMiddleware sends each attempt of each call through the transport that
// wrap returns, for example to trace, count or sign requests. The first
// middleware is the outermost. A middleware sees complete requests and
// responses, including the token and credentials; it must obey the rules of
// [http.RoundTripper]. An error that it returns counts as a broken connection:
// the call is retried where that is safe.
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

// wrapped is the transport inside all middleware.
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
