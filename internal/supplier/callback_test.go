package supplier_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/supplier"
)

func TestCallback_OnlySigned_Wakes(t *testing.T) {
	const body = `{"key":"` + vectorKey + `"}`
	s, now := secrets(t, otherSecret, secret), vectorTime
	var woken []string
	handler := supplier.NewCallback(s, func(key string) { woken = append(woken, key) }, func() time.Time { return now })
	post := func(method, body string, header http.Header) int {
		r := httptest.NewRequest(method, supplier.CallbackPath("acme"), strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if problem := w.Header().Get("Content-Type") == "application/problem+json"; problem != (w.Code >= 400) {
			t.Errorf("%d, a problem: %t", w.Code, problem)
		}
		return w.Code
	}
	longest := strings.Repeat("k", 64)
	good := secrets(t, secret).SignMessage("m", now, []byte(body))
	signed := func(body string) http.Header { return s.SignMessage("m", now, []byte(body)) }
	without := func(name string) http.Header { h := good.Clone(); h.Del(name); return h }
	for name, tt := range map[string]struct {
		method, body string
		header       http.Header
		status       int
		wakes        string
	}{
		"genuine": {"POST", body, good, 204, vectorKey},
		"with the newer secret": {"POST", body, secrets(t, otherSecret).SignMessage("m", now, []byte(body)), 204,
			vectorKey},
		"of a request made again": {"POST", `{"key":"` + vectorKey + `.2"}`, signed(`{"key":"` + vectorKey + `.2"}`),
			204, vectorKey},
		"with the longest key": {"POST", `{"key":"` + longest + `"}`, signed(`{"key":"` + longest + `"}`), 204,
			longest},
		"with more than the key": {"POST", `{"status":"issued","key":"k"}`, signed(`{"status":"issued","key":"k"}`),
			204, "k"},
		"forged": {"POST", body,
			secrets(t, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").SignMessage("m", now, []byte(body)), 401, ""},
		"altered": {"POST", strings.Replace(body, "019", "018", 1), good, 401, ""},
		"stale": {"POST", body,
			s.SignMessage("m", now.Add(-5*time.Minute-time.Second), []byte(body)), 401, ""},
		"of the future": {"POST", body,
			s.SignMessage("m", now.Add(5*time.Minute+time.Second), []byte(body)), 401, ""},
		"not signed":     {"POST", body, without("Webhook-Signature"), 401, ""},
		"without a time": {"POST", body, without("Webhook-Timestamp"), 401, ""},
		"without an id":  {"POST", body, without("Webhook-Id"), 401, ""},
		"signed like a request of ours": {"POST", body,
			s.SignRequest("POST", "/supplier/acme/callback", now, []byte(body)), 401, ""},
		"by GET": {"GET", body, good, 405, ""},
		"too long": {"POST", strings.Repeat(" ", 5000) + body,
			signed(strings.Repeat(" ", 5000) + body), 400, ""},
		"signed nonsense":                 {"POST", "nonsense", signed("nonsense"), 400, ""},
		"signed without a key":            {"POST", "{}", signed("{}"), 400, ""},
		"signed with a key that can't be": {"POST", `{"key":"../x"}`, signed(`{"key":"../x"}`), 400, ""},
		"signed with an empty key":        {"POST", `{"key":""}`, signed(`{"key":""}`), 400, ""},
		"signed with a long key": {"POST", `{"key":"` + strings.Repeat("k", 65) + `"}`,
			signed(`{"key":"` + strings.Repeat("k", 65) + `"}`), 400, ""},
		"signed with two keys": {"POST", `{"key":"a","key":"b"}`, signed(`{"key":"a","key":"b"}`), 400, ""},
	} {
		woken = nil
		want := []string{tt.wakes}
		if tt.wakes == "" {
			want = nil
		}
		if got := post(tt.method, tt.body, tt.header); got != tt.status || !slices.Equal(woken, want) {
			t.Errorf("%s: %d, woke %q, want %d, %q", name, got, woken, tt.status, want)
		}
	}
	woken = nil // a repetition causes only another lookup
	first, second := post("POST", body, good), post("POST", body, good)
	if first != 204 || second != 204 || len(woken) != 2 {
		t.Errorf("twice: woke %q", woken)
	}
}
