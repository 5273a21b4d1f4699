package limit

import "time"

// Whoever asks again as soon as it is refused would be refused as fast as
// processors can do it, at the expense of everybody else. So each token,
// account and address has this many refusals at once; further ones are held
// back, so that no more are written than that, but none for longer than
// longestHold.
var refusals = Policy{Quota: 100, Window: time.Second}

const longestHold = time.Second

// paced is when all refusals of somebody could be had at once again, since the
// limiter's start.
type paced time.Duration

// hold counts a refusal, and returns how long to keep it back.
func (p *paced) hold(now time.Duration) time.Duration {
	wait := refusals.wait(time.Duration(*p) - now)
	if wait > longestHold {
		return longestHold // those that are held back so long do not make it longer
	}
	*p = paced(max(time.Duration(*p), now) + refusals.interval())
	return wait
}
