package rig

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Line forwards connections to a server at a TCP address, and can cut them.
type Line struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

// NewLine starts a line to the address to, of the form host:port. It ends with
// the test.
func NewLine(tb testing.TB, to string) *Line {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Line{listener: listener, to: to, conns: map[net.Conn]bool{}}
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
	})
	go l.run()
	return l
}

// Host returns the address to connect to.
func (l *Line) Host() string { return l.listener.Addr().String() }

// Cut closes every connection, and loses data in transit.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// Down cuts every connection and refuses new ones, until Up.
func (l *Line) Down() {
	l.mu.Lock()
	l.down = true
	l.mu.Unlock()
	l.Cut()
}

// Up accepts connections again.
func (l *Line) Up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *Line) run() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.pass(from)
	}
}

// register reports whether connections are allowed. If so, Cut will close c.
func (l *Line) register(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *Line) pass(from net.Conn) {
	defer func() {
		_ = from.Close()
		l.mu.Lock()
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	if !l.register(from) {
		return
	}
	to, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(way[1], way[0])
			ended <- struct{}{}
		}()
	}
	<-ended
}
