package server

import (
	"io"
	"time"
)

const (
	// minThroughput is how fast a client must read a streamed list, in bytes
	// per second on average over writeTimeout. It is slower than EDGE.
	minThroughput = 16 << 10
	listBuffer    = 32 << 10
)

// minRateWriter aborts a response whose client reads too slowly. Only blocked
// writes count: a client may block for writeTimeout in total, and regains time
// at minThroughput for each byte that it reads.
type minRateWriter struct {
	w      io.Writer
	extend func(time.Duration) error
	left   time.Duration
}

// newMinRateWriter returns a writer to w. It calls extend before each write,
// with the time that the write may take.
func newMinRateWriter(w io.Writer, extend func(time.Duration) error) *minRateWriter {
	return &minRateWriter{w, extend, writeTimeout}
}

// Write implements io.Writer.
func (p *minRateWriter) Write(b []byte) (int, error) {
	if err := p.extend(p.left); err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := p.w.Write(b)
	earned := time.Duration(n) * time.Second / minThroughput
	p.left = min(p.left-time.Since(began)+earned, writeTimeout)
	return n, err
}
