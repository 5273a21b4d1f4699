package limit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of a policy. Windows are whole seconds because the headers are.
const (
	maxQuota  = 1_000_000
	maxWindow = 24 * time.Hour
)

// Policy admits Quota requests per Window: a burst of Quota, then one request per
// Window/Quota. The zero value is no limit.
type Policy struct {
	Quota  int64
	Window time.Duration
}

// On reports whether there is a limit.
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

// interval is how long a bucket takes to refill one token.
func (p Policy) interval() time.Duration { return p.Window / time.Duration(p.Quota) }

// size is how long an empty bucket takes to refill: the window, but for rounding.
func (p Policy) size() time.Duration { return p.interval() * time.Duration(p.Quota) }
