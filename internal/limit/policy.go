package limit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of a policy. Windows are whole seconds, because headers name them in
// seconds.
const (
	maxQuota  = 1_000_000
	maxWindow = 24 * time.Hour
)

// Policy lets Quota requests pass in each Window: as many at once, and after
// that one in each Quota-th part of the window. The zero value limits nothing.
type Policy struct {
	Quota  int64
	Window time.Duration
}

// On reports whether the policy limits anything.
func (p Policy) On() bool { return p.Quota > 0 }

// String returns the policy in the form that UnmarshalText reads.
func (p Policy) String() string {
	if !p.On() {
		return "off"
	}
	window := p.Window.String()
	for _, rest := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(window, rest) {
			window = window[:len(window)-2]
		}
	}
	return fmt.Sprintf("%d/%s", p.Quota, window)
}

// UnmarshalText implements encoding.TextUnmarshaler. It reads "100/s",
// "600/min", "1000/h", "1000/10s", and "off" or "0" for no limit.
func (p *Policy) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "off" || s == "0" {
		*p = Policy{}
		return nil
	}
	number, per, _ := strings.Cut(s, "/")
	quota, err := strconv.ParseInt(number, 10, 64)
	window := map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour}[per]
	if window == 0 && err == nil {
		window, err = time.ParseDuration(per)
	}
	if err != nil || quota < 1 || quota > maxQuota || window < time.Second || window > maxWindow ||
		window%time.Second != 0 {
		return fmt.Errorf(
			"%q is not a limit such as 100/s, 600/min or 1000/10s, nor off; at most %d requests, in 1 second to 24 hours", s,
			maxQuota)
	}
	*p = Policy{Quota: quota, Window: window}
	return nil
}

// interval is how long it takes to refill one request.
func (p Policy) interval() time.Duration { return p.Window / time.Duration(p.Quota) }

// size is how long it takes to refill a bucket: the window, but for rounding.
func (p Policy) size() time.Duration { return p.interval() * time.Duration(p.Quota) }

// wait returns how long a bucket refuses requests that is full again after
// missing. 0 means that it admits one.
func (p Policy) wait(missing time.Duration) time.Duration {
	return max(0, max(0, missing)+p.interval()-p.size())
}

// remaining returns how many requests such a bucket admits at once.
func (p Policy) remaining(missing time.Duration) int64 {
	return int64(max(0, p.size()-max(0, missing)) / p.interval())
}

// reset returns when such a bucket admits more.
func (p Policy) reset(missing time.Duration) time.Duration {
	if missing <= 0 {
		return 0
	}
	if wait := p.wait(missing); wait > 0 {
		return wait
	}
	return (missing-1)%p.interval() + 1
}
