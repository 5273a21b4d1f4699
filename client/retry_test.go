package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

func TestCreateCard_BrokenConnectionSendsSameKey(t *testing.T) {
	for name, broken := range map[string]step{"no answer": reset, "answer cut off": cutOff(201, testCard)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, []step{broken, broken, answer(201, testCard)})
				for range 2 {
					if _, err := c.CreateCard(t.Context(), CreateCardRequest{Currency: "monero"}); err != nil {
						t.Fatal(err)
					}
				}
				key := s.seen[0].Header.Get("Idempotency-Key")
				if len(key) < 22 {
					t.Errorf("the key %q is too short to be unique", key)
				}
				for i, r := range s.seen[1:3] {
					if r.Header.Get("Idempotency-Key") != key || s.bodies[i+1] != s.bodies[0] {
						t.Errorf("attempt %d differs: %v %s", i+2, r.Header, s.bodies[i+1])
					}
				}
				if s.seen[3].Header.Get("Idempotency-Key") == key {
					t.Error("the next call has the same key")
				}
			})
		})
	}
}

func TestCreateCard_UnusableKeyIsNeverReplacedByARandomOne(t *testing.T) {
	for _, key := range []string{"", "order 4711", "order\n4711", "bestellung-ä"} {
		c, s := scripted(t, []step{answer(201, testCard)})
		if _, err := c.CreateCard(t.Context(), CreateCardRequest{}, WithIdempotencyKey(key)); err == nil || len(s.seen) != 0 {
			t.Errorf("%q: %v, %d requests", key, err, len(s.seen))
		}
	}
}

func TestSimulatePayment_AllAttemptsPayOnce(t *testing.T) {
	for name, broken := range map[string]step{
		"no answer": reset, "cut off": cutOff(200, testCard), "hangs": hang, "502": answer(502, ""), "504": answer(504, ""),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, []step{broken, answer(200, testCard)})
				if _, err := c.SimulatePayment(t.Context(), uuid.Nil, SimulatePaymentRequest{}); err != nil || len(s.seen) != 2 {
					t.Fatalf("%v after %d requests", err, len(s.seen))
				}
				if one, other := s.seen[0].Header.Get("Idempotency-Key"), s.seen[1].Header.Get("Idempotency-Key"); one == "" ||
					one != other {
					t.Errorf("the keys are %q and %q", one, other)
				}
			})
		})
	}
}

func TestRetry_OnlyWhereItIsSafeAndUseful(t *testing.T) {
	for status, want := range map[int]struct{ get, create, keyless int }{
		400: {1, 1, 1}, 401: {1, 1, 1}, 404: {1, 1, 1}, 409: {1, 1, 1}, 413: {1, 1, 1}, 422: {1, 1, 1}, 500: {1, 1, 1},
		501: {1, 1, 1},
		302: {1, 1, 1}, 408: {4, 4, 4}, 429: {4, 4, 4}, 503: {4, 4, 1}, 502: {4, 4, 1}, 504: {4, 4, 1},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check := func(name string, want int, do func(*Client) error) {
					c, s := scripted(t, []step{answer(status, "", "Content-Type", "text/plain")})
					err := do(c)
					if e, ok := asType[*Error](err); !ok || e.Status != status {
						t.Errorf("%s: %v", name, err)
					}
					if len(s.seen) != want {
						t.Errorf("%s: %d attempts, want %d", name, len(s.seen), want)
					}
				}
				check("GetCard", want.get, func(c *Client) error {
					_, err := c.GetCard(t.Context(), uuid.Nil)
					return err
				})
				check("CreateCard", want.create, func(c *Client) error {
					_, err := c.CreateCard(t.Context(), CreateCardRequest{})
					return err
				})
				check("POST without a key", want.keyless, func(c *Client) error {
					return c.Do(t.Context(), http.MethodPost, "/api/future", nil, nil)
				})
			})
		})
	}
}

func TestRetry_WaitsAsLongAsTheServiceAsks(t *testing.T) {
	for name, header := range map[string]func() string{
		"seconds": func() string { return "20" },
		"date":    func() string { return time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t,
					[]step{problem(503, ProblemCodeRateUnavailable, "Retry-After", header()), answer(200, testCard)})
				start := time.Now()
				if _, err := c.GetCard(t.Context(), uuid.Nil); err != nil || len(s.seen) != 2 {
					t.Fatal(err, len(s.seen))
				}
				if waited := time.Since(start); waited < 20*time.Second || waited > 20*time.Second+firstBackoff {
					t.Errorf("waited %v", waited)
				}
			})
		})
	}
}

func TestRetry_WaitThatDoesNotFitFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for name, ctx := range map[string]context.Context{"longer than the limit": t.Context(),
			"longer than the deadline": ctx} {
			seconds := map[bool]string{true: "3600", false: "10"}[ctx == t.Context()]
			c, s := scripted(t, []step{problem(429, "", "Retry-After", seconds)})
			start := time.Now()
			_, err := c.GetCard(ctx, uuid.Nil)
			e, ok := asType[*Error](err)
			if !ok || e.RetryAfter.Seconds() < 10 || len(s.seen) != 1 || time.Since(start) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
		}
	})
}

func TestRetry_StopsWhenTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, []step{hang}, WithRetry(1000, time.Minute), WithAttemptTimeout(25*time.Second))
		start := time.Now()
		_, err := c.GetCard(t.Context(), uuid.Nil)
		if err == nil || !strings.Contains(err.Error(), "no answer within 25s") {
			t.Error(err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("looks like the deadline of the caller's context")
		}
		if len(s.seen) != 3 || time.Since(start) > 85*time.Second {
			t.Errorf("%d attempts in %v", len(s.seen), time.Since(start))
		}
	})
}

func TestRetry_AttemptThatHangsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, []step{hang, answer(200, testCard)})
		if _, err := c.GetCard(t.Context(), uuid.Nil); err != nil || len(s.seen) != 2 {
			t.Errorf("%v after %d attempts", err, len(s.seen))
		}
	})
}

func TestRetry_NeverAfterTheContextEnded(t *testing.T) {
	cause := errors.New("shutdown")
	for name, tc := range map[string]struct {
		first step
		want  int
	}{
		"during the wait":     {problem(503, ProblemCodeUnavailable, "Retry-After", "30"), 1},
		"during an attempt":   {hang, 1},
		"before the first":    {answer(200, testCard), 0},
		"with a broken reply": {reset, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				first := tc.first
				switch name {
				case "before the first":
					cancel(cause)
				case "with a broken reply":
					first = func(r *http.Request) (*http.Response, error) { cancel(cause); return reset(r) }
				default:
					time.AfterFunc(time.Second, func() { cancel(cause) })
				}
				c, s := scripted(t, []step{first})
				_, err := c.CreateCard(ctx, CreateCardRequest{})
				if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Errorf("error %v", err)
				}
				if _, ok := asType[*Error](err); ok != (name == "during the wait") {
					t.Errorf("the earlier error is missing or wrong: %v", err)
				}
				if len(s.seen) != tc.want {
					t.Errorf("%d attempts, want %d", len(s.seen), tc.want)
				}
			})
		})
	}
}

func TestRetry_AnswerThatIsNotTheServicesIsNotRepeated(t *testing.T) {
	for name, wrong := range map[string]step{
		"login page": answer(200, "<html>Welcome to the hotel</html>", "Content-Type", "text/html"),
		"no type":    answer(200, testCard, "Content-Type", ""),
		"null":       answer(200, "null"),
		"two values": answer(200, testCard+testCard),
		"cut short":  answer(200, testCard[:100]),
		"nothing":    answer(204, ""),
	} {
		t.Run(name, func(t *testing.T) {
			c, s := scripted(t, []step{wrong})
			card, err := c.GetCard(t.Context(), uuid.Nil)
			if err == nil || card != nil || len(s.seen) != 1 {
				t.Fatalf("%v, %v after %d attempts", card, err, len(s.seen))
			}
			if strings.Contains(err.Error(), "hotel") {
				t.Errorf("the error repeats the body: %v", err)
			}
		})
	}
}

func TestRetry_UntrustedCertificateIsNotRepeated(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	s := &script{steps: []step{http.DefaultTransport.RoundTrip}}
	c, err := New(srv.URL, testToken, WithHTTPClient(&http.Client{Transport: s}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetCard(t.Context(), uuid.Nil); err == nil || len(s.seen) != 1 {
		t.Errorf("%v after %d attempts", err, len(s.seen))
	}
}

func TestRedirect_DoesNotTakeTheTokenAlong(t *testing.T) {
	var visits atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	defer elsewhere.Close()
	srv := httptest.NewServer(
		http.RedirectHandler(elsewhere.URL+"/api/cards?secret=hunter2", http.StatusTemporaryRedirect))
	defer srv.Close()
	follow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	c, err := New(srv.URL, testToken, WithHTTPClient(follow))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateCard(t.Context(), CreateCardRequest{})
	if e, ok := asType[*Error](err); !ok || e.Status != http.StatusTemporaryRedirect ||
		!strings.Contains(e.Detail, elsewhere.URL) {
		t.Error(err)
	}
	if visits.Load() != 0 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%d visits, %v", visits.Load(), err)
	}
}

func TestBackoff_GrowsWithinBounds(t *testing.T) {
	for n, limit := range map[int]time.Duration{1: firstBackoff, 2: 2 * firstBackoff, 3: 4 * firstBackoff,
		10: longestBackoff, 1 << 30: longestBackoff} {
		var longest time.Duration
		for range 1000 {
			d := backoff(n)
			if d < 0 || d > limit {
				t.Fatalf("attempt %d: %v", n, d)
			}
			longest = max(longest, d)
		}
		if longest < limit*9/10 {
			t.Errorf("attempt %d: never waits longer than %v of %v", n, longest, limit)
		}
	}
}
