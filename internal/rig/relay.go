package rig

import (
	"io"
	"net"
	"net/url"
	"runtime"
	"syscall"
	"testing"
)

// relay forwards connections to a server, and acknowledges received data
// immediately. monero-wallet-rpc sends each request to its node in two parts,
// and sends the second only after the first is acknowledged. Without the relay
// that takes 40 ms.
type relay struct {
	URL string

	listener net.Listener
	to       string
}

// newRelay starts a relay to the URL target. The caller must call end.
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

// pass copies data in both directions until one side closes its connection. It
// returns at once if the server can't be reached.
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
			// both wrapped, or io.Copy would splice and never call Read
			_, _ = io.Copy(struct{ io.Writer }{way[1]}, acknowledging{way[0]})
			ended <- struct{}{}
		}()
	}
	<-ended
}

// acknowledging is a connection that, on Linux, acknowledges data as soon as it
// reads it.
type acknowledging struct{ net.Conn }

func (c acknowledging) Read(b []byte) (int, error) {
	const quickAck = 12 // TCP_QUICKACK, which the kernel soon resets
	n, err := c.Conn.Read(b)
	if tcp, ok := c.Conn.(*net.TCPConn); ok && runtime.GOOS == "linux" {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, quickAck, 1) })
		}
	}
	return n, err
}
