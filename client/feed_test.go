package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// eventOf is a response with one event of a card.
func eventOf(id uuid.UUID, seq int) step {
	return answer(200,
		fmt.Sprintf(
			`[{"id":"019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11","type":"payment.detected","timestamp":"2026-11-20T15:06:00Z","seq":%d,"card_uuid":%q}]`, seq, id))
}

// slowly delays a step by d, or until the request's context ends.
func slowly(d time.Duration, do step) step {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return do(r)
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// generatedAfter is a card that is generated d after the first request for it.
func generatedAfter(d time.Duration) step {
	var start time.Time
	return func(r *http.Request) (*http.Response, error) {
		if start.IsZero() {
			start = time.Now()
		}
		if time.Since(start) < d {
			return card(CardStatusAwaitingPayment, PaymentStateUnpaid)(r)
		}
		return card(CardStatusGenerated, PaymentStatePaid)(r)
	}
}

// Measures, for several kinds of feeds, how soon a card that is generated after
// ten minutes is noticed, and after how many requests.
func TestWaitForCard_SleepsOnTheFeed(t *testing.T) {
	const after = 10 * time.Minute
	for name, tc := range map[string]struct {
		feed         func(n int) step // for the nth request
		late         time.Duration    // maximum delay
		asked, waits int              // maximum number of reads and of waits
	}{
		"an event wakes it": {func(n int) step {
			switch {
			case n == 1:
				return eventOf(testID, 3) // an earlier event
			case n <= 20:
				return slowly(30*time.Second, answer(200, "[]"))
			}
			return slowly(30*time.Second, eventOf(testID, 4))
		}, 0, 22, 21},
		"nothing is said of it": {func(int) step {
			return slowly(30*time.Second, answer(200, "[]"))
		}, 30 * time.Second, 22, 21},
		"wait is not known":    {func(int) step { return answer(200, "[]") }, 15 * time.Second, 90, 3},
		"neither is card":      {func(int) step { return eventOf(hookID, 5) }, 15 * time.Second, 90, 1},
		"the same event again": {func(int) step { return eventOf(testID, 5) }, 15 * time.Second, 90, 4},
		"unknown parameter": {func(int) step {
			return problem(422, ProblemCodeInvalidRequest)
		}, 15 * time.Second, 90, 1},
		"no scope":          {func(int) step { return problem(403, "insufficient_scope") }, 15 * time.Second, 90, 1},
		"no such operation": {func(int) step { return problem(404, ProblemCodeNotFound) }, 15 * time.Second, 90, 1},
		"not a list":        {func(int) step { return answer(200, "{}") }, 15 * time.Second, 90, 1},
		"broken off":        {func(int) step { return slowly(29*time.Second, reset) }, 15 * time.Second, 90, 3},
		"a proxy gives up": {func(int) step {
			return slowly(20*time.Second, answer(504, "", "Content-Type", "text/html"))
		}, 15 * time.Second, 90, 3},
		"never answered": {func(int) step { return hang }, 15 * time.Second, 90, 3},
		"too many wait, for a bit": {func(int) step {
			return problem(429, ProblemCodeQuotaExceeded, "Retry-After", "5")
		}, 20 * time.Second, 90, 90},
		"too many wait, for long": {func(int) step {
			return problem(429, ProblemCodeQuotaExceeded, "Retry-After", "86400")
		}, 30 * time.Second, 25, 25},
		"restarts": {func(n int) step {
			return slowly(time.Duration(n%2)*30*time.Second, answer(200, "[]"))
		}, 30 * time.Second, 60, 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := 0
				c, s := scripted(t, []step{generatedAfter(after)})
				s.feed = func(r *http.Request) (*http.Response, error) {
					if got := r.URL.Path + " " + r.URL.Query().Get("card") + " " + r.URL.Query().Get("wait"); got != "/api/events "+
						testID.String()+" 30" {
						t.Error(got)
					}
					waits++
					return tc.feed(waits)(r)
				}
				start := time.Now()
				var res Response
				got, err := c.WaitForCard(t.Context(), testID, WithResponse(&res))
				if err != nil || got.Status != CardStatusGenerated || res.Status != 200 {
					t.Fatalf("%+v, %v, %+v", got, err, res)
				}
				if late := time.Since(start) - after; late > tc.late || len(s.seen) > tc.asked || waits > tc.waits {
					t.Errorf("%v late; %d reads of the card, %d waits for events", late, len(s.seen), waits)
				}
			})
		})
	}
}

func TestWaitForCard_EndsWhileItSleepsOnTheFeed(t *testing.T) {
	for name, wait := range map[string]func(context.Context, *Client) (*Card, error){
		"by its context": func(ctx context.Context, c *Client) (*Card, error) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
			defer cancel()
			return c.WaitForCard(ctx, testID)
		},
		"by an option": func(ctx context.Context, c *Client) (*Card, error) {
			return c.WaitForCard(ctx, testID, WithTimeout(50*time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, []step{card(CardStatusAwaitingPayment, PaymentStateConfirming)})
				s.feed = slowly(30*time.Second, answer(200, "[]"))
				start := time.Now()
				got, err := wait(t.Context(), c)
				if !errors.Is(err, context.DeadlineExceeded) || got == nil || time.Since(start) != 50*time.Second {
					t.Errorf("%+v, %v after %v", got, err, time.Since(start))
				}
			})
		})
	}
}

// Each request to the feed asks for events after the previous response.
func TestWaitForCard_AsksForNewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var after []string
		c, s := scripted(t, []step{generatedAfter(time.Minute)})
		s.feed = func(r *http.Request) (*http.Response, error) {
			after = append(after, r.URL.Query().Get("after"))
			return slowly(25*time.Second, eventOf(testID, 10*len(after)))(r)
		}
		if _, err := c.WaitForCard(t.Context(), testID); err != nil {
			t.Fatal(err)
		}
		if diff := difference([]string{"0", "10", "20"}, after); diff != "" {
			t.Error(diff)
		}
	})
}
