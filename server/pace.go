package server

import (
	"net/http"
	"time"
)

const (
	// leastThroughput is what a client must read of a list without pages, in
	// bytes per second, on average over writeTimeout. It is less than EDGE has.
	leastThroughput = 16 << 10
	listBuffer      = 32 << 10
)

// pacedWriter cuts off a client that reads too slowly. Only the time in which a
// write is blocked counts: a client may block for writeTimeout in all, and what
// it reads earns time back at leastThroughput.
type pacedWriter struct {
	http.ResponseWriter
	left time.Duration
}

func newPacedWriter(w http.ResponseWriter) *pacedWriter { return &pacedWriter{w, writeTimeout} }

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (int, error) {
	began := time.Now()
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(began.Add(p.left))
	n, err := p.ResponseWriter.Write(b)
	earned := time.Duration(n) * time.Second / leastThroughput
	p.left = min(p.left-time.Since(began)+earned, writeTimeout)
	return n, err
}
