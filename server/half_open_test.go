package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// memoryListener is a listener in memory, for more connections than a process
// may have descriptors. The test controls its time.
type memoryListener struct {
	doors  chan net.Conn
	closed chan struct{}
	once   sync.Once
	mu     sync.Mutex
	conns  []*memoryConn
}

func newMemoryListener() *memoryListener {
	return &memoryListener{doors: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.doors:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *memoryListener) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial connects, and sends bytes.
func (h *memoryListener) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	g := &memoryConn{Conn: theirs}
	h.mu.Lock()
	h.conns = append(h.conns, g)
	h.mu.Unlock()
	h.doors <- g
	need(t, ours.SetDeadline(time.Now().Add(time.Minute)))
	_, err := io.WriteString(ours, text)
	need(t, err)
	return ours
}

// memoryConn is the server's end of a connection.
type memoryConn struct {
	net.Conn
	mu       sync.Mutex
	patience time.Duration // read deadline of the server
}

func (g *memoryConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
}

func (g *memoryConn) SetReadDeadline(at time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.patience = 0; at.IsZero() || !at.After(time.Now()) {
		return g.Conn.SetReadDeadline(at)
	}
	g.patience = time.Until(at)
	return g.Conn.SetReadDeadline(time.Time{})
}

// wait lets the server wait without data until its deadline, and returns how
// long that takes; 0 is forever. It does so once the deadline is at least that
// far away.
func (g *memoryConn) wait(least time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.patience < least { // the header was not read yet
		g.mu.Unlock()
		runtime.Gosched()
		g.mu.Lock()
	}
	if g.patience > 0 {
		_ = g.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return g.patience
}

// 5,000 connections that send half a request cost memory. Other clients are
// served, and all of the connections are closed in the end.
func TestOverload_5000HalfOpenConnections_BlockNoClient(t *testing.T) {
	t.Parallel()
	const heads, bodies = 4500, 500 // more bodies than slots
	d := deploy(t, setup{})
	h := newMemoryListener()
	serveOn(t, h, d.handler)
	token := d.token(t)
	request := func(method, target, body string, length int) string {
		return fmt.Sprintf(
			"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, target, token, length, body)
	}
	order := orderBody("50")
	first := request(http.MethodPost, "/api/cards", order, len(order))
	readResponse(t, h.dial(t, first), first).want(t, http.StatusCreated)
	var slow []net.Conn
	for i := range heads + bodies {
		text := "GET /api/cards HTTP/1.1\r\nHost: x\r\nX-Slow: "
		if i < bodies {
			text = request(http.MethodPost, "/api/cards", "{", len(order))
		}
		slow = append(slow, h.dial(t, text))
	}
	readResponse(t, h.dial(t, first), first).want(t, http.StatusCreated)
	list := request(http.MethodGet, "/api/cards?limit=10", "", 0)
	equal(t, "cards", strings.Count(readResponse(t, h.dial(t, list), list).want(t, http.StatusOK).body, `"uuid"`), 2)

	for i, conn := range slow {
		least, longest := 6*time.Second, 15*time.Second
		if i >= bodies {
			least, longest = 0, 5*time.Second
		}
		if waits := h.conns[i+1].wait(least); waits <= 0 || waits > longest {
			t.Fatalf("the server waits %s for connection %d, want up to %s", waits, i, longest)
		}
		answer, err := io.ReadAll(conn)
		if refused := strings.HasPrefix(string(answer), "HTTP/1.1 408 "); err != nil || refused != (i < bodies) {
			t.Fatalf("connection %d ends with %q, %v", i, answer, err)
		}
	}
	readResponse(t, h.dial(t, list), list).want(t, http.StatusOK)
}
