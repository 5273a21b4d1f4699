package rate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	longestAnswer  = time.Minute // even if the caller's deadline is later
	largestAnswer  = 1 << 20
	largestHeaders = 64 << 10
)

// newClient returns the client that all sources share. It checks certificates,
// follows no redirects and uses no proxy. How long a request may take, with its
// connection, is up to its context.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			ForceAttemptHTTP2:      true,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: largestHeaders,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       longestAnswer,
	}
}

// answer is a site's response.
type answer struct {
	body   []byte
	header http.Header
}

// get requests a path. Anything but a complete response with status 200 is an
// error. Errors do not quote the body.
func (s site) get(ctx context.Context, path string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "cardmint")
	began := time.Now()
	res, err := s.client.Do(req)
	if err != nil {
		return answer{}, plain(ctx, err)
	}
	s.date.note(res.Header, began, time.Now())
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("HTTP status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, largestAnswer+1))
	if err != nil {
		return answer{}, plain(ctx, err)
	}
	if len(body) > largestAnswer {
		return answer{}, fmt.Errorf("answer is longer than %d bytes", largestAnswer)
	}
	return answer{body, res.Header}, nil
}

// plain returns why a request failed, in a form that may be shown to anybody:
// without addresses, which may be those of a private network.
func plain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if dns, is := errors.AsType[*net.DNSError](err); is {
		return fmt.Errorf("name can't be resolved: %s", dns.Err)
	}
	if op, is := errors.AsType[*net.OpError](err); is {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	if wrapped, is := errors.AsType[*url.Error](err); is {
		return wrapped.Err
	}
	return err
}
