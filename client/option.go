package client

import (
	"net/http"
	"time"
)

// Option changes what a [Client] does by default.
type Option func(*Client)

// WithHTTPClient makes the client send its requests through a copy of h. Redirects are not followed all the same, because
// the token would go along. Defaults to a client that uses [http.DefaultTransport], which nil means as well.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		if h != nil {
			c.http = *h
		}
	}
}

// WithUserAgent sets the User-Agent header. Defaults to "cardmint-go".
func WithUserAgent(agent string) Option {
	return func(c *Client) { c.userAgent = agent }
}

// WithRetry limits how often a call is attempted, the first attempt included, and how long after its beginning another attempt
// may still start. WithRetry(1, 0) attempts every call once. Defaults to 4 attempts within a minute.
//
// If the service asks for a longer wait than fits, the call fails at once; [Error.RetryAfter] says how long it would have been.
func WithRetry(maxAttempts int, maxElapsed time.Duration) Option {
	return func(c *Client) { c.maxAttempts, c.maxElapsed = maxAttempts, maxElapsed }
}

// WithAttemptTimeout limits each attempt of a call, from connecting to the last byte of the answer. The whole call is limited by
// its context. Defaults to 30 seconds.
func WithAttemptTimeout(d time.Duration) Option {
	return func(c *Client) { c.attemptTimeout = d }
}

// WithPollInterval sets the pause after which [Client.WaitForCard] looks for the first time again, and the one that it grows to.
// Defaults to 1 second and 15 seconds.
func WithPollInterval(first, longest time.Duration) Option {
	return func(c *Client) { c.pollFirst, c.pollLongest = first, longest }
}

// CallOption changes a single call.
type CallOption func(*request)

// WithIdempotencyKey makes a call safe to repeat, at any time and from any process: the same key with the same request answers
// the first answer again, and the same key with another request is an [*Error] with [ProblemCodeIdempotencyKeyReused].
// A key has 1 to 255 visible ASCII characters and belongs to the account. An order number is a good key.
func WithIdempotencyKey(key string) CallOption {
	return func(r *request) { r.key = &key }
}
