package server

import (
	"io"
	"time"
)

const (
	// minThroughput is what a client must read of a list without pages, in
	// bytes per second, on average over writeTimeout. It is less than EDGE has.
	minThroughput = 16 << 10
	listBuffer    = 32 << 10
)

// minRateWriter cuts off a client that reads too slowly. Only the time that
// writes block counts: a client may block for writeTimeout in all, and what
// it reads earns time back at minThroughput.
type minRateWriter struct {
	w      io.Writer
	extend func(time.Duration) error
	left   time.Duration
}

// newMinRateWriter returns a writer to w that first calls extend with the time
// that the write may take.
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
