package rig

import (
	"io"
	"net"
	"net/url"
	"runtime"
	"syscall"
	"testing"
)

// relay passes connections on to a server and acknowledges at once what it receives. monero-wallet-rpc sends each question to its
// node in two parts, the second of which waits until the first is acknowledged: otherwise for 40 ms.
type relay struct {
	URL string

	listener net.Listener
	to       string
}

// newRelay starts a relay to the URL target. It runs until its end.
func newRelay(tb testing.TB, target string) *relay {
	tb.Helper()
	to, err := url.Parse(target)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &relay{URL: "http://" + l.Addr().String(), listener: l, to: to.Host}
	go r.run()
	return r
}

func (r *relay) end() { _ = r.listener.Close() }

func (r *relay) run() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.pass(from)
	}
}

// pass copies in both directions, until one side ends or the server is not there.
func (r *relay) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{way[1]}, acknowledging{way[0]}) // both wrapped: a kernel that splices would not come back here
			ended <- struct{}{}
		}()
	}
	<-ended
}

// acknowledging acknowledges what it reads, on Linux.
type acknowledging struct{ net.Conn }

func (c acknowledging) Read(b []byte) (int, error) {
	const quickAck = 12 // TCP_QUICKACK, until something else is done
	n, err := c.Conn.Read(b)
	if tcp, ok := c.Conn.(*net.TCPConn); ok && runtime.GOOS == "linux" {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, quickAck, 1) })
		}
	}
	return n, err
}
