package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/server"
)

// listener shortens the deadlines that the server sets, so that tests need not
// wait.
type listener struct {
	net.Listener
	bend           func(left time.Duration) time.Duration
	patience       time.Duration // overrides write deadlines, if not 0
	sendBuffer     int           // bytes that the kernel keeps for a slow reader, if it is not 0
	writeDeadlines atomic.Int64  // number of write deadlines set
}

func listen(t testing.TB, bend func(time.Duration) time.Duration) *listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need(t, err)
	return &listener{Listener: l, bend: bend}
}

func unbent(left time.Duration) time.Duration { return left }

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && l.sendBuffer > 0 {
		_ = tcp.SetWriteBuffer(l.sendBuffer)
	}
	return bentConn{conn, l}, err
}

type bentConn struct {
	net.Conn
	l *listener
}

func (c bentConn) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		at = time.Now().Add(c.l.bend(time.Until(at)))
	}
	return c.Conn.SetReadDeadline(at)
}

func (c bentConn) SetWriteDeadline(at time.Time) error {
	c.l.writeDeadlines.Add(1)
	if c.l.patience > 0 && !at.IsZero() {
		at = time.Now().Add(c.l.patience)
	}
	return c.Conn.SetWriteDeadline(at)
}

func (c bentConn) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

// serveOn serves until the test ends.
func serveOn(t testing.TB, l net.Listener, h http.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, h, slog.Default(), 10*time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// refusesConnections waits until the listener is closed, which shows that Serve
// is shutting down.
func refusesConnections(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Fatal("the listener is still open")
}

func TestServe_Shutdown_FinishesAcceptedRequests(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	d := deploy(t, setup{checks: map[string]func(context.Context) error{"slow": func(ctx context.Context) error {
		close(asked)
		<-release
		return ctx.Err() // not canceled by the shutdown
	}}})
	l := listen(t, unbent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, d.handler, slog.Default(), time.Minute) }()

	const check = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
	checking := dial(t, l.Addr().String())
	_, err := io.WriteString(checking, check)
	need(t, err)
	<-asked
	token, body := d.token(t), orderBody("50")
	creating := dial(t, l.Addr().String())
	head := "POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token +
		"\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 37\r\n\r\n"
	equal(t, "length of the body", len(body), 37)
	_, err = io.WriteString(creating, head)
	need(t, err)
	goOn := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err = io.ReadFull(creating, goOn) // the request is being served now
	need(t, err)

	cancel()
	refusesConnections(t, l.Addr().String())
	select {
	case err := <-ended:
		t.Fatalf("Serve returned while serving requests: %v", err)
	default:
	}
	_, err = io.WriteString(creating, body)
	need(t, err)
	readResponse(t, creating, head).want(t, http.StatusCreated)
	close(release)
	readResponse(t, checking, check).want(t, http.StatusOK)
	need(t, <-ended)
	equal(t, "cards", count(t, d.client(t, token)), 1)
}

func TestServe_GraceIsOver_ReturnsError(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done() // ends only because Serve closes the connection
	})
	l := listen(t, unbent)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, handler, slog.Default(), time.Millisecond) }()
	conn := dial(t, l.Addr().String())
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	need(t, err)
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve returned %v, want that the grace was exceeded", err)
	}
	if text, err := io.ReadAll(conn); len(text) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of an aborted request: %q, %v", text, err)
	}
}

func TestServe_ListenerFails_ReturnsError(t *testing.T) {
	t.Parallel()
	l := listen(t, unbent)
	need(t, l.Close())
	if err := server.Serve(t.Context(), l, http.NotFoundHandler(), slog.Default(), time.Second); !errors.Is(err,
		net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}

func TestServe_HeaderTooLarge_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	l := listen(t, unbent)
	serveOn(t, l, d.handler)
	conn := dial(t, l.Addr().String())
	go func() {
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: "+strings.Repeat("a", 64<<10)+"\r\n\r\n")
	}()
	line := make([]byte, len("HTTP/1.1 431"))
	_, err := io.ReadFull(conn, line)
	need(t, err)
	equal(t, "status line", string(line), "HTTP/1.1 431")
	equal(t, "log", d.log.String(), "")
}
