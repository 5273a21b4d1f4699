package postgres

import (
	"context"
	"net"
	"sync"
	"time"
)

// cancelGrace is how long a statement may run after its context has ended. Then
// its connection is closed. A healthy server ends a canceled statement within
// milliseconds.
const cancelGrace = 1500 * time.Millisecond

// closeTimeout limits sending the message that ends a session, which has no
// response.
const closeTimeout = 100 * time.Millisecond

// dialer opens connections that wait for the other side for at most timeout.
type dialer struct{ timeout time.Duration }

// dialAttempt is an attempt to connect within ctx. The caller must call end.
type dialAttempt struct {
	ctx     context.Context
	conn    *deadlineConn
	release func()
}

type dialAttemptKey struct{}

func (a *dialAttempt) dialed(c *deadlineConn) {
	a.end() // of the previous host
	a.conn, a.release = c, c.limit(a.ctx)
}

func (a *dialAttempt) end() {
	if a.release != nil {
		a.release()
		a.release = nil
	}
}

// DialContext implements pq.DialerContext. Without a dialAttempt in ctx, lib/pq
// connects to cancel a statement. The statement's caller waits for that, so it
// may take no longer than cancelGrace.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	attempt, _ := ctx.Value(dialAttemptKey{}).(*dialAttempt)
	if attempt == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cancelGrace)
		defer cancel()
	}
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
	connected, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &deadlineConn{Conn: connected, timeout: d.timeout}
	if attempt == nil {
		c.canceledUntil = time.Now().Add(cancelGrace)
	} else {
		attempt.dialed(c)
	}
	return c, nil
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

// deadlineConn sets a deadline for every read and write of a connection. The
// connection may be idle for any time.
type deadlineConn struct {
	net.Conn
	timeout time.Duration // of a read or write

	mu            sync.Mutex
	explicit      time.Time // the deadline that lib/pq sets while it connects
	canceledUntil time.Time // the deadline since a context has ended
}

// limit closes the connection cancelGrace after ctx has ended, unless release
// is called before. lib/pq asks the server to cancel the statement, but then
// waits until the server answers. A server that is frozen never does.
func (c *deadlineConn) limit(ctx context.Context) (release func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	released := false
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !released {
			c.canceledUntil = time.Now().Add(cancelGrace)
			_ = c.Conn.SetDeadline(c.deadline())
		}
	})
	return func() {
		if stop() {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		released, c.canceledUntil = true, time.Time{}
	}
}

// SetDeadline sets a deadline for all later reads and writes.
func (c *deadlineConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explicit = t
	return c.Conn.SetDeadline(c.deadline())
}

// deadline returns the deadline of a read or write that starts now.
func (c *deadlineConn) deadline() time.Time {
	t := time.Now().Add(c.timeout)
	for _, other := range []time.Time{c.explicit, c.canceledUntil} {
		if !other.IsZero() && other.Before(t) {
			t = other
		}
	}
	return t
}

func (c *deadlineConn) Read(b []byte) (int, error) {
	if err := c.extend(c.SetReadDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *deadlineConn) Write(b []byte) (int, error) {
	if err := c.extend(c.SetWriteDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// extend sets the deadline of a read or write that starts now.
func (c *deadlineConn) extend(set func(time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return set(c.deadline())
}
