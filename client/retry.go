package client

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = 10 * time.Second
	maxKey         = 255
	maxAnswer      = 32 << 20 // bytes; a full page of cards has about 2 MiB
)

// operation is one of the contract's operations, with its path parameters.
type operation struct {
	name, method, path string
	keyed              bool // takes an Idempotency-Key
}

// request is a call of an operation.
type request struct {
	operation
	query    string
	in       any            // the body; nil for none
	key      *string        // the caller's Idempotency-Key; nil for a random one
	body     []byte         // in, encoded
	keyable  bool           // accepts an Idempotency-Key from the caller
	timeout  *time.Duration // of the whole call; nil for none
	response *Response      // destination of the metadata; nil for none
	settings
}

// repeatable reports whether the request is idempotent.
func (r request) repeatable() bool { return r.method != http.MethodPost || r.key != nil }

// prepare checks a call and completes its request.
func (c *Client) prepare(ctx context.Context, r *request, opts []CallOption) error {
	if c == nil || c.token == nil {
		return errors.New("the client is not one that New has returned")
	}
	if ctx == nil {
		return errors.New("the context is nil")
	}
	r.settings = c.settings
	for _, opt := range opts {
		if opt == nil {
			return errors.New("an option is nil")
		}
		opt.setCall(r)
	}
	if err := r.settings.check(); err != nil {
		return err
	}
	if r.key != nil && !r.keyed && !r.keyable {
		return errors.New("this call takes no idempotency key")
	}
	if r.in != nil {
		body, err := json.Marshal(r.in)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		r.body = body
	}
	if r.keyed && r.key == nil {
		key := cryptorand.Text()
		r.key = &key
	}
	if r.key != nil && (!visible(*r.key) || len(*r.key) > maxKey) {
		return errors.New("an idempotency key needs 1 to 255 visible ASCII characters")
	}
	if r.response == nil {
		r.response = new(Response)
	}
	*r.response = Response{}
	return nil
}

// do sends a request, retries it where that is safe, and decodes the response
// into out, which is nil if the response has no body.
func (c *Client) do(ctx context.Context, r request, out any, opts []CallOption) (http.Header, error) {
	if err := c.prepare(ctx, &r, opts); err != nil {
		return nil, err
	}
	if r.timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *r.timeout)
		defer cancel()
	}
	var last error
	unclear := false // whether an attempt may have been executed
	for start, n := time.Now(), 1; ; n++ {
		if ctx.Err() != nil {
			return nil, ended(ctx, last)
		}
		*r.response = Response{Attempts: n}
		began := time.Now()
		header, err := c.attempt(ctx, r, out)
		c.logAttempt(ctx, r, began, err)
		if err == nil {
			return header, nil
		}
		refusal, refused := asType[*Error](err)
		if !refused && ctx.Err() != nil {
			return nil, ended(ctx, last)
		}
		if r.method == http.MethodDelete && unclear && refused && refusal.Code == ProblemCodeNotFound {
			return nil, nil // an earlier attempt has deleted it
		}
		wait := backoff(n)
		if refused {
			wait += refusal.RetryAfter // plus jitter, so that clients do not return at once
		}
		if n >= r.maxAttempts || !temporary(err, r.repeatable()) || time.Since(start)+wait > r.maxElapsed {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return nil, err // more informative than the deadline's error
		}
		last, unclear = err, unclear || !refused || refusal.Status > 499
		c.logRetry(ctx, r, wait)
		sleep(ctx, wait)
	}
}

// newRequest returns the HTTP request of one attempt.
func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	target := c.baseURL + r.path
	if r.query != "" {
		target += "?" + r.query
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		r.header(req.Header)
	}
	req.Header.Set("Authorization", "Bearer "+*c.token)
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.userAgent)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != nil {
		req.Header.Set("Idempotency-Key", *r.key)
	}
	return req, nil
}

// attempt sends a request once.
func (c *Client) attempt(ctx context.Context, r request, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.attemptTimeout, fmt.Errorf("no answer within %v", r.attemptTimeout))
	defer cancel()
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if _, untrusted := asType[*tls.CertificateVerificationError](err); untrusted {
		return nil, err
	}
	if err != nil {
		return nil, broken(ctx, err)
	}
	defer res.Body.Close()
	r.response.Status, r.response.Header = res.StatusCode, res.Header
	r.response.RequestID, r.response.Replayed = res.Header.Get("X-Request-Id"),
		res.Header.Get("Idempotency-Replayed") == "true"
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, newError(res)
	}
	kind := mediaType(res.Header)
	if kind != "application/json" && out != nil {
		return nil, notJSON(kind)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, broken(ctx, fmt.Errorf("read the response: %w", err))
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the response is longer than %d bytes", maxAnswer)
	}
	if out == nil {
		if len(body) > 0 && kind != "application/json" {
			return nil, notJSON(kind)
		}
		return res.Header, nil
	}
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return nil, errors.New("the response is null")
	}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	return res.Header, nil
}

// notJSON returns the error for a response that can't be the service's.
func notJSON(kind string) error {
	return fmt.Errorf("the response is %s, not JSON; is this the service's base URL?", kind)
}

// brokenError is a connection that broke before the response was complete. The
// request may have been executed or not.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// broken keeps the timeout of an attempt from looking like the deadline of the
// caller's context.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &brokenError{err}
}

// temporary reports whether a retry may succeed and is safe. See the package
// comment.
func temporary(err error, repeatable bool) bool {
	if e, ok := asType[*Error](err); ok {
		switch e.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
			return repeatable
		}
		return false
	}
	_, broken := asType[*brokenError](err)
	return broken && repeatable
}

// backoff returns the wait after attempt n: exponential, with full jitter.
func backoff(n int) time.Duration {
	return rand.N(min(longestBackoff, firstBackoff<<min(n-1, 10)))
}

// sleep pauses until d has passed or the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ended returns the error of a call whose context has ended. It wraps the
// context's error, its cause, and the error of the last attempt.
func ended(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil {
		err = fmt.Errorf("%w, after: %w", err, last)
	}
	return err
}

// mediaType returns the media type of a message, in lower case and without
// parameters.
func mediaType(h http.Header) string {
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err == nil {
		return kind
	}
	return "of no known type"
}

// visible reports whether s has at least one character and only visible ASCII.
func visible(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}
