package outbound

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	mostIdle     = 512 // connections that are kept for later attempts
	mostIdleEach = 8   // of one target
	longestIdle  = 30 * time.Second
)

var errLongHeaders = errors.New("response headers are too long")

// conn is a connection to a receiver. It makes one exchange at a time, in the
// goroutine of its caller: http.Transport hands each one to two goroutines and
// back, an eighth of what a delivery costs. Requests are written and responses
// are parsed by net/http.
type conn struct {
	net.Conn
	tcp       net.Conn // beneath TLS
	in        *bufio.Reader
	limit     *io.LimitedReader // between in and Conn
	out       *bufio.Writer
	address   netip.Addr // of the other side
	idleSince time.Time
}

// connect returns a connection to a target. A connection that was kept goes
// before a new one. Reads and writes fail after the deadline. The error is
// postponed if Target.Admit wants the request to be sent later.
func (c *Client) connect(ctx context.Context, to Target, deadline time.Time) (*conn, error) {
	for {
		kept := c.idle.take(to.key)
		if kept == nil {
			break
		}
		if wait := to.admit(kept.address); wait > 0 {
			c.idle.put(to.key, kept)
			return nil, postponed(wait)
		}
		if kept.ready(deadline) {
			return kept, nil
		}
		_ = kept.Close()
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	tcp, err := c.guard.dialer(to.admit).DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	var over net.Conn = tcp
	if to.url.Scheme == "https" {
		settings := c.tls.Clone()
		settings.ServerName = to.url.Hostname()
		secure := tls.Client(tcp, settings)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = tcp.Close()
			return nil, err
		}
		over = secure
	}
	if err := over.SetDeadline(deadline); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	limit := &io.LimitedReader{R: over}
	return &conn{Conn: over, tcp: tcp, in: bufio.NewReader(limit), limit: limit, out: bufio.NewWriter(over),
		address: remote(tcp)}, nil
}

// remote returns the address of the other side of a connection.
func remote(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// ready prepares a connection that was kept for an exchange. It reports whether
// the other side has neither hung up nor said anything since the last one. It
// does not wait.
func (c *conn) ready(deadline time.Time) bool {
	if c.Conn != c.tcp {
		// TLS reads ahead. After the deadline, only that is to be had.
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if _, err := c.in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return c.SetDeadline(deadline) == nil && silent(c.tcp)
}

// Close implements net.Conn. It says no farewell by TLS, which could take
// seconds if the other side reads nothing: each response says where it ends.
func (c *conn) Close() error { return c.tcp.Close() }

// exchange sends a request, and returns the response up to its body. Responses
// with a status of 1xx are skipped, except 101. After an error the connection
// can't be used again.
func (c *conn) exchange(req *http.Request) (*http.Response, error) {
	errWrite := req.Write(c.out)
	if err := c.out.Flush(); err != nil {
		errWrite = err // the cause, which Request.Write may hide
	}
	c.limit.N = largestHeaders
	for {
		// A receiver may respond, and hang up, before it has read all.
		res, err := http.ReadResponse(c.in, req)
		switch {
		case err != nil && c.limit.N <= 0:
			return nil, errLongHeaders
		case err != nil:
			return nil, cmp.Or(errWrite, err)
		case res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols:
			continue
		}
		c.limit.N = math.MaxInt64
		res.Close = res.Close || errWrite != nil
		return res, nil
	}
}

// pool keeps connections that are idle. Its zero value is ready for use.
type pool struct {
	mu       sync.Mutex
	idle     map[string][]*conn // by the key of the target, the one that was used last at the end
	n        int
	sweeping bool
	closed   bool
}

// take returns the connection to a target that was used last, or nil.
func (p *pool) take(key string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeOld(key)
	kept := p.idle[key]
	if len(kept) == 0 {
		return nil
	}
	last := kept[len(kept)-1]
	p.set(key, kept[:len(kept)-1])
	return last
}

// put keeps a connection that has nothing more to read or write. If there are
// too many, it closes the one that has been idle longest.
func (p *pool) put(key string, c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return
	}
	c.idleSince = time.Now().Round(0) // by the wall clock, which goes on while a machine sleeps
	if p.idle == nil {
		p.idle = map[string][]*conn{}
	}
	p.set(key, append(p.idle[key], c))
	switch {
	case len(p.idle[key]) > mostIdleEach:
		p.closeOldest(key)
	case p.n > mostIdle:
		p.closeOldest(p.oldest())
	}
	if !p.sweeping {
		p.sweeping = true
		time.AfterFunc(longestIdle, p.sweep)
	}
}

// sweep closes what has been idle for longestIdle, and comes again while
// anything is left.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.idle {
		p.closeOld(key)
	}
	if p.sweeping = p.n > 0; p.sweeping {
		time.AfterFunc(longestIdle, p.sweep)
	}
}

// close closes all connections. Those that are put later are closed, too.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for key, kept := range p.idle {
		for range kept {
			p.closeOldest(key)
		}
	}
}

// oldest returns the key of the connection that has been idle longest.
func (p *pool) oldest() (key string) {
	var since time.Time
	for k, kept := range p.idle {
		if key == "" || kept[0].idleSince.Before(since) {
			key, since = k, kept[0].idleSince
		}
	}
	return key
}

// closeOld closes the connections of a key that have been idle for longestIdle.
func (p *pool) closeOld(key string) {
	for kept := p.idle[key]; len(kept) > 0 && time.Since(kept[0].idleSince) >= longestIdle; kept = p.idle[key] {
		p.closeOldest(key)
	}
}

func (p *pool) closeOldest(key string) {
	kept := p.idle[key]
	_ = kept[0].Close()
	p.set(key, slices.Clone(kept[1:])) // not as part of an array that still holds the one that is closed
}

// set replaces the connections of a key.
func (p *pool) set(key string, kept []*conn) {
	p.n += len(kept) - len(p.idle[key])
	if len(kept) == 0 {
		delete(p.idle, key)
		return
	}
	p.idle[key] = kept
}
