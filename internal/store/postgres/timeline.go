package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lib/pq/pqerror"
)

// errObsolete means that a server accepts writes although another one was
// promoted after it. It may be a primary that was suspended and is about to
// notice that it no longer is the primary: its reads are stale and its writes
// will be lost.
var errObsolete = errors.New("another server was promoted after this one")

// obsoleteFor is how long a server is rejected after the last use of a newer
// timeline. It is limited because restoring a whole cluster from a snapshot also
// restores its timeline.
const obsoleteFor = time.Minute

// timelines is the newest timeline of PostgreSQL among the sessions of a pool.
// Every promotion starts a new timeline, with a higher number.
type timelines struct {
	newest atomic.Int64
	usedAt atomic.Int64 // in Unix nanoseconds
}

// isObsolete reports whether a newer timeline was used within obsoleteFor.
// Otherwise it records the use of this one.
func (l *timelines) isObsolete(timeline int64, now time.Time) bool {
	if timeline == 0 {
		return false
	}
	newest := l.newest.Load()
	if timeline < newest && now.UnixNano()-l.usedAt.Load() < obsoleteFor.Nanoseconds() {
		return true
	}
	if timeline != newest {
		l.newest.CompareAndSwap(newest, timeline)
	}
	l.usedAt.Store(now.UnixNano())
	return false
}

// readTimeline returns the timeline of the session's server. It is 0 in a
// standby, and if the role may not read it.
func (s *session) readTimeline(ctx context.Context) (int64, error) {
	found, err := s.QueryContext(ctx,
		"SELECT CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END", nil)
	switch c := code(err); {
	case c.Class() == pqerror.ClassSyntaxErrorOrAccessRuleViolation,
		c == pqerror.ObjectNotInPrerequisiteState: // it was demoted during the statement
		return 0, nil
	case err != nil:
		return 0, err
	}
	defer func() { _ = found.Close() }()
	values := make([]driver.Value, 1)
	if err := found.Next(values); err != nil {
		return 0, err
	}
	if values[0] == nil {
		return 0, nil
	}
	return strconv.ParseInt(fmt.Sprintf("%s", values[0]), 16, 64)
}
