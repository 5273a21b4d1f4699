package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

const (
	longestWait    = 30 * time.Second // requested from the service; shorter than the timeouts of proxies
	mostFeedFaults = 3
)

// cardFeed waits for the events of one card.
type cardFeed struct {
	client     *Client
	card       uuid.UUID
	opts       []CallOption
	timeout    time.Duration // of an attempt, without the wait of the service
	after      int64         // the last event seen
	faults     int           // consecutive temporary failures
	off        bool          // the feed can't be waited for
	retryAfter time.Duration // requested by the service
}

// wait returns true if the caller should read the card, because it may have
// changed or the wait is over. It returns false if it did not wait, so that the
// caller must pause.
func (f *cardFeed) wait(ctx context.Context) bool {
	f.retryAfter = 0
	if f.off {
		return false
	}
	query := url.Values{"after": {strconv.FormatInt(f.after, 10)}, "card": {f.card.String()},
		"wait": {strconv.Itoa(int(longestWait / time.Second))}}
	// Only one attempt, so that WaitForCard's view of the card is never older
	// than one wait.
	opts := append(f.opts[:len(f.opts):len(f.opts)], WithRetry(1, 0), WithAttemptTimeout(longestWait+f.timeout),
		WithResponse(new(Response)))
	var events []Event
	start := time.Now()
	_, err := f.client.do(ctx, request{operation: opListEvents(), query: query.Encode()}, &events, opts)
	if err != nil {
		f.failed(err)
		return false
	}
	last := f.after
	for _, e := range events {
		if e.CardUUID != f.card {
			f.off = true // an older service ignores the parameters and returns all events
			return false
		}
		last = max(last, e.Seq)
	}
	if last > f.after || time.Since(start) >= longestWait-time.Second {
		f.after, f.faults = last, 0
		return true
	}
	f.fault() // a service that shuts down responds early, and one without "wait" at once
	return false
}

// fault counts a temporary failure.
func (f *cardFeed) fault() {
	f.faults++
	f.off = f.faults >= mostFeedFaults
}

// failed records that the feed could not be read.
func (f *cardFeed) failed(err error) {
	refusal, refused := asType[*Error](err)
	switch {
	case refused && refusal.Status == http.StatusTooManyRequests:
		f.retryAfter = min(refusal.RetryAfter, longestWait) // too many clients wait: read the card until then
	case temporary(err, true):
		f.fault()
	default: // an older service, or a token without the scope
		f.off = true
	}
}
