package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Option changes what a [Client] does by default.
type Option interface{ setClient(*Client) }

// CallOption changes a single call.
type CallOption interface{ setCall(*request) }

// Setting is an [Option] and a [CallOption]: what a client does by default, or
// what one call does.
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

// settings are what a client has defaults for and a call may change.
type settings struct {
	maxAttempts    int
	maxElapsed     time.Duration
	attemptTimeout time.Duration
	header         func(http.Header) // sets what the caller has asked for, or nil; fmt prints nothing of a function
	wrong          error             // what is wrong with an option
}

// check says what can't work.
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
// Redirects are not followed all the same, because the token would go along.
// Defaults to a client that uses [http.DefaultTransport], which nil means as
// well.
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

// WithRetry limits how often a call is attempted, the first attempt included,
// and how long after its beginning another attempt may still start.
// WithRetry(1, 0) attempts every call once. Defaults to 4 attempts within a
// minute.
//
// If the service asks for a longer wait than fits, the call fails at once;
// [Error.RetryAfter] says how long it would have been.
func WithRetry(maxAttempts int, maxElapsed time.Duration) Setting {
	return Setting{func(s *settings) { s.maxAttempts, s.maxElapsed = maxAttempts, maxElapsed }}
}

// WithAttemptTimeout limits each attempt of a call, from connecting to the last
// byte of the answer. The whole call is limited by its context, or by
// [WithTimeout]. Defaults to 30 seconds.
func WithAttemptTimeout(d time.Duration) Setting {
	return Setting{func(s *settings) { s.attemptTimeout = d }}
}

// reserved are the headers that the client sets by itself, or that change how
// the message is read.
var reserved = []string{"Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type",
	"Host", "Idempotency-Key",
	"Transfer-Encoding", "User-Agent"}

// WithHeader has a header sent with each attempt, for example X-Request-Id, by
// which the service then names the request in its log. It replaces one of the
// same name. The headers that the client sets by itself can't be set;
// [WithIdempotencyKey] and [WithUserAgent] set theirs.
func WithHeader(name, value string) Setting {
	return Setting{func(s *settings) {
		// Without the value in errors, which may be a secret.
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

// WithPollInterval sets the pause after which [Client.WaitForCard] looks for
// the first time again, and the one that it grows to. Defaults to 1 second and
// 15 seconds.
func WithPollInterval(first, longest time.Duration) Option {
	return clientOption(func(c *Client) { c.pollFirst, c.pollLongest = first, longest })
}

// WithIdempotencyKey makes a call safe to repeat, at any time and from any
// process: the same key with the same request answers the first answer again,
// and the same key with another request is an [*Error] with
// [ProblemCodeIdempotencyKeyReused]. A key has 1 to 255 visible ASCII
// characters and belongs to the account. An order number is a good key.
//
// Without it the attempts of a call that changes something have a random key. A
// call that takes no key fails if it is given one.
func WithIdempotencyKey(key string) CallOption {
	return callOption(func(r *request) { r.key = &key })
}

// WithTimeout limits a whole call, with all its attempts and the waits between
// them, as a context with that timeout does. In a list it limits each page; it
// limits all of what [Client.WaitForCard] does.
func WithTimeout(d time.Duration) CallOption {
	return callOption(func(r *request) { r.timeout = &d })
}

// Response is what came with the answer of a call. See [WithResponse].
type Response struct {
	Status    int         // HTTP status
	RequestID string      // names the request in the service's log
	Header    http.Header // all of them
	Replayed  bool        // it is the answer that an earlier call with the same Idempotency-Key got
	Attempts  int         // how many it took, 1 if the first was answered for good
}

// WithResponse has *to filled in with what came with the answer, also if the
// answer is an [*Error]. If no answer came, it has only the number of attempts.
// A list and [Client.WaitForCard] need several requests: it is the last one's.
// *to belongs to the call until it ends.
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
