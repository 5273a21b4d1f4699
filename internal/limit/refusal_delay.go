package limit

import "time"

// Whoever asks again as soon as it is refused would be refused as fast as
// processors can do it, at the expense of everybody else. So each token,
// account and address has this many refusals at once; further ones are held
// back, so that no more are written than that, but none for longer than
// maxDelay.
var refusalRate = Policy{Quota: 100, Window: time.Second}

const maxDelay = time.Second

// refusalDelay is when all refusals of somebody could be had at once again, since the
// limiter's start.
type refusalDelay time.Duration

// next counts a refusal, and returns how long to keep it back.
func (d *refusalDelay) next(now time.Duration) time.Duration {
	wait := refusalRate.wait(time.Duration(*d) - now)
	if wait > maxDelay {
		return maxDelay // those that are held back so long do not make it longer
	}
	*d = refusalDelay(max(time.Duration(*d), now) + refusalRate.interval())
	return wait
}
