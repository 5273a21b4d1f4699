package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// streamPage is how many events a stream keeps in memory.
const streamPage = 100

// errShutdown means that the server is shutting down.
var errShutdown = errors.New("the server is shutting down")

// feed is a request for events. It holds no connection of the store while it
// waits.
type feed struct {
	webhooks *webhook.Service
	waits    *concurrency
	request  *http.Request // without a deadline
	who      account.Identity
	filter   webhook.EventFilter
	after    string // name of the parameter with the start of the feed, for errors
	openEnded
}

func (a *api) newFeed(gc context.Context, filter webhook.EventFilter) (*feed, error) {
	c, ours := gc.(*gin.Context)
	who, known := identity(gc)
	if !ours || !known {
		return nil, errNoIdentity
	}
	open, err := openEndedOf(gc)
	if err != nil {
		return nil, err
	}
	return &feed{webhooks: a.webhooks, waits: a.waits, request: c.Request.WithContext(open.ctx), who: who,
		filter: filter, after: "query/after", openEnded: open}, nil
}

// head reports whether the request is HEAD, which does not wait.
func (f *feed) head() bool { return f.request.Method == http.MethodHead }

// read returns the next events, and whether there are more.
func (f *feed) read() ([]card.Event, bool, error) {
	ctx, cancel := context.WithTimeout(f.request.Context(), requestTimeout)
	defer cancel()
	es, more, err := f.webhooks.ListEvents(ctx, f.who.AccountID, f.filter)
	if wrong, ok := errors.AsType[*card.Error](err); ok && len(wrong.Fields) == 1 {
		err = wrong.WithFields(card.FieldError{Pointer: f.after, Detail: wrong.Fields[0].Detail})
	}
	return es, more, err
}

// first returns the existing events. Like other reads, it holds a slot of
// gates.read.
func (f *feed) first(gates *gates) ([]card.Event, bool, error) {
	if err := gates.acquire(f.request.Context(), gates.read, f.who.AccountID); err != nil {
		return nil, false, err
	}
	defer gates.read.release(f.who.AccountID)
	return f.read()
}

// watch cancels the request's context when its token becomes invalid.
func (f *feed) watch(w http.ResponseWriter) *tokenWatch {
	ctx, watch := watchToken(f.request.Context(), w, f.checkToken)
	f.request = f.request.WithContext(ctx)
	return watch
}

// err returns why the request must end: its client disconnected, the server is
// shutting down, or its token is no longer valid. It returns nil otherwise.
func (f *feed) err() error {
	select {
	case <-shutdown(f.request.Context()):
		return errShutdown
	case <-f.request.Context().Done():
		return context.Cause(f.request.Context())
	default:
		return nil
	}
}

// await waits for events, up to d. It reports whether there are any. It returns
// the error of err.
func (f *feed) await(d time.Duration) (bool, error) {
	events, stop := f.webhooks.AwaitEvents(f.who.AccountID, f.filter)
	defer stop()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-events:
		return true, f.err()
	case <-timeout.C:
	case <-shutdown(f.request.Context()):
	case <-f.request.Context().Done():
	}
	return false, f.err()
}

// poll waits for events up to d, and returns them. It returns none if the
// server is shutting down.
func (f *feed) poll(w http.ResponseWriter, d time.Duration) (es []card.Event, more bool, err error) {
	end, err := f.waits.acquire(f.who)
	if err != nil {
		return nil, false, err
	}
	defer end()
	extendDeadline(w, d+requestTimeout)
	watch := f.watch(w)
	defer func() { err = watch.end(err) }()
	for until := time.Now().Add(d); ; {
		_, err := f.await(time.Until(until))
		if errors.Is(err, errShutdown) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		es, more, err := f.read()
		if err != nil || len(es) > 0 || !time.Now().Before(until) {
			return es, more, err
		}
	}
}

// extendDeadline extends the write deadline of a response by d.
func extendDeadline(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + writeTimeout))
}

// eventStream writes events as they happen, until its client disconnects. It
// keeps one page in memory.
type eventStream struct {
	*feed
	heartbeat time.Duration
}

// VisitListEventsResponse writes server-sent events. An error before the first
// byte becomes a problem document. Later errors end the stream; the client
// reconnects, and continues after the last event that it received.
func (s eventStream) VisitListEventsResponse(w http.ResponseWriter) error {
	end, err := s.waits.acquire(s.who)
	if err != nil {
		return err
	}
	defer end()
	watch := s.watch(w)
	defer func() { _ = watch.end(nil) }()
	s.filter.Limit = streamPage
	es, more, err := s.read()
	if err = watch.cause(err); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // disables buffering in nginx
	w.WriteHeader(http.StatusOK)
	if s.head() {
		return nil
	}
	err = send(w, watch, []byte("retry: 3000\n\n"))
	for err == nil {
		if err = s.sendAll(w, watch, es); err == nil && !more {
			err = s.pass(w, watch)
		}
		if err == nil {
			es, more, err = s.read()
		}
	}
	err = watch.end(err)
	if errors.Is(err, errShutdown) || errors.Is(err, card.ErrUnauthorized) {
		return nil
	}
	return err
}

func (s eventStream) sendAll(w http.ResponseWriter, watch *tokenWatch, es []card.Event) error {
	for _, e := range es {
		if err := s.err(); err != nil {
			return err
		}
		if err := send(w, watch, formatEvent(e)); err != nil {
			return err
		}
		s.filter.After = e.Seq
	}
	return nil
}

// pass waits for the next event, and sends heartbeats.
func (s eventStream) pass(w http.ResponseWriter, watch *tokenWatch) error {
	for {
		found, err := s.await(s.heartbeat)
		if err != nil || found {
			return err
		}
		if err := send(w, watch, []byte(":\n\n")); err != nil {
			return err
		}
	}
}

// send writes a part of a stream, and extends the deadline of a client that
// keeps up.
func send(w http.ResponseWriter, watch *tokenWatch, text []byte) error {
	if err := watch.extend(writeTimeout); err != nil {
		return err
	}
	defer watch.written()
	if _, err := w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// formatEvent formats a server-sent event.
func formatEvent(e card.Event) []byte {
	data, err := json.Marshal(wireEvent(e))
	if err != nil {
		panic(err) // can't happen: strings and a number
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Type, data)
	return text.Bytes()
}

// prefersStream reports whether an Accept header prefers server-sent events, by
// name, to JSON.
func prefersStream(accept []string) bool {
	var stream, list float64
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		quality, err := strconv.ParseFloat(params["q"], 64)
		if err != nil {
			quality = 1
		}
		switch media {
		case "text/event-stream":
			stream = max(stream, quality)
		case "application/json":
			list = max(list, quality)
		}
	}
	return stream > list
}
