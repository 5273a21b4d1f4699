package webhook

import "time"

// At gives a poster another clock.
func (p *Poster) At(now func() time.Time) *Poster {
	p.now = now
	return p
}
