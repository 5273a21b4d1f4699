package supplier_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

var november = time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)

// sandbox returns a sandbox whose clock only the test moves.
func sandbox(b supplier.Behavior) (s *supplier.Sandbox, now *time.Time) {
	at := november
	return supplier.NewSandbox("sandbox", b, func() time.Time { return at }), &at
}

// call submits a request, or looks it up.
type call func(context.Context, issue.Request) (issue.Answer, error)

// want calls f, and compares the outcome.
func want(t *testing.T, f call, r issue.Request, outcome issue.Outcome) issue.Answer {
	t.Helper()
	a, err := f(t.Context(), r)
	if err != nil || a.Outcome != outcome {
		t.Errorf("%s, %v; want %s", a.Outcome, err, outcome)
	}
	if (a.Credentials != card.Credentials{}) != (outcome == issue.Issued) {
		t.Errorf("%s, with credentials: %t", a.Outcome, a.Credentials != card.Credentials{})
	}
	return a
}

func TestSandbox_Cards_AreWellFormedAndNeverReal(t *testing.T) {
	s, _ := sandbox(supplier.Prompt)
	seen := map[string]bool{}
	for range 2000 {
		c := want(t, s.Submit, issue.Request{Key: uuid.NewString(), USD: 50_00}, issue.Issued).Credentials
		number := c.CardNumber.Reveal()
		if !regexp.MustCompile(`^99\d{14}$`).MatchString(number) || card.LuhnDigit(number[:15]) != number[15:] {
			t.Errorf("number %s", number)
		}
		if seen[number] {
			t.Errorf("number %s twice", number)
		}
		seen[number] = true
		if c.ExpirationDate.Reveal() != "11/29" {
			t.Errorf("expires %s", c.ExpirationDate.Reveal())
		}
		if !regexp.MustCompile(`^\d{3}$`).MatchString(c.SecurityCode.Reveal()) {
			t.Errorf("code %s", c.SecurityCode.Reveal())
		}
		if !regexp.MustCompile(`^https://sandbox\.invalid/cards/[a-z2-7]{16}$`).MatchString(c.URL.Reveal()) ||
			len(c.URLPassword) != 16 {
			t.Errorf("url %s", c.URL.Reveal())
		}
	}
}

// A key has the same card in every version, so that an update between two
// attempts does not change it.
func TestSandbox_SameKey_SameCardInEveryVersion(t *testing.T) {
	const key = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	want := card.Credentials{CardNumber: "9975762542954000", ExpirationDate: "11/29", SecurityCode: "633",
		URL: "https://sandbox.invalid/cards/2n4cu6l2vfjng6bo", URLPassword: "etzwxas2vxkvvpbo"}
	for _, b := range []supplier.Behavior{supplier.Prompt, supplier.Slow, supplier.Delayed, supplier.Ambiguous} {
		t.Run(string(b), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := sandbox(b)
				for _, f := range []call{s.Submit, s.Lookup} {
					a, err := f(t.Context(), issue.Request{Key: key, Reference: "sandbox-0", USD: 50_00})
					if err == nil && a.Outcome == issue.Issued && a.Credentials != want {
						c := a.Credentials
						t.Errorf("%s %s %s %s %s", c.CardNumber.Reveal(), c.ExpirationDate.Reveal(), c.SecurityCode.Reveal(),
							c.URL.Reveal(), c.URLPassword.Reveal())
					}
				}
			})
		})
	}
}

func TestSandbox_Prompt(t *testing.T) {
	s, _ := sandbox(supplier.Prompt)
	r := issue.Request{Key: uuid.NewString()}
	if submitted, found := want(t, s.Submit, r, issue.Issued), want(t, s.Lookup, r, issue.Issued); submitted != found {
		t.Error("the lookup returned another card")
	}
	if s.Name() != "sandbox" || s.KeyRetention() != 0 {
		t.Errorf("%s keeps keys for %s", s.Name(), s.KeyRetention())
	}
}

func TestSandbox_Slow_TakesTwoSecondsOrTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := sandbox(supplier.Slow)
		for _, f := range []call{s.Submit, s.Lookup} {
			started := time.Now()
			want(t, f, issue.Request{Key: "k"}, issue.Issued)
			if took := time.Since(started); took != 2*time.Second {
				t.Errorf("took %s", took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := f(ctx, issue.Request{Key: "k"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		}
	})
}

func TestSandbox_Pending_IsIssuedAfterThreeSeconds(t *testing.T) {
	s, now := sandbox(supplier.Delayed)
	r := issue.Request{Key: "k"}
	want(t, s.Lookup, r, issue.Unknown) // without the reference
	r.Reference = want(t, s.Submit, r, issue.Pending).Reference
	for _, tt := range []struct {
		after time.Duration
		want  issue.Outcome
	}{{0, issue.Pending}, {3*time.Second - 1, issue.Pending}, {3 * time.Second, issue.Issued}, {time.Hour, issue.Issued}} {
		*now = november.Add(tt.after)
		other := supplier.NewSandbox("sandbox", supplier.Delayed, func() time.Time { return *now }) // another replica
		if a := want(t, other.Lookup, r, tt.want); a.Reference != r.Reference {
			t.Errorf("reference %q, then %q", r.Reference, a.Reference)
		}
	}
	for _, odd := range []string{"", "sandbox-", "sandbox-x", "1795996740000", "other-1795996740000"} {
		want(t, s.Lookup, issue.Request{Key: "k", Reference: odd}, issue.Unknown)
	}
}

func TestSandbox_Ambiguous_FailsAndIsFound(t *testing.T) {
	s, _ := sandbox(supplier.Ambiguous)
	if a, err := s.Submit(t.Context(), issue.Request{Key: "k"}); err == nil || a != (issue.Answer{}) {
		t.Errorf("%+v, %v", a, err)
	}
	want(t, s.Lookup, issue.Request{Key: "k"}, issue.Issued)
}

func TestSandbox_Declining(t *testing.T) {
	s, _ := sandbox(supplier.Declining)
	for _, f := range []call{s.Submit, s.Lookup} {
		if a := want(t, f, issue.Request{Key: "k"}, issue.Declined); a.Reason == "" {
			t.Error("no reason")
		}
	}
}
