package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// errLeftBehind means that a server can be written to, but that another one has
// been promoted since. It may be a leader that was suspended and is about to
// learn that it leads no more: what it has to read is old, and nobody has what
// it writes.
var errLeftBehind = errors.New("another server was promoted after this one")

// leftBehindFor is for how long a server is refused after the last use of one
// that was promoted later. It is limited because a snapshot of a whole cluster
// may be restored, which takes its timeline back.
const leftBehindFor = time.Minute

// timelines is the newest timeline of PostgreSQL that sessions of a pool are
// on. Every promotion begins a new one, with a higher number.
type timelines struct {
	newest atomic.Int64
	used   atomic.Int64 // when it was last, in Unix nanoseconds
}

// leftBehind reports whether a session is on an older timeline than others were
// within the last minute. If not, it is in use now.
func (l *timelines) leftBehind(timeline int64, now time.Time) bool {
	if timeline == 0 {
		return false
	}
	newest := l.newest.Load()
	if timeline < newest && now.UnixNano()-l.used.Load() < leftBehindFor.Nanoseconds() {
		return true
	}
	if timeline != newest {
		l.newest.CompareAndSwap(newest, timeline)
	}
	l.used.Store(now.UnixNano())
	return false
}

// askTimeline asks for the timeline of a session's server: 0 in a standby, and
// where the question is not allowed.
func (s *session) askTimeline(ctx context.Context) (int64, error) {
	rows, err := s.QueryContext(ctx,
		"SELECT CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END", nil)
	var refused *pq.Error
	// it may have been demoted in between
	if errors.As(err, &refused) && (refused.Code.Class() == "42" || refused.Code == wrongState) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	values := make([]driver.Value, 1)
	if err := rows.Next(values); err != nil {
		return 0, err
	}
	if values[0] == nil {
		return 0, nil
	}
	return strconv.ParseInt(fmt.Sprintf("%s", values[0]), 16, 64)
}
