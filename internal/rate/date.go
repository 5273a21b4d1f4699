package rate

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// serverDate remembers the time by a server's clock. It is safe for concurrent
// use.
type serverDate struct {
	mu    sync.Mutex
	ahead time.Duration
	at    time.Time // zero if it is not known
}

// note reads the Date of a response that a server or a cache sent between two
// times of this machine's clock. A cache keeps the Date of the original
// response, and adds its Age.
func (d *serverDate) note(header http.Header, began, ended time.Time) {
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

// dated is a source that knows the time by its server's clock.
type dated interface {
	clockAhead() (ahead time.Duration, at time.Time)
}

func (s site) clockAhead() (ahead time.Duration, at time.Time) {
	s.date.mu.Lock()
	defer s.date.mu.Unlock()
	return s.date.ahead, s.date.at
}

// ClocksAhead returns by how much this machine's clock is ahead of each
// source's, if the source responded within the last d.
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
