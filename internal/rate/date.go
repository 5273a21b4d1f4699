package rate

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// serverDate compares this machine's clock with a server's. It is safe for
// concurrent use.
type serverDate struct {
	mu    sync.Mutex
	ahead time.Duration
	at    time.Time // zero if unknown
}

// record reads the Date of a response that a server or a cache sent between two
// times of this machine's clock. A cache keeps the Date of the original
// response, and adds its Age.
func (d *serverDate) record(header http.Header, began, ended time.Time) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	if age := header.Get("Age"); age != "" {
		seconds, err := strconv.ParseUint(age, 10, 31)
		if err != nil {
			return
		}
		date = date.Add(time.Duration(seconds) * time.Second)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead, d.at = began.Add(ended.Sub(began)/2).Sub(date), ended
}

// dated is a source that compares clocks.
type dated interface {
	clockAhead() (ahead time.Duration, at time.Time)
}

func (s site) clockAhead() (ahead time.Duration, at time.Time) {
	s.date.mu.Lock()
	defer s.date.mu.Unlock()
	return s.date.ahead, s.date.at
}

// ClocksAhead returns how far this machine's clock is ahead of each source's.
// It omits sources that have not responded within d.
func (l *Live) ClocksAhead(d time.Duration) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, source := range l.sources {
		s, ok := source.(dated)
		if !ok {
			continue
		}
		if ahead, at := s.clockAhead(); !at.IsZero() && time.Since(at) <= d {
			all[source.Name()] = ahead
		}
	}
	return all
}
