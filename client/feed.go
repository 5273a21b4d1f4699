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
	longestWait    = 30 * time.Second // that the service is asked for, shorter than what proxies bear
	mostFeedFaults = 3
)

// cardFeed waits for the events of one card.
type cardFeed struct {
	client     *Client
	card       uuid.UUID
	opts       []CallOption
	timeout    time.Duration // of an attempt, without what the service waits
	after      int64         // the last event that was seen
	faults     int           // that are likely to pass, one after the other
	off        bool          // the feed can't be waited for
	retryAfter time.Duration // that the service asked for
}

// wait returns true when the card is to be looked at: something may have
// happened to it, or the whole wait is over. It returns false if nothing was
// waited for, so that the caller has to pause.
func (f *cardFeed) wait(ctx context.Context) bool {
	f.retryAfter = 0
	if f.off {
		return false
	}
	query := url.Values{"after": {strconv.FormatInt(f.after, 10)}, "card": {f.card.String()},
		"wait": {strconv.Itoa(int(longestWait / time.Second))}}
	// Not more than one attempt: what WaitForCard knows of the card is to be no
	// older than one wait.
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
			f.off = true // the service does not know the parameters, and answers everybody's events
			return false
		}
		last = max(last, e.Seq)
	}
	if last > f.after || time.Since(start) >= longestWait-time.Second {
		f.after, f.faults = last, 0
		return true
	}
	f.fault() // a service that is ending answers early, and one that does not know "wait" at once
	return false
}

// fault counts what is likely to pass.
func (f *cardFeed) fault() {
	f.faults++
	f.off = f.faults >= mostFeedFaults
}

// failed notes that the feed could not be read.
func (f *cardFeed) failed(err error) {
	refusal, refused := asType[*Error](err)
	switch {
	case refused && refusal.Status == http.StatusTooManyRequests:
		f.retryAfter = min(refusal.RetryAfter, longestWait) // too many wait; the card may be looked at meanwhile
	case temporary(err, true):
		f.fault()
	default: // an older service, or a token without the scope
		f.off = true
	}
}
