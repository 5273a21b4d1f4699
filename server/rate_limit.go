package server

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/limit"
)

// Header fields of draft-ietf-httpapi-ratelimit-headers-10, in net/http's
// spelling.
const (
	rateLimitField = "Ratelimit"
	policyField    = "Ratelimit-Policy"
)

// limitRequests counts authenticated requests, and refuses requests beyond a
// limit before their body is read. Every response has the state of the limits.
func limitRequests(cfg Config, s *spec, problems problemWriter) gin.HandlerFunc {
	limits := cfg.Limits
	others, create := policies(limits, limit.Token, limit.Account),
		policies(limits, limit.Token, limit.Account, limit.Create)
	return func(c *gin.Context) {
		who, _ := identity(c)
		creates := s.route(c).Operation.OperationID == "createCard"
		decision := limits.Take(who.TokenID, who.AccountID, creates)
		statuses := decision.Statuses()
		if len(statuses) == 0 {
			return
		}
		header := c.Writer.Header()
		if header[policyField] = others; creates {
			header[policyField] = create
		}
		var room [128]byte
		text := room[:0]
		for i, is := range statuses {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = appendStatus(text, is)
		}
		header[rateLimitField] = []string{string(text)}
		if decision.Wait > 0 {
			cfg.Metrics.Limited(decision.Refused.String())
			delayRefusal(c, decision.Delay)
			problems.write(c, tooMany(limits, decision.Refused, decision.Wait))
		}
	}
}

// refuseAddress refuses a request of an address with too many failures to
// authenticate.
func refuseAddress(c *gin.Context, limits *limit.Limiter, wait, delay time.Duration, problems problemWriter) {
	delayRefusal(c, delay)
	header := c.Writer.Header()
	header[policyField] = policies(limits, limit.Address)
	header[rateLimitField] = []string{string(appendStatus(nil, limit.Status{Kind: limit.Address, Reset: wait}))}
	if c.Request.ContentLength != 0 {
		c.Header("Connection", "close") // as after 401: net/http reads no further bytes of an unauthenticated client
	}
	problems.write(c, tooMany(limits, limit.Address, wait))
}

// delayRefusal waits before a refusal is sent, unless the client disconnects or
// the server shuts down.
func delayRefusal(c *gin.Context, delay time.Duration) {
	if delay == 0 {
		return
	}
	start, over := time.Now(), time.NewTimer(delay)
	defer over.Stop()
	ctx := c.Request.Context()
	select {
	case <-over.C:
	case <-ctx.Done():
	case <-shutdown(ctx):
	}
	c.Set(delayedKey, time.Since(start))
}

// worked returns the duration of a request without the wait of delayRefusal.
func worked(c *gin.Context, start time.Time) time.Duration {
	return time.Since(start) - c.GetDuration(delayedKey)
}

// tooMany returns the refusal of a request beyond a limit.
func tooMany(limits *limit.Limiter, kind limit.Kind, wait time.Duration) error {
	p := limits.Policy(kind)
	what := map[limit.Kind]string{
		limit.Token:   "Your token may send %d requests in %d seconds.",
		limit.Account: "Your account may send %d requests in %d seconds.",
		limit.Create:  "Your account may create %d cards in %d seconds.",
		limit.Address: "Your address has sent more than %d requests without a valid token in %d seconds.",
	}[kind]
	err := *card.ErrRateLimited
	err.Message = fmt.Sprintf(what+` Try again when the time in "Retry-After" is over.`, p.Quota,
		int64(p.Window.Seconds()))
	err.RetryAfter = wait
	return &err
}

// policies returns the value of RateLimit-Policy for the limits that are on.
func policies(limits *limit.Limiter, kinds ...limit.Kind) []string {
	text := ""
	for _, kind := range kinds {
		if p := limits.Policy(kind); p.On() {
			text = listed(text, fmt.Sprintf("%q;q=%d;w=%d", kind, p.Quota, int64(p.Window.Seconds())))
		}
	}
	return []string{text}
}

// appendStatus appends the status of a limit to the value of RateLimit.
func appendStatus(text []byte, is limit.Status) []byte {
	text = append(text, '"')
	text = append(text, is.Kind.String()...)
	text = append(text, `";r=`...)
	text = strconv.AppendInt(text, is.Remaining, 10)
	text = append(text, ";t="...)
	return strconv.AppendInt(text, seconds(is.Reset), 10)
}

// seconds returns a duration in whole seconds, rounded up, and at least 1.
func seconds(d time.Duration) int64 { return max(1, int64(math.Ceil(d.Seconds()))) }

// addQuota adds an exceeded quota before the limits of all requests.
func addQuota(header http.Header, q *card.Quota) {
	header.Set(policyField, listed(fmt.Sprintf("%q;q=%d", q.Name, q.Limit), header.Get(policyField)))
	header.Set(rateLimitField, listed(fmt.Sprintf("%q;r=%d", q.Name, q.Left), header.Get(rateLimitField)))
}

// listed joins two lists of structured fields (RFC 9651). Either may be empty.
func listed(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}
