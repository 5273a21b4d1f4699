package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"
)

// answer is a response as received.
type answer struct {
	status int
	header http.Header
	body   string
	closed bool // the connection is closed after it
}

// problem is a problem document of the contract.
type problem struct {
	Type      string
	Title     string
	Status    int
	Detail    string
	Code      string
	RequestID string `json:"request_id"`
	Errors    []fieldError

	ErrorsOmitted int `json:"errors_omitted"`
}

type fieldError struct{ Pointer, Detail string }

// In header values, absent omits the header, and again separates two values
// that are sent as two lines.
const (
	absent = "\x00absent"
	again  = "\x00again"
)

// send sends a request that package client would never send. headers are pairs
// of name and value. The body is JSON unless they set another type.
func (d *deployment) send(t testing.TB, method, target, token, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, d.web.URL+target, strings.NewReader(body))
	need(t, err)
	setHeaders(r, token, body, headers)
	res, err := (&http.Client{Transport: checked{t, d.web.Client().Transport}}).Do(r)
	need(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	need(t, err)
	return answer{res.StatusCode, res.Header, string(text), res.Close}
}

// serve is send without a network between.
func (d *deployment) serve(t testing.TB, method, target, token, body string, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	setHeaders(r, token, body, headers)
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	checkResponse(t, method, r.URL, w.Result(), w.Body.Bytes(), false)
	return answer{w.Code, w.Result().Header, w.Body.String(), false}
}

func setHeaders(r *http.Request, token, body string, headers []string) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[http.CanonicalHeaderKey(headers[i])] = strings.Split(headers[i+1], again)
		if headers[i+1] == absent {
			r.Header.Del(headers[i])
		}
	}
}

// speak writes bytes to the service and reads one answer, which must be what
// the contract allows.
func (d *deployment) speak(t testing.TB, address, text string) answer {
	t.Helper()
	conn := dial(t, address)
	go func() { _, _ = io.WriteString(conn, text) }() // the service may answer before it has read everything
	return readResponse(t, conn, text)
}

func (d *deployment) address() string { return d.web.Listener.Addr().String() }

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	need(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	need(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

// readResponse reads the response to the request that text begins with.
func readResponse(t testing.TB, conn net.Conn, text string) answer {
	t.Helper()
	method, rest, _ := strings.Cut(text, " ")
	target, _, _ := strings.Cut(rest, " ")
	u, err := url.ParseRequestURI(target)
	need(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	need(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	need(t, err)
	checkResponse(t, method, u, res, body, false)
	return answer{res.StatusCode, res.Header, string(body), res.Close}
}

// want fails the test unless the answer has the status.
func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %.500s", a.status, status, a.body)
	}
	return a
}

// refused fails the test unless the answer is this problem.
func (a answer) refused(t testing.TB, status int, code string) problem {
	t.Helper()
	a.want(t, status)
	var p problem
	need(t, json.Unmarshal([]byte(a.body), &p))
	if p.Code != code {
		t.Fatalf("code %q, want %q: %s", p.Code, code, a.body)
	}
	return p
}

// invalid fails the test unless exactly these places of the request are named
// as wrong.
func (a answer) invalid(t testing.TB, pointers ...string) problem {
	t.Helper()
	p := a.refused(t, http.StatusUnprocessableEntity, "invalid_request")
	got := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		got[i] = e.Pointer
	}
	equal(t, "pointers", sorted(got), sorted(pointers))
	return p
}

// orderBody is a good body for createCard.
func orderBody(usd string) string { return `{"usd_amount":` + usd + `,"currency":"monero"}` }

func number(s string) decimal.Decimal { return decimal.RequireFromString(s) }

// logBuffer keeps what was logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// entries returns the log lines. Each must be a JSON object.
func (b *logBuffer) entries(t testing.TB) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(b.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("a line of the log is not one JSON object: %v: %q", err, line)
		}
		all = append(all, entry)
	}
	return all
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	need(t, err)
	return string(text)
}
