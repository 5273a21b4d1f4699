package settle

import "time"

// Pace limits how fast addresses are made.
type Pace struct{ pace }

// NewPace returns a limit of addresses per second, with a burst.
func NewPace(perSecond float64, burst int) Pace { return Pace{pace{perSecond, burst}} }

// Allows is allows.
func (p Pace) Allows(until, now time.Time) int { return p.allows(until, now) }

// Spent is spent.
func (p Pace) Spent(now time.Time) time.Time { return p.spent(now) }

// After is after.
func (p Pace) After(until, now time.Time, n int) time.Time { return p.after(until, now, n) }

// Since is since.
func (p Pace) Since(until, then, now time.Time) int64 { return p.since(until, then, now) }

// Proves is proves.
func (b Beacon) Proves(pool Pool, l Lease, pause time.Duration) bool {
	return b.provesContinuity(pool, l, pause)
}
