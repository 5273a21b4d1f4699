package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Option configures a [Client].
type Option interface{ setClient(*Client) }

// CallOption configures a single call.
type CallOption interface{ setCall(*request) }

// Setting is an [Option] and a [CallOption]: it configures a client or a single
// call.
type Setting struct{ set func(*settings) }

func (s Setting) setClient(c *Client) { s.apply(&c.settings) }
func (s Setting) setCall(r *request)  { s.apply(&r.settings) }

func (s Setting) apply(to *settings) {
	if s.set == nil {
		to.wrong = errors.New("an option is empty: make it by a function such as WithRetry")
		return
	}
	s.set(to)
}

type clientOption func(*Client)

func (o clientOption) setClient(c *Client) { o(c) }

type callOption func(*request)

func (o callOption) setCall(r *request) { o(r) }

// settings have defaults in the client that a call may override.
type settings struct {
	maxAttempts    int
	maxElapsed     time.Duration
	attemptTimeout time.Duration
	// sets the caller's headers, or nil; a function, because fmt does not print
	// its contents
	header func(http.Header)
	wrong  error // the error of an invalid option
}

// check returns an error if the settings are invalid.
func (s settings) check() error {
	switch {
	case s.wrong != nil:
		return s.wrong
	case s.maxAttempts < 1:
		return errors.New("WithRetry needs at least one attempt")
	case s.attemptTimeout <= 0:
		return errors.New("WithAttemptTimeout needs a duration above zero")
	}
	return nil
}

// WithHTTPClient makes the client send its requests through a copy of h.
// Redirects are not followed even then, because they would receive the token.
// If h is nil, the client uses [http.DefaultTransport], which is the default.
func WithHTTPClient(h *http.Client) Option {
	return clientOption(func(c *Client) {
		if h != nil {
			c.http = *h
		}
	})
}

// WithUserAgent sets the User-Agent header. Defaults to "cardmint-go/" and the
// package's version.
func WithUserAgent(agent string) Option {
	return clientOption(func(c *Client) { c.userAgent = agent })
}

// WithRetry limits the attempts of a call, including the first. No attempt
// starts after maxElapsed. WithRetry(1, 0) disables retries. Defaults to 4
// attempts within a minute.
//
// If the service requests a longer wait, the call fails at once with that wait
// in [Error.RetryAfter].
func WithRetry(maxAttempts int, maxElapsed time.Duration) Setting {
	return Setting{func(s *settings) { s.maxAttempts, s.maxElapsed = maxAttempts, maxElapsed }}
}

// WithAttemptTimeout limits each attempt of a call, from connecting to the last
// byte of the response. The whole call is limited by its context, or by
// [WithTimeout]. Defaults to 30 seconds.
func WithAttemptTimeout(d time.Duration) Setting {
	return Setting{func(s *settings) { s.attemptTimeout = d }}
}

// reserved are the headers that the client sets, or that change how a message
// is parsed.
var reserved = []string{"Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type",
	"Host", "Idempotency-Key",
	"Transfer-Encoding", "User-Agent"}

// WithHeader sends a header with each attempt, for example X-Request-Id, which
// the service then logs. It replaces a header of the same name. Headers that
// the client sets are rejected; use [WithIdempotencyKey] and [WithUserAgent]
// for theirs.
func WithHeader(name, value string) Setting {
	return Setting{func(s *settings) {
		// The value may be a secret, so errors omit it.
		switch name = http.CanonicalHeaderKey(name); {
		case name == "" ||
			strings.ContainsFunc(name, func(r rune) bool {
				return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
			}):
			s.wrong = fmt.Errorf("WithHeader: %q can't be the name of a header", name)
			return
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			s.wrong = fmt.Errorf("WithHeader: the value of %s has a control character", name)
			return
		}
		for _, taken := range reserved {
			if name == taken {
				s.wrong = fmt.Errorf("WithHeader: %s is set by the client", name)
				return
			}
		}
		before := s.header
		s.header = func(h http.Header) {
			if before != nil {
				before(h)
			}
			h.Set(name, value)
		}
	}}
}

// WithPollInterval sets the first and the longest pause between two reads of
// [Client.WaitForCard]. Defaults to 1 second and 15 seconds.
func WithPollInterval(first, longest time.Duration) Option {
	return clientOption(func(c *Client) { c.pollFirst, c.pollLongest = first, longest })
}

// WithIdempotencyKey makes a call safe to repeat, at any time and from any
// process: the same key with the same request returns the first response again,
// and with another request an [*Error] with [ProblemCodeIdempotencyKeyReused].
// A key has 1 to 255 visible ASCII characters and belongs to the account. An
// order number is a good key.
//
// Without this option, the attempts of a call that changes something carry a
// random key. A call without support for keys fails if it is given one.
func WithIdempotencyKey(key string) CallOption {
	return callOption(func(r *request) { r.key = &key })
}

// WithTimeout limits a whole call, including all attempts and the waits between
// them, like a context with a timeout. For a list it limits each page; for
// [Client.WaitForCard] the whole wait.
func WithTimeout(d time.Duration) CallOption {
	return callOption(func(r *request) { r.timeout = &d })
}

// Response is the metadata of a response. See [WithResponse].
type Response struct {
	Status    int    // HTTP status
	RequestID string // identifies the request in the service's log
	Header    http.Header
	Replayed  bool // the response to an earlier call with the same Idempotency-Key
	Attempts  int  // number of attempts made
}

// WithResponse stores the metadata of the response in *to, also if the result
// is an [*Error]. Without a response, only Attempts is set. A list and
// [Client.WaitForCard] send several requests: *to describes the last one. Do
// not use *to until the call has returned.
//
//	var res client.Response
//	card, err := c.CreateCard(ctx, in, client.WithIdempotencyKey("order-4711"), client.WithResponse(&res))
//	log.Println(res.RequestID, res.Replayed)
func WithResponse(to *Response) CallOption {
	return callOption(func(r *request) {
		if to == nil {
			r.wrong = errors.New("WithResponse needs a Response to fill in")
			return
		}
		r.response = to
	})
}
