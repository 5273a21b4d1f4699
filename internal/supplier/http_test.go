package supplier_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

const canary = "4242424242424242"

var quiet = log.New(io.Discard, "", 0)

var asked = issue.Request{Key: vectorKey, USD: 150_50}

// connect returns the adapter for a supplier at url.
func connect(t testing.TB, url string, change ...func(*supplier.HTTPConfig)) *supplier.HTTP {
	t.Helper()
	cfg := supplier.HTTPConfig{Name: "acme", URL: url, Secret: secret, Insecure: true, Now: func() time.Time {
		return vectorTime
	}}
	for _, f := range change {
		f(&cfg)
	}
	s, err := supplier.NewHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// start starts a supplier with the test's handler.
func start(t testing.TB, answers http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(answers)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// says returns a handler that responds with status 200 and JSON.
func says(body string) http.HandlerFunc { return gives(200, "application/json", body) }

func gives(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// raw returns a handler that writes text to the connection, and closes it.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

const (
	issuedBody = `{"key":"` + vectorKey +
		`","status":"issued","reference":"ord_1","usd_amount":"150.50","currency":"USD","credentials":` + credentials + `}`
	credentials = `{"card_number":"` + canary +
		`","expiration_date":"11/29","security_code":"123","url":"https://cards.example/1","url_password":"p"}`
	pendingBody  = `{"key":"` + vectorKey + `","status":"pending","reference":"ord_1"}`
	declinedBody = `{"key":"` + vectorKey + `","status":"declined","reason":"out_of_stock","temporary":true}`
	unknownBody  = `{"type":"about:blank","title":"Unknown key","status":404,"code":"unknown_key","detail":"` + canary +
		`"}`
	problem = "application/problem+json"
)

// but returns a body with one replacement.
func but(t *testing.T, body, old, new string) http.HandlerFunc {
	t.Helper()
	if !strings.Contains(body, old) {
		t.Fatalf("%s is not in %s", old, body)
	}
	return says(strings.Replace(body, old, new, 1))
}

func TestHTTP_ValidAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		says http.HandlerFunc
		want issue.Answer
	}{
		"issued": {says(issuedBody),
			issue.Answer{Outcome: issue.Issued, Reference: "ord_1", USD: 150_50,
				Credentials: card.Credentials{CardNumber: canary,
					ExpirationDate: "11/29", SecurityCode: "123", URL: "https://cards.example/1", URLPassword: "p"}}},
		"pending": {says(pendingBody), issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"declined": {says(declinedBody),
			issue.Answer{Outcome: issue.Declined, Reason: "out of stock", Temporary: true}},
		"with a type of its own": {gives(200, "application/json; charset=utf-8", pendingBody),
			issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"with fields of the future": {but(t, pendingBody, `"key"`, `"x":[{"a":1,"a":2}],"Key2":null,"key"`),
			issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"a number as reference": {but(t, pendingBody, "ord_1", "no 4242-4242 4242 4242"),
			issue.Answer{Outcome: issue.Pending}},
		"a number within a reference": {but(t, pendingBody, "ord_1", "1234242424242424242"),
			issue.Answer{Outcome: issue.Pending}},
		"a short number": {but(t, pendingBody, "ord_1", "42424242424"+card.LuhnDigit("42424242424")),
			issue.Answer{Outcome: issue.Pending}},
		"a number after another": {but(t, pendingBody, "ord_1", "111111111111/4242424242424242"),
			issue.Answer{Outcome: issue.Pending}},
		"other digits as a reference": {but(t, pendingBody, "ord_1", "111111111111"),
			issue.Answer{Outcome: issue.Pending, Reference: "111111111111"}},
		"as long as it may be": {says(pendingBody + strings.Repeat(" ", 64<<10-len(pendingBody))),
			issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"with spaces and a line break": {says(" " + pendingBody + "\n"),
			issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, start(t, tt.says))
			for _, f := range []call{s.Submit, s.Lookup, s.Cancel} {
				if got, err := f(t.Context(), asked); err != nil || got != tt.want {
					t.Errorf("%s, %q, %d, %v", got.Outcome, got.Reference, got.USD, err)
				}
			}
		})
	}
	for _, reason := range []string{"out_of_stock", "insufficient_funds", "amount_not_available", "limit_reached",
		"compliance", "canceled", "other"} {
		a, err := connect(t, start(t, but(t, declinedBody, "out_of_stock", reason))).Submit(t.Context(), asked)
		if err != nil || a.Outcome != issue.Declined || a.Reason == "" {
			t.Errorf("%s: %+v, %v", reason, a, err)
		}
		if !strings.Contains(document(t), reason) {
			t.Errorf("%s is not in the contract", reason)
		}
	}
	s := connect(t, start(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/offers") { // the adapter reads the key retention
			says(`{"offers":[],"key_retention_seconds":86400}`)(w, r)
			return
		}
		gives(404, problem, unknownBody)(w, r)
	}))
	if a, err := s.Lookup(t.Context(), asked); err != nil || a != (issue.Answer{}) {
		t.Errorf("unknown: %+v, %v", a, err)
	}
}

// hostile returns answers that leave it unclear whether a card was issued, or
// contain a card that must not be sold.
func hostile(t *testing.T) map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{
		"nothing at all": says(""),
		"a body cut off": says(issuedBody[:len(issuedBody)-1]),
		"half a body": raw(
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + issuedBody[:100]),
		"HTML":                     gives(200, "text/html", "<html>"+canary),
		"HTML that says JSON":      says("<html>" + canary),
		"no type":                  gives(200, "", issuedBody),
		"a problem as the answer":  gives(200, problem, declinedBody),
		"an array":                 says("[" + issuedBody + "]"),
		"null":                     says("null"),
		"a number":                 says(canary),
		"two objects":              says(declinedBody + pendingBody),
		"something after it":       says(declinedBody + "x"),
		"a byte order mark":        says("\uFEFF" + declinedBody),
		"invalid UTF-8":            but(t, declinedBody, "out_of_stock", "out_of_stock\xff"),
		"two statuses":             but(t, declinedBody, `"key"`, `"status":"issued","key"`),
		"two statuses, one STATUS": but(t, declinedBody, `"key"`, `"STATUS":"issued","key"`),
		"a status that is Status":  but(t, declinedBody, `"status"`, `"Status"`),
		"no key":                   but(t, declinedBody, `"key"`, `"kei"`),
		"null for a key":           but(t, declinedBody, `"`+vectorKey+`"`, "null"),
		"no status":                but(t, declinedBody, `"status"`, `"state"`),
		"another status":           but(t, declinedBody, `"declined"`, `"refused"`),
		"a status in capitals":     but(t, declinedBody, `"declined"`, `"DECLINED"`),
		"a number as status":       but(t, declinedBody, `"declined"`, "3"),
		"too many fields":          says("{" + strings.Repeat(`"x":1,`, 1)[1:] + manyFields() + declinedBody[1:]),
		"deep nesting": but(t, declinedBody, `"key"`,
			`"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`,"key"`),
		"a decline of another key":   but(t, declinedBody, "1d88", "1d89"),
		"a decline without a reason": but(t, declinedBody, `"reason"`, `"cause"`),
		"a decline for no reason":    but(t, declinedBody, `"out_of_stock"`, `""`),
		"a decline for a new reason": but(t, declinedBody, "out_of_stock", canary),
		"a decline, temporary?":      but(t, declinedBody, `"temporary"`, `"temporarily"`),
		"a decline, temporary: null": but(t, declinedBody, "true", "null"),
		"a decline, temporary: yes":  but(t, declinedBody, "true", `"yes"`),
		"pending, another key":       but(t, pendingBody, "1d88", "1d89"),
		"pending, a key in capitals": but(t, pendingBody, "019aa1c9", "019AA1C9"),
		"pending, no reference":      but(t, pendingBody, `"reference"`, `"ref"`),
		"no credentials":             but(t, issuedBody, `"credentials"`, `"card"`),
		"null for credentials":       but(t, issuedBody, credentials, "null"),
		"a text for credentials":     but(t, issuedBody, credentials, `"`+canary+`"`),
		"no card number":             but(t, issuedBody, `"card_number"`, `"number"`),
		"a number as a number":       but(t, issuedBody, `"`+canary+`"`, canary),
		"two card numbers":           but(t, issuedBody, `"card_number"`, `"card_number":"5105105105105100","card_number"`),
		"two kinds of credentials":   but(t, issuedBody, `"credentials"`, `"Credentials":{},"credentials"`),
		"no security code":           but(t, issuedBody, `"security_code"`, `"cvv"`),
		"null for a password":        but(t, issuedBody, `"p"`, "null"),
		"no reference":               but(t, issuedBody, `"reference"`, `"ref"`),
		"no amount":                  but(t, issuedBody, `"usd_amount"`, `"amount"`),
		"null for an amount":         but(t, issuedBody, `"150.50"`, "null"),
		"an amount that is a number": but(t, issuedBody, `"150.50"`, "150.50"),
		"an amount of zero":          but(t, issuedBody, "150.50", "0"),
		"an amount of 0.00":          but(t, issuedBody, "150.50", "0.00"),
		"no text for an amount":      but(t, issuedBody, "150.50", ""),
		"a negative amount":          but(t, issuedBody, "150.50", "-150.50"),
		"an amount with exponent":    but(t, issuedBody, "150.50", "1505e-1"),
		"an amount of half a cent":   but(t, issuedBody, "150.50", "150.505"),
		"an amount beyond all":       but(t, issuedBody, "150.50", "99999999999999999999"),
		"another amount":             but(t, issuedBody, "150.50", "150.51"),
		"another currency":           but(t, issuedBody, `"USD"`, `"EUR"`),
		"a currency in small":        but(t, issuedBody, `"USD"`, `"usd"`),
		"no currency":                but(t, issuedBody, `"currency"`, `"money"`),
		"another key's card":         but(t, issuedBody, "1d88", "1d89"),
		"a wrong check digit":        but(t, issuedBody, canary, "4242424242424241"),
		"an expired card":            but(t, issuedBody, "11/29", "10/26"),
		"a month that is none":       but(t, issuedBody, "11/29", "13/29"),
		"a code of two digits":       but(t, issuedBody, `"123"`, `"12"`),
		"a page that is not https":   but(t, issuedBody, "https:", "http:"),
		"compressed":                 gives(200, "application/json", "\x1f\x8b\x08\x00\x00", "Content-Encoding", "gzip"),
		"one gigabyte":               endless,
		"more than 64 KiB":           says(declinedBody + strings.Repeat(" ", 70<<10)),
		"a header without end":       gives(200, "application/json", issuedBody, "X", strings.Repeat("x", 100<<10)),
		"not HTTP":                   raw(canary + "\r\n\r\n"),
		"a status that is none":      raw("HTTP/1.1 " + canary + " OK\r\n\r\n"),
		"cut before the answer":      raw(""),
		"another protocol": raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" +
			declinedBody),
		"404 of a proxy":           gives(404, "text/html", canary),
		"404 as JSON":              gives(404, "application/json", unknownBody),
		"404 with another code":    gives(404, problem, strings.Replace(unknownBody, "unknown_key", "not_found", 1)),
		"404 with two codes":       gives(404, problem, strings.Replace(unknownBody, `"code"`, `"code":"x","code"`, 1)),
		"404 cut off":              gives(404, problem, unknownBody[:len(unknownBody)-1]),
		"404 with nothing":         gives(404, problem, ""),
		"429, not saying when":     gives(429, problem, declinedBody),
		"503, not saying when":     gives(503, problem, declinedBody),
		"503, saying soon":         gives(503, problem, "", "Retry-After", "soon"),
		"503, saying a date":       gives(503, problem, "", "Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"),
		"503, saying a minute ago": gives(503, problem, "", "Retry-After", "-60"),
		"503, saying never":        gives(503, problem, "", "Retry-After", "9999999999"),
		"500, saying when":         gives(500, problem, "", "Retry-After", "1"),
	}
	for _, status := range []int{201, 202, 203, 204, 206, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402, 403,
		405, 408, 409, 410, 422, 451, 500, 502, 504, 599} {
		all[fmt.Sprintf("a decline with status %d", status)] = gives(status, "application/json", declinedBody)
	}
	return all
}

func manyFields() string {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `"f%d":1,`, i)
	}
	return b.String()
}

func endless(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	chunk := bytes.Repeat([]byte(" "), 1<<20)
	for range 1 << 10 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// An answer outside of the contract is neither a card nor a decline, which
// would cause a refund.
func TestHTTP_HostileAnswers_AreErrors(t *testing.T) {
	n := 0
	for name, answers := range hostile(t) {
		n++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, start(t, answers))
			for what, f := range map[string]call{"submit": s.Submit, "look up": s.Lookup, "cancel": s.Cancel} {
				a, err := f(t.Context(), asked)
				// not specified
				delivered := err == nil && a.Outcome == issue.Issued && a.Flaw == "" && (a.USD == 0 || a.USD == asked.USD) &&
					a.Credentials.Flaw(vectorTime) == ""
				switch {
				case err != nil && a != (issue.Answer{}):
					t.Errorf("%s: an answer with the error", what)
				case err == nil && a.Outcome != issue.Issued, delivered:
					t.Errorf("%s: %s %+v", what, a.Outcome, a)
				}
				wantHarmless(t, err, a.Flaw, a.Reference)
				var busy *issue.BusyError
				if errors.As(err, &busy) {
					t.Errorf("%s: reported as not accepted", what)
				}
			}
			if offers, err := s.Offers(t.Context()); err == nil {
				t.Errorf("offers: %v", offers)
			}
		})
	}
	if n < 100 {
		t.Errorf("only %d answers", n)
	}
}

// wantHarmless checks that no text contains a possible card number or secret.
func wantHarmless(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err != nil {
		texts = append(texts, err.Error(), fmt.Sprintf("%+v %#v", err, err))
	}
	for _, text := range texts {
		if regexp.MustCompile(`\d([ -]?\d){11,}`).MatchString(text) || strings.Contains(text, secret.Reveal()[6:]) ||
			strings.Contains(text, "whsec_") {
			t.Errorf("contains a secret: %s", text)
		}
	}
}

// Errors let an operator distinguish a failing supplier from a wrong URL.
func TestHTTP_Errors_NameTheAnswer(t *testing.T) {
	for want, answers := range map[string]http.HandlerFunc{
		"HTTP status 200 with a content type that is not in the contract": gives(200, "text/html", pendingBody),
		"HTTP status 404": gives(404, "text/html", "<p>not found"),
		"HTTP status 500": gives(500, problem, unknownBody),
	} {
		if _, err := connect(t, start(t, answers)).Submit(t.Context(), asked); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestHTTP_KeyLength(t *testing.T) {
	s := connect(t, start(t, func(w http.ResponseWriter, r *http.Request) {
		says(strings.Replace(pendingBody, vectorKey, path.Base(r.URL.Path), 1))(w, r)
	}))
	for name, tt := range map[string]struct {
		r    issue.Request
		good bool
	}{
		"64 letters":                     {issue.Request{Key: strings.Repeat("k", 64)}, true},
		"65 letters":                     {issue.Request{Key: strings.Repeat("k", 65)}, false},
		"64 with the declines":           {issue.Request{Key: strings.Repeat("k", 62), Declines: 9}, true},
		"65 with the declines":           {issue.Request{Key: strings.Repeat("k", 62), Declines: 10}, false},
		"what is no path's end":          {issue.Request{Key: "../x"}, false},
		"declines of its own are no key": {issue.Request{Key: "k.1"}, false},
	} {
		if _, err := s.Lookup(t.Context(), tt.r); (err == nil) != tt.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHTTP_UnknownKey_OnlyAfterLookup(t *testing.T) {
	s := connect(t, start(t, gives(404, problem, unknownBody)))
	for _, f := range []call{s.Submit, s.Cancel} {
		if a, err := f(t.Context(), asked); err == nil {
			t.Errorf("%s", a.Outcome)
		}
	}
}

func TestHTTP_Busy_MeansNotAccepted(t *testing.T) {
	for _, status := range []int{429, 503} {
		for after, want := range map[string]time.Duration{"0": 0, "1": time.Second, "999999999": 999999999 * time.Second} {
			s := connect(t, start(t, gives(status, problem, canary, "Retry-After", after)))
			for _, f := range []call{s.Submit, s.Lookup, s.Cancel} {
				var busy *issue.BusyError
				if _, err := f(t.Context(), asked); !errors.As(err, &busy) || busy.After != want {
					t.Errorf("%d %s: %v, want %s", status, after, err, want)
				}
			}
			var busy *issue.BusyError
			if _, err := s.Offers(t.Context()); !errors.As(err, &busy) || busy.After != want {
				t.Errorf("%d %s: %v", status, after, err)
			}
		}
	}
}

// sent is a received request.
type sent struct{ Method, Target, Body, ContentType string }

func TestHTTP_Requests_AreSignedAndValid(t *testing.T) {
	var got []sent
	verifier := secrets(t, otherSecret)
	url := start(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.VerifyRequest(r.Method, r.RequestURI, r.Header, body, vectorTime); err != nil {
			t.Error(err)
		}
		got = append(got, sent{r.Method, r.RequestURI, string(body), r.Header.Get("Content-Type")})
		gives(404, problem, unknownBody)(w, r)
	})
	s := connect(t, url+"/v1/", func(c *supplier.HTTPConfig) {
		c.PreviousSecret, c.ValidFor = otherSecret, 700*24*time.Hour
	})
	again := asked
	again.Declines = 2
	_, _ = s.Submit(t.Context(), asked)
	_, _ = s.Submit(t.Context(), again)
	_, _ = s.Lookup(t.Context(), again)
	_, _ = s.Cancel(t.Context(), asked)
	_, _ = s.Offers(t.Context())
	_, _ = connect(t, url, func(c *supplier.HTTPConfig) { c.Secret = otherSecret }).Submit(t.Context(), asked)
	const body = `{"currency":"USD","mode":"live","usd_amount":"150.50","valid_until":"2028-10"}`
	if diff := gocmp.Diff([]sent{
		{"PUT", "/v1/cards/" + vectorKey, body, "application/json"},
		{"PUT", "/v1/cards/" + vectorKey + ".2", body, "application/json"},
		{"GET", "/v1/cards/" + vectorKey + ".2", "", ""},
		{"GET", "/v1/offers", "", ""}, // reads the key retention
		{"POST", "/v1/cards/" + vectorKey + "/cancel", "", ""},
		{"GET", "/v1/offers", "", ""},
		{"PUT", "/cards/" + vectorKey, `{"currency":"USD","mode":"live","usd_amount":"150.50"}`, "application/json"},
	}, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	for _, key := range []string{"", ".", "..", "a/b", "a.1", "a?b", "ä", strings.Repeat("k", 65)} {
		if _, err := s.Submit(t.Context(), issue.Request{Key: key, USD: 1}); err == nil || len(got) > 0 {
			t.Errorf("%q was sent", key)
		}
	}
}
