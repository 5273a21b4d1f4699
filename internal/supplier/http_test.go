package supplier_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
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
	cfg := supplier.HTTPConfig{Name: "acme", URL: url, Secret: secret, Insecure: true, Now: func() time.Time { return vectorTime }}
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

// start starts a supplier that answers what the test says.
func start(t testing.TB, answers http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(answers)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// says returns what answers 200 and JSON.
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

// raw returns what speaks to the connection itself, and closes it.
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
	issuedBody   = `{"key":"` + vectorKey + `","status":"issued","reference":"ord_1","usd_amount":"150.50","currency":"USD","credentials":` + credentials + `}`
	credentials  = `{"card_number":"` + canary + `","expiration_date":"11/29","security_code":"123","url":"https://cards.example/1","url_password":"p"}`
	pendingBody  = `{"key":"` + vectorKey + `","status":"pending","reference":"ord_1"}`
	declinedBody = `{"key":"` + vectorKey + `","status":"declined","reason":"out_of_stock","temporary":true}`
	unknownBody  = `{"type":"about:blank","title":"Unknown key","status":404,"code":"unknown_key","detail":"` + canary + `"}`
	problem      = "application/problem+json"
)

// but returns a body with one thing changed.
func but(t *testing.T, body, old, new string) http.HandlerFunc {
	t.Helper()
	if !strings.Contains(body, old) {
		t.Fatalf("%s is not in %s", old, body)
	}
	return says(strings.Replace(body, old, new, 1))
}

func TestHTTP_AnswersAreReadAsTheContractSays(t *testing.T) {
	for name, tt := range map[string]struct {
		says http.HandlerFunc
		want issue.Answer
	}{
		"issued": {says(issuedBody), issue.Answer{Outcome: issue.Issued, Reference: "ord_1", USD: 150_50, Credentials: card.Credentials{CardNumber: canary,
			ExpirationDate: "11/29", SecurityCode: "123", URL: "https://cards.example/1", URLPassword: "p"}}},
		"pending":                      {says(pendingBody), issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"declined":                     {says(declinedBody), issue.Answer{Outcome: issue.Declined, Reason: "out of stock", Temporary: true}},
		"with a type of its own":       {gives(200, "application/json; charset=utf-8", pendingBody), issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"with fields of the future":    {but(t, pendingBody, `"key"`, `"x":[{"a":1,"a":2}],"Key2":null,"key"`), issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
		"a number as reference":        {but(t, pendingBody, "ord_1", "no 4242-4242 4242 4242"), issue.Answer{Outcome: issue.Pending}},
		"a number within a reference":  {but(t, pendingBody, "ord_1", "1234242424242424242"), issue.Answer{Outcome: issue.Pending}},
		"other digits as a reference":  {but(t, pendingBody, "ord_1", "111111111111"), issue.Answer{Outcome: issue.Pending, Reference: "111111111111"}},
		"with spaces and a line break": {says(" " + pendingBody + "\n"), issue.Answer{Outcome: issue.Pending, Reference: "ord_1"}},
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
	for _, reason := range []string{"out_of_stock", "insufficient_funds", "amount_not_available", "limit_reached", "compliance", "canceled", "other"} {
		a, err := connect(t, start(t, but(t, declinedBody, "out_of_stock", reason))).Submit(t.Context(), asked)
		if err != nil || a.Outcome != issue.Declined || a.Reason == "" {
			t.Errorf("%s: %+v, %v", reason, a, err)
		}
		if !strings.Contains(document(t), reason) {
			t.Errorf("the contract does not have %s", reason)
		}
	}
	s := connect(t, start(t, gives(404, problem, unknownBody)))
	if a, err := s.Lookup(t.Context(), asked); err != nil || a != (issue.Answer{}) {
		t.Errorf("unknown: %+v, %v", a, err)
	}
}

// hostile are answers that leave it open whether a card was made, or that have a card which nobody may get.
func hostile(t *testing.T) map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{
		"nothing at all":             says(""),
		"a body cut off":             says(issuedBody[:len(issuedBody)-1]),
		"half a body":                raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + issuedBody[:100]),
		"HTML":                       gives(200, "text/html", "<html>"+canary),
		"HTML that says JSON":        says("<html>" + canary),
		"no type":                    gives(200, "", issuedBody),
		"a problem as the answer":    gives(200, problem, declinedBody),
		"an array":                   says("[" + issuedBody + "]"),
		"null":                       says("null"),
		"a number":                   says(canary),
		"two objects":                says(declinedBody + pendingBody),
		"something after it":         says(declinedBody + "x"),
		"a byte order mark":          says("\uFEFF" + declinedBody),
		"invalid UTF-8":              but(t, declinedBody, "out_of_stock", "out_of_stock\xff"),
		"two statuses":               but(t, declinedBody, `"key"`, `"status":"issued","key"`),
		"two statuses, one STATUS":   but(t, declinedBody, `"key"`, `"STATUS":"issued","key"`),
		"a status that is Status":    but(t, declinedBody, `"status"`, `"Status"`),
		"no key":                     but(t, declinedBody, `"key"`, `"kei"`),
		"null for a key":             but(t, declinedBody, `"`+vectorKey+`"`, "null"),
		"no status":                  but(t, declinedBody, `"status"`, `"state"`),
		"another status":             but(t, declinedBody, `"declined"`, `"refused"`),
		"a status in capitals":       but(t, declinedBody, `"declined"`, `"DECLINED"`),
		"a number as status":         but(t, declinedBody, `"declined"`, "3"),
		"too many fields":            says("{" + strings.Repeat(`"x":1,`, 1)[1:] + manyFields() + declinedBody[1:]),
		"deep nesting":               but(t, declinedBody, `"key"`, `"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`,"key"`),
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
		"another protocol":           raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + declinedBody),
		"404 of a proxy":             gives(404, "text/html", canary),
		"404 as JSON":                gives(404, "application/json", unknownBody),
		"404 with another code":      gives(404, problem, strings.Replace(unknownBody, "unknown_key", "not_found", 1)),
		"404 with two codes":         gives(404, problem, strings.Replace(unknownBody, `"code"`, `"code":"x","code"`, 1)),
		"404 cut off":                gives(404, problem, unknownBody[:len(unknownBody)-1]),
		"404 with nothing":           gives(404, problem, ""),
		"429, not saying when":       gives(429, problem, declinedBody),
		"503, not saying when":       gives(503, problem, declinedBody),
		"503, saying soon":           gives(503, problem, "", "Retry-After", "soon"),
		"503, saying a date":         gives(503, problem, "", "Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"),
		"503, saying a minute ago":   gives(503, problem, "", "Retry-After", "-60"),
		"503, saying never":          gives(503, problem, "", "Retry-After", "9999999999"),
		"500, saying when":           gives(500, problem, "", "Retry-After", "1"),
	}
	for _, status := range []int{201, 202, 203, 204, 206, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402, 403, 405, 408, 409, 410, 422, 451, 500, 502, 504, 599} {
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

// Whatever a supplier says that the contract does not have is neither a refusal, after which money is given back, nor a card.
func TestHTTP_HostileAnswersAreNeitherADeclineNorACard(t *testing.T) {
	n := 0
	for name, answers := range hostile(t) {
		n++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, start(t, answers))
			for what, f := range map[string]call{"submit": s.Submit, "look up": s.Lookup, "cancel": s.Cancel} {
				a, err := f(t.Context(), asked)
				delivered := err == nil && a.Outcome == issue.Issued && a.Flaw == "" && (a.USD == 0 || a.USD == asked.USD) && // 0: it is not said
					a.Credentials.Flaw(vectorTime) == ""
				switch {
				case err != nil && a != (issue.Answer{}):
					t.Errorf("%s: an answer beside the error", what)
				case err == nil && a.Outcome != issue.Issued, delivered:
					t.Errorf("%s: %s %+v", what, a.Outcome, a)
				}
				wantHarmless(t, err, a.Flaw, a.Reference)
				var busy *issue.BusyError
				if errors.As(err, &busy) {
					t.Errorf("%s: nothing was taken, it is said", what)
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

// wantHarmless fails if anything that may be a card number or a secret is in a text.
func wantHarmless(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err != nil {
		texts = append(texts, err.Error(), fmt.Sprintf("%+v %#v", err, err))
	}
	for _, text := range texts {
		if regexp.MustCompile(`\d([ -]?\d){11,}`).MatchString(text) || strings.Contains(text, secret.Reveal()[6:]) || strings.Contains(text, "whsec_") {
			t.Errorf("it shows too much: %s", text)
		}
	}
}

func TestHTTP_UnknownIsAnAnswerToALookUpOnly(t *testing.T) {
	s := connect(t, start(t, gives(404, problem, unknownBody)))
	for _, f := range []call{s.Submit, s.Cancel} {
		if a, err := f(t.Context(), asked); err == nil {
			t.Errorf("%s", a.Outcome)
		}
	}
}

func TestHTTP_BusyMeansThatNothingWasTaken(t *testing.T) {
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

// sent is a request as it arrived.
type sent struct{ Method, Target, Body, ContentType string }

func TestHTTP_RequestsAreSignedAndSayWhatTheContractSays(t *testing.T) {
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
	s := connect(t, url+"/v1/", func(c *supplier.HTTPConfig) { c.PreviousSecret, c.ValidFor = otherSecret, 700*24*time.Hour })
	again := asked
	again.Declines = 2
	_, _ = s.Submit(t.Context(), asked)
	_, _ = s.Submit(t.Context(), again)
	_, _ = s.Lookup(t.Context(), again)
	_, _ = s.Cancel(t.Context(), asked)
	_, _ = s.Offers(t.Context())
	_, _ = connect(t, url, func(c *supplier.HTTPConfig) { c.Secret = otherSecret }).Submit(t.Context(), asked)
	const body = `{"currency":"USD","usd_amount":"150.50","valid_until":"2028-10"}`
	if diff := gocmp.Diff([]sent{
		{"PUT", "/v1/cards/" + vectorKey, body, "application/json"},
		{"PUT", "/v1/cards/" + vectorKey + ".2", body, "application/json"},
		{"GET", "/v1/cards/" + vectorKey + ".2", "", ""},
		{"POST", "/v1/cards/" + vectorKey + "/cancel", "", ""},
		{"GET", "/v1/offers", "", ""},
		{"PUT", "/cards/" + vectorKey, `{"currency":"USD","usd_amount":"150.50"}`, "application/json"},
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

// Hazard: a redirect would take the signature, and what is asked for, to somebody else.
func TestHTTP_NoRedirectIsFollowed(t *testing.T) {
	var reached atomic.Int32
	other := start(t, func(w http.ResponseWriter, r *http.Request) { reached.Add(1); says(issuedBody)(w, r) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{other + "/cards/" + vectorKey, "/elsewhere"} {
			requests := 0
			s := connect(t, start(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				if r.URL.Path == "/elsewhere" {
					reached.Add(1)
				}
				http.Redirect(w, r, to, status)
			}))
			for i, f := range []call{s.Submit, s.Lookup, s.Cancel} {
				if a, err := f(t.Context(), asked); err == nil || requests != i+1 {
					t.Errorf("%d: %s after %d requests", status, a.Outcome, requests)
				}
			}
		}
	}
	if reached.Load() != 0 {
		t.Errorf("%d requests went elsewhere", reached.Load())
	}
}

// Hazard: whoever is between us must not become the supplier.
func TestHTTP_OnlyATrustedCertificateIsTalkedTo(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests.Add(1); says(pendingBody)(w, r) }))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	trusting := func(c *supplier.HTTPConfig) { c.CAFile, c.Insecure = ca, false }
	if a, err := connect(t, server.URL, trusting).Submit(t.Context(), asked); err != nil || a.Outcome != issue.Pending {
		t.Errorf("%s, %v", a.Outcome, err)
	}
	requests.Store(0)
	old := httptest.NewUnstartedServer(server.Config.Handler)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = quiet
	old.StartTLS()
	defer old.Close()
	for name, s := range map[string]*supplier.HTTP{
		"self-signed":           connect(t, server.URL),
		"for another host":      connect(t, strings.Replace(server.URL, "127.0.0.1", "localhost", 1), trusting),
		"TLS 1.1":               connect(t, old.URL, trusting),
		"no TLS":                connect(t, strings.Replace(start(t, server.Config.Handler.ServeHTTP), "http:", "https:", 1), trusting),
		"a name that is nobody": connect(t, "https://supplier.invalid", trusting),
		"nobody there":          connect(t, "https://127.0.0.1:1", trusting),
	} {
		a, err := s.Submit(t.Context(), asked)
		if err == nil || requests.Load() != 0 {
			t.Errorf("%s: %s after %d requests", name, a.Outcome, requests.Load())
		}
		wantHarmless(t, err)
	}
}

func TestHTTP_AsksNoProxy(t *testing.T) {
	var proxied atomic.Int32
	proxy := start(t, func(w http.ResponseWriter, _ *http.Request) { proxied.Add(1); w.WriteHeader(502) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, proxy)
	}
	_, err := connect(t, "http://supplier.invalid").Submit(t.Context(), asked) // 127.0.0.1 is never proxied
	if err == nil || proxied.Load() != 0 {
		t.Errorf("%v, %d requests to the proxy", err, proxied.Load())
	}
}

func TestHTTP_GivesUpInTime(t *testing.T) {
	hang := func(r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before that, net/http does not notice that the client is gone
		<-r.Context().Done()
	}
	for name, answers := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { hang(r) },
		"a slow body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, declinedBody[:20])
			w.(http.Flusher).Flush()
			hang(r)
		},
	} {
		s := connect(t, start(t, answers), func(c *supplier.HTTPConfig) { c.Timeout = 100 * time.Millisecond })
		if a, err := s.Submit(t.Context(), asked); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %s, %v", name, a.Outcome, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if a, err := s.Submit(ctx, asked); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %s, %v", name, a.Outcome, err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing, not even in TLS
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s := connect(t, "https://"+listener.Addr().String(), func(c *supplier.HTTPConfig) { c.Timeout = 100 * time.Millisecond })
	if _, err := s.Submit(t.Context(), asked); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestHTTP_Offers(t *testing.T) {
	const list = `{"offers":[{"min_usd":"50","max_usd":"750","left":null},{"min_usd":"100.00","max_usd":"100","left":0},{"min_usd":"25.5","max_usd":"30","left":7}],"key_retention_seconds":3600}`
	s := connect(t, start(t, says(list)), func(c *supplier.HTTPConfig) { c.KeyRetention = 24 * time.Hour })
	if s.KeyRetention() != 24*time.Hour || s.Name() != "acme" {
		t.Errorf("%s, %s", s.Name(), s.KeyRetention())
	}
	offers, err := s.Offers(t.Context())
	want := []card.Offer{{Min: 50_00, Max: 750_00, Left: card.Unlimited}, {Min: 100_00, Max: 100_00}, {Min: 25_50, Max: 30_00, Left: 7}}
	if diff := gocmp.Diff(want, offers); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if s.KeyRetention() != time.Hour { // what the supplier says counts if it is shorter
		t.Errorf("%s", s.KeyRetention())
	}
	for name, tt := range map[string]struct {
		body       string
		configured time.Duration
		want       time.Duration // -1 for an error
	}{
		"for good":                 {`{"offers":[],"key_retention_seconds":null}`, 0, 0},
		"for good, it says":        {`{"offers":[],"key_retention_seconds":null}`, time.Hour, time.Hour},
		"longer than it is said":   {`{"offers":[],"key_retention_seconds":7200}`, time.Hour, time.Hour},
		"only the supplier":        {`{"offers":[],"key_retention_seconds":7200}`, 0, 2 * time.Hour},
		"longer than time":         {`{"offers":[],"key_retention_seconds":9223372036854775807}`, time.Hour, time.Hour},
		"no retention":             {`{"offers":[]}`, 0, -1},
		"a retention of nothing":   {`{"offers":[],"key_retention_seconds":0}`, 0, -1},
		"a negative one":           {`{"offers":[],"key_retention_seconds":-1}`, 0, -1},
		"a fraction":               {`{"offers":[],"key_retention_seconds":1.5}`, 0, -1},
		"no offers":                {`{"key_retention_seconds":null}`, 0, -1},
		"null offers":              {`{"offers":null,"key_retention_seconds":null}`, 0, -1},
		"null for an offer":        {`{"offers":[null],"key_retention_seconds":null}`, 0, -1},
		"left is not said":         {`{"offers":[{"min_usd":"50","max_usd":"50"}],"key_retention_seconds":null}`, 0, -1},
		"fewer than none are left": {`{"offers":[{"min_usd":"50","max_usd":"50","left":-1}],"key_retention_seconds":null}`, 0, -1},
		"no least":                 {`{"offers":[{"max_usd":"50","left":1}],"key_retention_seconds":null}`, 0, -1},
		"least above most":         {`{"offers":[{"min_usd":"51","max_usd":"50","left":1}],"key_retention_seconds":null}`, 0, -1},
		"an odd amount":            {`{"offers":[{"min_usd":"5e1","max_usd":"50","left":1}],"key_retention_seconds":null}`, 0, -1},
		"too many":                 {`{"offers":[` + strings.TrimSuffix(strings.Repeat(`{},`, 101), ",") + `],"key_retention_seconds":null}`, 0, -1},
	} {
		s := connect(t, start(t, says(tt.body)), func(c *supplier.HTTPConfig) { c.KeyRetention = tt.configured })
		_, err := s.Offers(t.Context())
		if (err != nil) != (tt.want < 0) || s.KeyRetention() != cmp.Or(max(tt.want, 0), tt.configured) {
			t.Errorf("%s: %v, %s", name, err, s.KeyRetention())
		}
	}
}

func TestHTTP_BadConfigurationIsRefused(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(notPEM, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := supplier.HTTPConfig{Name: "acme", URL: "https://10.0.0.1:8443/v1", Secret: secret}
	if _, err := supplier.NewHTTP(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*supplier.HTTPConfig){
		"no name":           func(c *supplier.HTTPConfig) { c.Name = "" },
		"a name of others":  func(c *supplier.HTTPConfig) { c.Name = "sandbox" },
		"an odd name":       func(c *supplier.HTTPConfig) { c.Name = "Acme/1" },
		"a long name":       func(c *supplier.HTTPConfig) { c.Name = strings.Repeat("a", 33) },
		"http":              func(c *supplier.HTTPConfig) { c.URL = "http://cards.example.net" },
		"another scheme":    func(c *supplier.HTTPConfig) { c.URL, c.Insecure = "ftp://cards.example.net", true },
		"no host":           func(c *supplier.HTTPConfig) { c.URL = "https:///v1" },
		"no address":        func(c *supplier.HTTPConfig) { c.URL = "" },
		"not an address":    func(c *supplier.HTTPConfig) { c.URL = "https://%zz" },
		"a user":            func(c *supplier.HTTPConfig) { c.URL = "https://me:canary@cards.example.net" },
		"a query":           func(c *supplier.HTTPConfig) { c.URL = "https://cards.example.net/?key=canary" },
		"a fragment":        func(c *supplier.HTTPConfig) { c.URL = "https://cards.example.net/#" },
		"no secret":         func(c *supplier.HTTPConfig) { c.Secret = "" },
		"only the previous": func(c *supplier.HTTPConfig) { c.Secret, c.PreviousSecret = "", secret },
		"an odd secret":     func(c *supplier.HTTPConfig) { c.Secret = "canary" },
		"an odd previous":   func(c *supplier.HTTPConfig) { c.PreviousSecret = "whsec_canary" },
		"no such file":      func(c *supplier.HTTPConfig) { c.CAFile = notPEM + "x" },
		"no certificates":   func(c *supplier.HTTPConfig) { c.CAFile = notPEM },
		"a negative time":   func(c *supplier.HTTPConfig) { c.Timeout = -1 },
		"a negative memory": func(c *supplier.HTTPConfig) { c.KeyRetention = -1 },
	} {
		cfg := good
		change(&cfg)
		if _, err := supplier.NewHTTP(cfg); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzHTTP_Answers: whatever is said, only what the contract describes is an answer.
func FuzzHTTP_Answers(f *testing.F) {
	for _, body := range []string{issuedBody, pendingBody, declinedBody, unknownBody, `{"key":"x","status":"declined","KEY":1}`, "", "null", "[]"} {
		f.Add(200, "application/json", body)
		f.Add(404, problem, body)
	}
	var status atomic.Int32
	var contentType, body atomic.Pointer[string]
	url := start(f, func(w http.ResponseWriter, r *http.Request) {
		gives(int(status.Load()), *contentType.Load(), *body.Load())(w, r)
	})
	s := connect(f, url)
	f.Fuzz(func(t *testing.T, code int, kind, text string) {
		if code < 200 || code > 999 {
			return
		}
		status.Store(int32(code))
		contentType.Store(&kind)
		body.Store(&text)
		a, err := s.Submit(t.Context(), asked)
		switch {
		case err != nil && a != (issue.Answer{}), err == nil && code != 200:
			t.Fatalf("%s, %v", a.Outcome, err)
		case err == nil && a.Outcome == issue.Declined && (!strings.Contains(text, "declined") && !strings.Contains(text, `\u`) || a.Reason == ""):
			t.Fatalf("declined by %q", text)
		case err == nil && a.Outcome == issue.Issued && a.Flaw == "" && a.USD <= 0, err == nil && a.Outcome == issue.Unknown:
			t.Fatalf("%s worth %d", a.Outcome, a.USD)
		}
	})
}
