package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
)

// tokenCheckInterval is how often a long response checks its token. The
// authenticator caches its answer for up to four seconds, so a revoked token
// ends the response within five.
const tokenCheckInterval = 500 * time.Millisecond

// tokenWatch aborts a response once its token is no longer valid, even while
// its client does not read.
type tokenWatch struct {
	checkToken func(context.Context) error
	control    *http.ResponseController
	conn       lingerer // nil if unknown
	cancel     context.CancelCauseFunc

	mu      sync.Mutex
	writing bool // a part of the response is being written
	ended   bool
	err     error // why the response was aborted
}

// lingerer is a connection that can discard unsent data when it is closed.
type lingerer interface{ SetLinger(sec int) error }

// watchToken starts a watch; the caller must end it. The context is canceled
// when the response is aborted.
func watchToken(ctx context.Context, w http.ResponseWriter, check func(context.Context) error) (context.Context,
	*tokenWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tokenWatch{checkToken: check, control: http.NewResponseController(w), cancel: cancel}
	t.conn, _ = ctx.Value(connKey{}).(lingerer)
	go t.run(ctx)
	return ctx, t
}

// run aborts the response once its token is no longer valid, or if the check
// panics.
func (t *tokenWatch) run(ctx context.Context) {
	err := panics.Call(func() error { return t.check(ctx) })
	var panicked *panics.Error
	if errors.As(err, &panicked) {
		err = card.ErrInternal.WithCause(err)
	}
	if err != nil {
		t.cut(err)
	}
}

// check returns why the token is no longer valid, or nil once ctx is canceled.
func (t *tokenWatch) check(ctx context.Context) error {
	ticker := time.NewTicker(tokenCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := t.checkToken(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cut aborts the response: it cancels its context, interrupts a blocked write,
// and discards data that the kernel has not sent.
func (t *tokenWatch) cut(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.err = err
	t.cancel(err)
	if t.writing {
		_ = t.control.SetWriteDeadline(time.Unix(1, 0))
		if t.conn != nil {
			_ = t.conn.SetLinger(0)
		}
	}
}

// extend gives the client d to read the next part of the response. It returns
// why the response was aborted, if it was.
func (t *tokenWatch) extend(d time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.writing = true
		_ = t.control.SetWriteDeadline(time.Now().Add(d))
	}
	return t.err
}

// written marks the end of a part. The response may end here.
func (t *tokenWatch) written() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = false
}

// cause returns why the response was aborted, or else err.
func (t *tokenWatch) cause(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	return err
}

// end stops the watch. It returns why the response was aborted, or else err.
func (t *tokenWatch) end(err error) error {
	t.cancel(nil)
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	return t.cause(err)
}

// openEnded is a request whose response lasts as long as its client reads or
// waits.
type openEnded struct {
	ctx        context.Context // without the deadline of other requests
	checkToken func(context.Context) error
}

func openEndedOf(gc context.Context) (openEnded, error) {
	check, known := gc.Value(checkTokenKey).(func(context.Context) error)
	ctx, unlimited := gc.Value(unlimitedKey).(context.Context)
	switch {
	case !known:
		return openEnded{}, errNoIdentity
	case !unlimited:
		return openEnded{}, errNoDeadline
	}
	return openEnded{ctx, check}, nil
}

// visit writes a page. It checks the token before, because the page may have
// been read from a slow database, and during a slow write.
func (o openEnded) visit(w http.ResponseWriter, visit func(http.ResponseWriter) error) error {
	if err := o.checkToken(o.ctx); err != nil {
		return err
	}
	_, watch := watchToken(o.ctx, w, o.checkToken)
	_ = watch.extend(writeTimeout)
	return watch.end(visit(w))
}

// watchedCards is a page of cards that is aborted when its token becomes
// invalid.
type watchedCards struct {
	ListCardsResponseObject
	openEnded
}

// VisitListCardsResponse writes the page.
func (p watchedCards) VisitListCardsResponse(w http.ResponseWriter) error {
	return p.visit(w, p.ListCardsResponseObject.VisitListCardsResponse)
}

// watchedEvents is a page of events that is aborted when its token becomes
// invalid.
type watchedEvents struct {
	ListEventsResponseObject
	openEnded
}

// VisitListEventsResponse writes the page.
func (p watchedEvents) VisitListEventsResponse(w http.ResponseWriter) error {
	return p.visit(w, p.ListEventsResponseObject.VisitListEventsResponse)
}
