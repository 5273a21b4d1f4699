package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	mostTries     = 3
	firstPause    = time.Second // between two tries; it doubles
	longestPause  = 10 * time.Second
	largestAnswer = 64 << 10 // bytes that are read, so that the connection can be used again
	tellEvery     = time.Minute
)

// client sends spans. Only the loop that collects them calls it, so that
// nothing waits but what is in the queue.
type client struct {
	url       string
	timeout   time.Duration // of one try
	pause     time.Duration // between the first two
	header    http.Header
	transport *http.Transport
	log       *slog.Logger
	ending    chan struct{} // closed when the process ends: what the collector does not take at once is lost then

	mu     sync.Mutex
	toldAt time.Time
	lost   int // spans since then
}

var _ otlptrace.Client = (*client)(nil)

func newClient(url string, timeout time.Duration, log *slog.Logger) *client {
	return &client{url: url, timeout: timeout, pause: firstPause, log: log, ending: make(chan struct{}),
		header: http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"cardmint"}},
		transport: &http.Transport{DialContext: (&net.Dialer{Timeout: timeout}).DialContext, TLSHandshakeTimeout: timeout,
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client. It returns no error, but tells the
// log: whoever called would print it for every batch.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// The message of the protocol has the same one field; but its package has a
	// service for gRPC in it.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err == nil {
		err = c.send(ctx, body)
	}
	if err != nil {
		n := 0
		for _, r := range spans {
			for _, s := range r.ScopeSpans {
				n += len(s.Spans)
			}
		}
		c.tell(ctx, n, err)
	}
	return nil
}

func (c *client) send(ctx context.Context, body []byte) error {
	for try, pause := 1, c.pause; ; try, pause = try+1, 2*pause {
		again, after, err := c.post(ctx, body)
		if err == nil || !again || try == mostTries {
			return err
		}
		wait := time.NewTimer(min(max(pause, after), longestPause))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		case <-c.ending:
			wait.Stop()
			return err
		}
	}
}

// post sends spans once. It reports whether to try again, and after how long at
// least.
func (c *client) post(ctx context.Context, body []byte) (again bool, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, 0, errors.New("the request can't be made")
	}
	maps.Copy(req.Header, c.header)
	res, err := c.transport.RoundTrip(req) // an http.Client follows redirects, with the headers
	if err != nil {
		return true, 0, cause(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, largestAnswer))
	if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, after, fmt.Errorf("the collector answered %d", res.StatusCode)
	}
	return false, 0, fmt.Errorf("the collector answered %d", res.StatusCode)
}

// cause returns why there is no answer, without the address, which may have a
// secret in it.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("the collector did not answer in time")
	}
	if dial, is := errors.AsType[*net.OpError](err); is {
		return fmt.Errorf("%s: %w", dial.Op, dial.Err)
	}
	return errors.New("the connection to the collector broke off")
}

// tell logs that spans are lost, but not more often than every minute.
func (c *client) tell(ctx context.Context, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += n
	if now := time.Now(); now.Sub(c.toldAt) >= tellEvery {
		c.log.WarnContext(ctx, "traces are lost: the collector does not take them", "spans", c.lost, "error", err)
		c.toldAt, c.lost = now, 0
	}
}
