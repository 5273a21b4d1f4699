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
	maxTimeout     = time.Minute // even if the caller's deadline is later
	maxBodyBytes   = 1 << 20
	maxHeaderBytes = 64 << 10
)

// newClient returns the client of all sources. It checks certificates, follows
// no redirects and uses no proxy. The context limits a request, including the
// connection.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			ForceAttemptHTTP2:      true,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       maxTimeout,
	}
}

// get returns the body at a path. Anything but a complete response with status
// 200 is an error. Errors do not quote the body.
func (s site) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "cardmint")
	began := time.Now()
	res, err := s.client.Do(req)
	if err != nil {
		return nil, plain(ctx, err)
	}
	s.date.record(res.Header, began, time.Now())
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBodyBytes+1))
	if err != nil {
		return nil, plain(ctx, err)
	}
	if len(body) > maxBodyBytes {
		return nil, fmt.Errorf("answer is longer than %d bytes", maxBodyBytes)
	}
	return body, nil
}

// plain returns the cause of a failed request without addresses, which may be
// private. It is safe to show.
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
