package reference_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

var asked = issue.Request{Key: "k", USD: 100_00}

// submit requests a card, and compares the outcome.
func (s *fixture) submit(r issue.Request, want issue.Outcome) issue.Answer {
	s.t.Helper()
	a, err := s.http.Submit(s.t.Context(), r)
	if err != nil || a.Outcome != want {
		s.t.Errorf("%s, %v, want %s", a.Outcome, err, want)
	}
	return a
}

// lookup looks up a card, and compares the outcome.
func (s *fixture) lookup(r issue.Request, want issue.Outcome) issue.Answer {
	s.t.Helper()
	a, err := s.http.Lookup(s.t.Context(), r)
	if err != nil || a.Outcome != want {
		s.t.Errorf("%s, %v, want %s", a.Outcome, err, want)
	}
	return a
}

// flaw returns why a card must not be issued to a customer, or "".
func flaw(a issue.Answer, now time.Time) string {
	switch {
	case a.Flaw != "":
		return a.Flaw
	case a.USD != asked.USD:
		return "amount"
	}
	return a.Credentials.Flaw(now)
}

func TestServer_SameKey_SameCard(t *testing.T) {
	s := newFixture(t)
	s.lookup(asked, issue.Unknown)
	first := s.submit(asked, issue.Issued)
	if first != s.submit(asked, issue.Issued) || first != s.lookup(asked, issue.Issued) ||
		flaw(first, s.clock.Now()) != "" {
		t.Errorf("another card, or a flawed one: %s", flaw(first, s.clock.Now()))
	}
	if first.Reference != "ref_k_1" { // the first request with this key
		t.Errorf("reference %s", first.Reference)
	}
	if a, err := s.http.Submit(t.Context(), issue.Request{Key: "k", USD: 101_00}); err == nil { // conflict
		t.Errorf("%s", a.Outcome)
	}
	if other := s.submit(issue.Request{Key: "k", USD: 100_00, Declines: 1},
		issue.Issued); other.Credentials == first.Credentials {
		t.Error("another key got the same card")
	}
	s.wantLedger("k", "looked up", "asked", "made", "asked", "looked up", "asked", "made")
}

// Hazard: the same request arrives twice concurrently.
func TestServer_ConcurrentRequests_MakeOneCard(t *testing.T) {
	s := newFixture(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { s.submit(asked, issue.Issued) })
	}
	all.Wait()
	if n := strings.Count(strings.Join(s.ledger("k"), " "), reference.Made); n != 1 {
		t.Errorf("%d cards", n)
	}
}

func TestServer_Behaviors_AreSeenByHTTP(t *testing.T) {
	for how, flawed := range map[string]bool{"wrong-amount": true, "wrong-currency": true, "wrong-key": true,
		"bad-number": true, "expired": true, "slow": false} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t, func(c *reference.Config) { c.Slowness = time.Millisecond })
			s.behave(how + "=2x")
			for _, f := range []func(issue.Request, issue.Outcome) issue.Answer{s.submit, s.lookup} {
				if a := f(asked, issue.Issued); (flaw(a, s.clock.Now()) != "") != flawed {
					t.Errorf("flaw %q", flaw(a, s.clock.Now()))
				}
			}
			if a := s.lookup(asked, issue.Issued); flaw(a, s.clock.Now()) != "" {
				t.Errorf("after that: %q", flaw(a, s.clock.Now()))
			}
		})
	}
	for _, how := range []string{"rate-limited", "maintenance"} {
		s := newFixture(t, func(c *reference.Config) { c.RetryAfter = 7 * time.Second })
		s.behave(how)
		var busy *issue.BusyError
		if _, err := s.http.Submit(t.Context(), asked); !errors.As(err, &busy) || busy.After != 7*time.Second {
			t.Errorf("%s: %v", how, err)
		}
		s.wantLedger("")
	}
}

func TestServer_Ambiguous_MakesCardAndCutsConnection(t *testing.T) {
	s := newFixture(t)
	s.behave("ambiguous=2x")
	for range 2 {
		if a, err := s.http.Submit(t.Context(), asked); err == nil {
			t.Errorf("%s", a.Outcome)
		}
	}
	s.lookup(asked, issue.Issued)
	s.wantLedger("", "asked", "made", "asked", "looked up")
}

func TestServer_Declined_IsFinalForKey(t *testing.T) {
	s := newFixture(t, func(c *reference.Config) {
		c.Offers = []card.Offer{{Min: 50_00, Max: 60_00, Left: 1}, {Min: 100_00, Max: 100_00, Left: card.Unlimited}}
	})
	s.behave("out-of-stock=1x")
	first := s.submit(asked, issue.Declined)
	if again := s.submit(asked, issue.Declined); again != first || !first.Temporary || first.Reason != "out of stock" {
		t.Errorf("%+v, then %+v", first, again)
	}
	s.submit(issue.Request{Key: "k", USD: 100_00, Declines: 1}, issue.Issued)
	s.behave("declining=1x")
	if a := s.submit(issue.Request{Key: "l", USD: 100_00}, issue.Declined); a.Temporary {
		t.Error("temporary")
	}
	if a := s.submit(issue.Request{Key: "m", USD: 99_00}, issue.Declined); a.Temporary ||
		!strings.Contains(a.Reason, "amount") {
		t.Errorf("%+v", a)
	}
	offers := func(left int64) {
		t.Helper()
		got, err := s.http.Offers(t.Context())
		want := []card.Offer{{Min: 50_00, Max: 60_00, Left: left}, {Min: 100_00, Max: 100_00, Left: card.Unlimited}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	offers(1)
	s.submit(issue.Request{Key: "n", USD: 55_00}, issue.Issued)
	offers(0)
	for key, usd := range map[string]card.USD{"o": 50_00, "p": 55_00, "q": 60_00} {
		if a := s.submit(issue.Request{Key: key, USD: usd}, issue.Declined); !a.Temporary {
			t.Errorf("the lack of cards of %s is not temporary", usd)
		}
	}
	s.wantLedger("l", "asked", "declined")
}

func TestServer_Cancel_StopsPending(t *testing.T) {
	s := newFixture(t)
	cancel := func(r issue.Request, want issue.Outcome) {
		t.Helper()
		if a, err := s.http.Cancel(t.Context(), r); err != nil || a.Outcome != want {
			t.Errorf("%s, %v, want %s", a.Outcome, err, want)
		}
	}
	s.behave("pending")
	s.submit(asked, issue.Pending)
	cancel(asked, issue.Declined)
	s.clock.pass(time.Hour)
	s.submit(asked, issue.Declined)
	s.lookup(asked, issue.Declined)
	early := issue.Request{Key: "early", USD: 100_00}
	cancel(early, issue.Declined) // before its request
	s.submit(early, issue.Declined)
	late := issue.Request{Key: "late", USD: 100_00}
	s.submit(late, issue.Pending)
	s.clock.pass(3 * time.Second)
	cancel(late, issue.Issued)
	s.lookup(late, issue.Issued)
	s.wantLedger("k", "asked", "cancel", "asked", "looked up")
	s.wantLedger("early", "cancel", "asked")
	s.wantLedger("late", "asked", "made", "cancel", "looked up")
}

// Hazard: a second card is issued for a key that the supplier has forgotten.
// The ledger shows it.
func TestServer_ForgottenKey_MakesSecondCard(t *testing.T) {
	s := newFixture(t, func(c *reference.Config) { c.ForgetAfter = time.Hour })
	first := s.submit(asked, issue.Issued)
	s.clock.pass(time.Hour - time.Second)
	s.lookup(asked, issue.Issued)
	s.clock.pass(time.Second)
	s.lookup(asked, issue.Unknown)
	if second := s.submit(asked, issue.Issued); second.Credentials.CardNumber == first.Credentials.CardNumber ||
		second != s.lookup(asked, issue.Issued) {
		t.Error("the same card")
	}
	s.wantLedger("k", "asked", "made", "looked up", "forgot", "looked up", "asked", "made", "looked up")
}

func TestServer_PendingCard_SendsCallback(t *testing.T) {
	var mu sync.Mutex
	var woken []string
	var now func() time.Time
	secrets, err := supplier.ParseSecrets(secret)
	check(t, err)
	genuine := supplier.NewCallback(secrets, func(key string) { woken = append(woken, key) }, func() time.Time {
		return now()
	})
	refuse := 1
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refuse--; refuse >= 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		genuine.ServeHTTP(w, r)
	}))
	defer receiver.Close()
	s := newFixture(t, func(c *reference.Config) { c.CallbackURL = receiver.URL + supplier.CallbackPath("acme") })
	now = s.clock.Now
	s.behave("pending=2x")
	s.submit(issue.Request{Key: "k", USD: 100_00, Declines: 3}, issue.Pending)
	s.submit(issue.Request{Key: "l", USD: 100_00}, issue.Pending)
	s.submit(issue.Request{Key: "prompt", USD: 100_00}, issue.Issued)
	tick := func(want ...string) {
		t.Helper()
		check(t, s.server.Tick(t.Context()))
		if diff := cmp.Diff(want, woken); diff != "" {
			t.Error(diff)
		}
	}
	tick()
	s.clock.pass(3 * time.Second)
	tick("l") // the other one is rejected
	tick("l", "k")
	tick("l", "k")
	if log := s.log.text(); strings.Count(log, "callback") != 1 ||
		!strings.Contains(log, `msg="callback refused" key=k.3 status=500`) {
		t.Errorf("log: %s", log)
	}
	s.lookup(issue.Request{Key: "k", USD: 100_00, Declines: 3}, issue.Issued)
}

func TestServer_UnsignedRequest_IsRejected(t *testing.T) {
	s := newFixture(t)
	for name, change := range map[string]func(*supplier.HTTPConfig){
		"another secret": func(c *supplier.HTTPConfig) { c.Secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD" },
		"another time": func(c *supplier.HTTPConfig) {
			c.Now = func() time.Time { return s.clock.Now().Add(-6 * time.Minute) }
		},
	} {
		cfg := supplier.HTTPConfig{Name: "acme", URL: s.url, Secret: secret, Mode: card.TestMode, Insecure: true,
			Now: s.clock.Now}
		change(&cfg)
		other, err := supplier.NewHTTP(cfg)
		check(t, err)
		if a, err := other.Submit(t.Context(), asked); err == nil {
			t.Errorf("%s: %s", name, a.Outcome)
		}
	}
	s.wantLedger("")
}

func TestServer_MalformedRequest_IsRejected(t *testing.T) {
	s := newFixture(t)
	secrets, err := supplier.ParseSecrets(secret)
	check(t, err)
	for _, r := range [][3]string{
		{"PUT", "/cards/k", ""}, {"PUT", "/cards/k", "{}"}, {"PUT", "/cards/k", `{"usd_amount":"1e2","currency":"USD"}`},
		{"PUT", "/cards/k", `{"usd_amount":100,"currency":"USD"}`},
		{"PUT", "/cards/k", `{"usd_amount":"100","currency":"EUR"}`},
		{"PUT", "/cards/k", `{"usd_amount":"100","currency":"USD","valid_until":"2028-13"}`},
		{"PUT", "/cards/%20", `{"usd_amount":"100","currency":"USD"}`}, {"GET", "/cards/%20", ""},
		{"POST", "/cards/" + strings.Repeat("k", 65) + "/cancel", ""},
		{"PUT", "/cards/k", `{"x":"` + strings.Repeat("x", 20<<10) + `"}`},
	} {
		req := httptest.NewRequest(r[0], r[1], strings.NewReader(r[2]))
		req.Header = secrets.SignRequest(r[0], r[1], s.clock.Now(), []byte(r[2]))
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, req)
		if w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.20s %.80s: %d %s", r[0], r[1], r[2], w.Code, w.Body)
		}
	}
	s.wantLedger("")
}

// The server issues no cards to a cardmint in live mode, whether or not it has
// read the offers.
func TestServer_LiveMode_IsRejected(t *testing.T) {
	s := newFixture(t)
	live, err := supplier.NewHTTP(
		supplier.HTTPConfig{Name: "acme", URL: s.url, Secret: secret, Mode: card.LiveMode, Insecure: true, Now: s.clock.Now})
	check(t, err)
	t.Cleanup(live.Close)
	for _, want := range []string{"refuses requests of this mode", "cards are not real"} {
		var busy *issue.BusyError
		if a, err := live.Submit(t.Context(), issue.Request{Key: "k", USD: 100_00}); !errors.As(err, &busy) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s, %v; want %q", a.Outcome, err, want)
		}
		if _, err := live.Offers(t.Context()); err == nil {
			t.Error("its offers are accepted")
		}
	}
	s.wantLedger("")
}

func TestLedger_IsAppendOnly(t *testing.T) {
	s := newFixture(t)
	number := s.submit(asked, issue.Issued).Credentials.CardNumber.Reveal()
	db, err := sql.Open("sqlite", "file:"+s.file)
	check(t, err)
	defer func() { _ = db.Close() }()
	for _, query := range []string{"UPDATE ledger SET key = 'x'", "DELETE FROM ledger",
		"DELETE FROM ledger WHERE id = 2"} {
		if _, err := db.Exec(query); err == nil {
			t.Errorf("%s worked", query)
		}
	}
	all, err := reference.ReadLedger(context.Background(), s.file)
	if err != nil || len(all) != 2 || all[1].Number != "..."+number[12:] || all[1].USD != asked.USD {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestRule_ParseAndString(t *testing.T) {
	for _, text := range []string{"slow", "slow=0.25", "slow=3x", "slow=0", "wrong-key=1x"} {
		if r, err := reference.ParseRule(text); err != nil || r.String() != text {
			t.Errorf("%s: %s, %v", text, r, err)
		}
	}
	if r, err := reference.ParseRule("slow=1"); err != nil || r.String() != "slow" {
		t.Errorf("always: %s, %v", r, err)
	}
	for _, text := range []string{"", "fast", "slow=", "slow=x", "slow=0x", "slow=-1x", "slow=1.5", "slow=-0.1",
		"slow=NaN", "Slow"} {
		if r, err := reference.ParseRule(text); err == nil {
			t.Errorf("%s: %s", text, r)
		}
	}
}

func TestRule_ProbabilityZero_NeverApplies(t *testing.T) {
	s := newFixture(t)
	s.behave("declining=0", "out-of-stock=0")
	s.submit(asked, issue.Issued)
	s.behave("declining=1")
	s.submit(issue.Request{Key: "l", USD: 100_00}, issue.Declined)
}

func TestServer_Slow_TakesTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets, err := supplier.ParseSecrets(secret)
		check(t, err)
		s, err := reference.Open(
			reference.Config{File: filepath.Join(t.TempDir(), "supplier.db"), Secrets: secrets,
				Rules: []reference.Rule{{Behavior: reference.Slow, Probability: 1}}})
		check(t, err)
		defer func() { check(t, s.Close()) }()
		began, r, w := time.Now(), httptest.NewRequest("GET", "/offers", nil), httptest.NewRecorder()
		r.Header = secrets.SignRequest("GET", "/offers", began, nil)
		s.ServeHTTP(w, r)
		if took := time.Since(began); w.Code != 200 || took != 2*time.Second {
			t.Errorf("status %d after %s", w.Code, took)
		}
	})
}

// The same seed causes the same behavior.
func TestServer_SameSeed_SameBehavior(t *testing.T) {
	t.Parallel()
	outcomes := func(seed uint64) (all string) {
		s := newFixture(t, func(c *reference.Config) { c.Seed = seed })
		s.behave("out-of-stock=0.5")
		for i := range 40 {
			a, err := s.http.Submit(t.Context(), issue.Request{Key: strings.Repeat("k", i+1), USD: 100_00})
			check(t, err)
			all += a.Outcome.String()[:1]
		}
		return all
	}
	if one, other := outcomes(1), outcomes(1); one != other || !strings.Contains(one, "i") ||
		!strings.Contains(one, "d") || one == outcomes(2) {
		t.Errorf("%s, then %s", one, other)
	}
}
