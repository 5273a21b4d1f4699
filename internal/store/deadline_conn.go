package store

import (
	"context"
	"net"
	"sync"
	"time"
)

// grace is how long a statement may still take when its caller has gone. Then
// its connection is given up. A server that is well ends a cancelled statement
// within milliseconds.
const grace = 1500 * time.Millisecond

// goodbye is how long it may take to tell a server that a session ends. Nobody
// waits for an answer.
const goodbye = 100 * time.Millisecond

// dialer makes connections that do not wait for the other side longer than
// silence.
type dialer struct{ silence time.Duration }

// dialing is an attempt to connect, on behalf of ctx. It ends with release.
type dialing struct {
	ctx     context.Context
	conn    *deadlineConn
	release func()
}

type dialingKey struct{}

func (d *dialing) dialed(w *deadlineConn) {
	d.end() // of the host before
	d.conn, d.release = w, w.limit(d.ctx)
}

func (d *dialing) end() {
	if d.release != nil {
		d.release()
		d.release = nil
	}
}

// DialContext implements pq.DialerContext. Without a dialing in ctx, lib/pq
// connects to cancel a statement. The caller of the statement waits for that,
// and so it gets no longer than grace.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	attempt, _ := ctx.Value(dialingKey{}).(*dialing)
	if attempt == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace)
		defer cancel()
	}
	c, err := (&net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}).
		DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := &deadlineConn{Conn: c, silence: d.silence}
	if attempt == nil {
		w.end = time.Now().Add(grace)
	} else {
		attempt.dialed(w)
	}
	return w, nil
}

// Dial implements pq.Dialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialTimeout implements pq.Dialer.
func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// deadlineConn is a connection on which every read and write has a deadline. It may be
// idle in between for any time.
type deadlineConn struct {
	net.Conn
	silence time.Duration

	mu    sync.Mutex
	until time.Time // the deadline that lib/pq sets while it connects
	end   time.Time // the deadline since a caller has gone
}

// limit gives up the connection a moment after ctx has ended, unless release is
// called before. lib/pq asks the server to cancel the statement; but then it
// waits until the server answers, and a server that is frozen never does.
func (w *deadlineConn) limit(ctx context.Context) (release func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	released := false
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !released {
			w.end = time.Now().Add(grace)
			_ = w.Conn.SetDeadline(w.deadline())
		}
	})
	return func() {
		if stop() {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		released, w.end = true, time.Time{}
	}
}

// SetDeadline sets a deadline for all that follows.
func (w *deadlineConn) SetDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = t
	return w.Conn.SetDeadline(w.deadline())
}

func (w *deadlineConn) deadline() time.Time {
	t := time.Now().Add(w.silence)
	for _, other := range []time.Time{w.until, w.end} {
		if !other.IsZero() && other.Before(t) {
			t = other
		}
	}
	return t
}

func (w *deadlineConn) Read(b []byte) (int, error) {
	if err := w.hurry(w.SetReadDeadline); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

func (w *deadlineConn) Write(b []byte) (int, error) {
	if err := w.hurry(w.SetWriteDeadline); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

func (w *deadlineConn) hurry(set func(time.Time) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return set(w.deadline())
}
