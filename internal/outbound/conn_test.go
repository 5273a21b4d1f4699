package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// answering returns a receiver that reads a request, says what it is told to,
// and goes on, on one connection. It counts connections.
func answering(connections *atomic.Int32, say string, then func(net.Conn) (more bool)) func(net.Conn) {
	return func(conn net.Conn) {
		connections.Add(1)
		for in := bufio.NewReader(conn); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			wait(r.Body)
			if _, err := io.WriteString(conn, say); err != nil || !then(conn) {
				return
			}
		}
	}
}

func TestPost_KeepsAConnectionOnlyIfNothingIsLeftOnIt(t *testing.T) {
	more := func(net.Conn) bool { return true }
	for name, test := range map[string]struct {
		say         string
		then        func(net.Conn) bool
		connections int32 // for three requests
	}{
		"no body":  {"HTTP/1.1 204 No Content\r\n\r\n", more, 1},
		"a length": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine", more, 1},
		"chunks":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n", more, 1},
		"chunks and a trailer": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n4\r\nfine\r\n0\r\nA: b\r\n\r\n", more, 1},
		"hints":                {"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", more, 1},
		"wants it closed":      {"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", more, 3},
		"HTTP/1.0":             {"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine", more, 3},
		"until the end":        {"HTTP/1.1 200 OK\r\n\r\nfine", func(net.Conn) bool { return false }, 3},
		"hangs up unasked":     {"HTTP/1.1 204 No Content\r\n\r\n", func(net.Conn) bool { return false }, 3},
		"more than its length": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfineHTTP/1.1 410 Gone\r\n\r\n", more, 3},
		"a body of no content": {"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 410 Gone\r\n\r\n", more, 3},
		"speaks unasked": {"HTTP/1.1 204 No Content\r\n\r\n", func(conn net.Conn) bool {
			time.Sleep(10 * time.Millisecond)
			_, _ = io.WriteString(conn, "HTTP/1.1 410 Gone\r\n\r\n")
			return true
		}, 3},
		"half a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nfine", func(net.Conn) bool {
			return false
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int32
			address := startRaw(t, answering(&connections, test.say, test.then))
			client := newClient(t, Guard{Insecure: true}) // closed before the receiver waits for the end of its connections
			to := client.Target("http://" + address)
			for range 3 {
				if got := client.Post(t.Context(), to, nil, []byte("x")); got.Status/100 != 2 {
					t.Errorf("got %+v", got)
				}
				time.Sleep(50 * time.Millisecond) // for what the receiver does next
			}
			if n := connections.Load(); n != test.connections {
				t.Errorf("%d connections, want %d", n, test.connections)
			}
		})
	}
}

func TestPost_KeepsConnectionsWithTLS(t *testing.T) {
	certificate, pool := certify(t, nil)
	server := startServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") },
		&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
	client := newClient(t, Guard{Insecure: true, RootCAs: pool})
	to := client.Target(server.URL)
	for range 5 {
		if got := client.Post(t.Context(), to, nil, []byte("x")); got.Status != 200 || got.Body != "fine" {
			t.Errorf("got %+v", got)
		}
	}
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// held is a connection that sends what was written once something is to be
// read, or send is called.
type held struct {
	net.Conn
	out bytes.Buffer
}

func (h *held) Write(p []byte) (int, error) { return h.out.Write(p) }

func (h *held) Read(p []byte) (int, error) {
	h.send()
	return h.Conn.Read(p)
}

func (h *held) send() {
	_ = h.SetWriteDeadline(time.Time{}) // that of TLS after its last word
	_, _ = io.Copy(h.Conn, &h.out)
}

// TLS reads ahead: what the receiver says unasked, also that it is done, may
// have left the network before anybody looks.
func TestPost_KeepsNoConnectionOnWhichTLSHasReadAhead(t *testing.T) {
	certificate, pool := certify(t, nil)
	for name, more := range map[string]func(*tls.Conn){
		"another answer": func(secure *tls.Conn) {
			_, _ = io.WriteString(secure, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
		},
		"a body":  func(secure *tls.Conn) { _, _ = io.WriteString(secure, "OK") },
		"the end": func(secure *tls.Conn) { _ = secure.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int32
			address := startRaw(t, func(conn net.Conn) {
				together := &held{Conn: conn}
				secure := tls.Server(together, &tls.Config{Certificates: []tls.Certificate{certificate}})
				answering(&connections, "HTTP/1.1 204 No Content\r\n\r\n", func(net.Conn) bool {
					more(secure)
					together.send()
					return true
				})(secure)
			})
			client := newClient(t, Guard{Insecure: true, RootCAs: pool})
			for range 3 {
				if got := client.Post(t.Context(), client.Target("https://"+address), nil, nil); got.Status != 204 {
					t.Errorf("got %+v", got)
				}
			}
			if n := connections.Load(); n != 3 {
				t.Errorf("%d connections, want 3", n)
			}
		})
	}
}

// net/http hides why the body could not be written.
func TestPost_SaysWhyALongBodyDidNotArrive(t *testing.T) {
	for want, talk := range map[string]func(net.Conn){
		"no answer within 100ms": func(net.Conn) { time.Sleep(3 * soon) },
		"the connection broke off": func(conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, 100))
			_ = conn.(*net.TCPConn).SetLinger(0)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			guard := Guard{Insecure: true}
			if strings.HasPrefix(want, "no answer") {
				guard.Timeout = soon
			}
			address := startRaw(t, talk)
			client := newClient(t, guard)
			got := client.Post(t.Context(), client.Target("http://"+address), nil, make([]byte, 16<<20))
			if diff := cmp.Diff(Answer{Reason: want}, got, noTime); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each target has connections of its own: those of one port, or with TLS, say
// nothing about another's.
func TestPost_SharesNoConnectionsBetweenTargets(t *testing.T) {
	say := func(text string) *server {
		return startServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	client := newClient(t, Guard{Insecure: true})
	one, other := say("one"), say("other")
	for range 2 {
		for want, s := range map[string]*server{"one": one, "other": other} {
			if got := client.Post(t.Context(), client.Target(s.URL), nil, nil); got.Body != want {
				t.Errorf("got %q from %s", got.Body, want)
			}
		}
	}
	if client.Target("http://a.example:443").key == client.Target("https://a.example").key {
		t.Error("http and https share connections")
	}
	if client.Target("https://a.example:443/x").key != client.Target("https://a.example/y").key {
		t.Error("two paths of one host share no connections")
	}
}

func TestPost_ReadsWhatIsSaidBeforeAllIsRead(t *testing.T) {
	address := startRaw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		_ = conn.(*net.TCPConn).CloseWrite()
		wait(conn)
	})
	client := newClient(t, Guard{Insecure: true})
	got := client.Post(t.Context(), client.Target("http://"+address), nil, make([]byte, 32<<10))
	if diff := cmp.Diff(Answer{Status: 413}, got, noTime); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPost_IsGivenUpAtOnce(t *testing.T) {
	gone := make(chan struct{})
	client := newClient(t, Guard{Insecure: true})
	ctx, cancel := context.WithCancel(t.Context())
	address := startRaw(t, func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		cancel()
		wait(conn)
		close(gone)
	})
	got := client.Post(ctx, client.Target("http://"+address), nil, nil)
	if diff := cmp.Diff(Answer{Reason: "the attempt was given up before an answer came"}, got, noTime); diff != "" ||
		got.Took > 5*time.Second {
		t.Errorf("after %s (-want +got):\n%s", got.Took, diff)
	}
	<-gone // the connection is closed, not kept
}

func TestPost_KeepsFewConnectionsAfterMany(t *testing.T) {
	const many = 3 * mostIdleEach
	var all, answered sync.WaitGroup
	all.Add(many)
	server := startServer(t, func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait()
	})
	client := newClient(t, Guard{Insecure: true})
	for range many {
		answered.Go(func() { client.Post(t.Context(), client.Target(server.URL), nil, nil) })
	}
	answered.Wait()
	if n := kept(&client.idle); n != mostIdleEach || server.accepted.Load() != many {
		t.Errorf("%d of %d connections are kept, want %d", n, server.accepted.Load(), mostIdleEach)
	}
	client.Close()
	client.Post(t.Context(), client.Target(startServer(t, func(http.ResponseWriter, *http.Request) {}).URL), nil, nil)
	if n := kept(&client.idle); n != 0 {
		t.Errorf("%d connections are kept by a client that is closed", n)
	}
}

// pipe returns a connection that can only be closed, beneath TLS, and whether
// it was.
func pipe(t *testing.T) (c *conn, closed func() bool) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return &conn{tcp: ours}, func() bool { return errors.Is(ours.SetDeadline(time.Time{}), io.ErrClosedPipe) }
}

// kept returns how many connections a pool keeps.
func kept(p *pool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, some := range p.idle {
		n += len(some)
	}
	if n != p.n {
		panic(fmt.Sprintf("%d connections are counted, %d are there", p.n, n))
	}
	return n
}

func TestPool_ClosesWhatIsIdleForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		first, firstClosed := pipe(t)
		second, secondClosed := pipe(t)
		p.put("a", first)
		time.Sleep(longestIdle - time.Second)
		p.put("a", second)
		time.Sleep(2 * time.Second)
		if !firstClosed() || secondClosed() || kept(&p) != 1 {
			t.Errorf("after %s: closed %t, want true; after 2 s: closed %t, want false", longestIdle+time.Second, firstClosed(),
				secondClosed())
		}
		third, thirdClosed := pipe(t)
		p.put("b", third)
		time.Sleep(longestIdle - time.Second) // the next round comes later
		if c := p.take("b"); c != third || thirdClosed() {
			t.Errorf("after %s: taken %t, closed %t", longestIdle-time.Second, c == third, thirdClosed())
		}
		p.put("b", third)
		time.Sleep(longestIdle)
		if c := p.take("b"); c != nil || !thirdClosed() {
			t.Errorf("after %s: taken %t, closed %t", longestIdle, c == third, thirdClosed())
		}
		time.Sleep(2 * longestIdle)
		if !secondClosed() || kept(&p) != 0 {
			t.Errorf("after two rounds: closed %t, %d are left", secondClosed(), kept(&p))
		}
	})
}

func TestPool_ClosesTheOldestOfTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		var closed []func() bool
		for i := range mostIdle + 2 {
			c, isClosed := pipe(t)
			closed = append(closed, isClosed)
			p.put(fmt.Sprint(i), c)
			time.Sleep(time.Millisecond)
		}
		if kept(&p) != mostIdle || !closed[0]() || !closed[1]() || closed[2]() {
			t.Errorf("%d are kept; closed: %t, %t, %t", kept(&p), closed[0](), closed[1](), closed[2]())
		}
		p.close()
		time.Sleep(longestIdle)
	})
}
