package server

import (
	"io"
	"time"
)

const (
	// leastThroughput is what a client must read of a list without pages, in
	// bytes per second, on average over writeTimeout. It is less than EDGE has.
	leastThroughput = 16 << 10
	listBuffer      = 32 << 10
)

// pacedWriter cuts off a client that reads too slowly. Only the time that
// writes block counts: a client may block for writeTimeout in all, and what
// it reads earns time back at leastThroughput.
type pacedWriter struct {
	w      io.Writer
	extend func(time.Duration) error
	left   time.Duration
}

// newPacedWriter returns a writer to w that first calls extend with the time
// that the write may take.
func newPacedWriter(w io.Writer, extend func(time.Duration) error) *pacedWriter {
	return &pacedWriter{w, extend, writeTimeout}
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (int, error) {
	if err := p.extend(p.left); err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := p.w.Write(b)
	earned := time.Duration(n) * time.Second / leastThroughput
	p.left = min(p.left-time.Since(began)+earned, writeTimeout)
	return n, err
}
