package limit

import "time"

// bucket is a token bucket, stored as the time since the limiter's start when
// it is full again (GCRA). golang.org/x/time/rate can't replace it: it counts
// in floating point, so Retry-After would sometimes be a second too long, and
// it can't check several buckets before it charges any of them.
type bucket time.Duration

// missing returns how long until the bucket is full.
func (b bucket) missing(now time.Duration) time.Duration { return max(0, time.Duration(b)-now) }

// charge takes n tokens, more than there are if need be.
func (b *bucket) charge(p Policy, n int64, now time.Duration) {
	*b = bucket(now + b.missing(now) + time.Duration(n)*p.interval())
}

// wait returns how long until the bucket admits a request; 0 for now.
func (b bucket) wait(p Policy, now time.Duration) time.Duration {
	return max(0, b.missing(now)+p.interval()-p.size())
}

// remaining returns how many requests the bucket admits now.
func (b bucket) remaining(p Policy, now time.Duration) int64 {
	return int64(max(0, p.size()-b.missing(now)) / p.interval())
}

// reset returns how long until the bucket admits more than it does now; 0 if it
// is full.
func (b bucket) reset(p Policy, now time.Duration) time.Duration {
	missing := b.missing(now)
	if missing == 0 {
		return 0
	}
	if wait := b.wait(p, now); wait > 0 {
		return wait
	}
	return (missing-1)%p.interval() + 1
}

// A client that retries immediately would be rejected as fast as the processor
// allows, at the expense of all other clients. Each token, account and address
// therefore gets refusalRate immediate refusals; further ones are delayed to
// that rate, but by no more than maxDelay.
var refusalRate = Policy{Quota: 100, Window: time.Second}

const maxDelay = time.Second

// refuse counts a refusal in a bucket of refusalRate, and returns how long to
// delay it.
func (b *bucket) refuse(now time.Duration) time.Duration {
	wait := b.wait(refusalRate, now)
	if wait > maxDelay {
		return maxDelay // these refusals do not prolong the delay
	}
	b.charge(refusalRate, 1, now)
	return wait
}
