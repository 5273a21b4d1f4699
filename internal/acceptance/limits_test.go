package acceptance_test

import (
	"net/http"
	"testing"
)

func TestServe_RequestLimits_AreOffInDev(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	get := func(url, token string, header ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/currencies", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	want := func(res *http.Response, status int, policy string) {
		t.Helper()
		if got := res.Header.Get("RateLimit-Policy"); res.StatusCode != status || got != policy {
			t.Errorf("status %d with %s, want %d with %s", res.StatusCode, got, status, policy)
		}
	}
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--limit-token", "2/h", "--limit-account", "off",
		"--limit-address", "1/h",
		"--trusted-proxies", "127.0.0.0/8,::1/128")
	const policy, failures = `"token";q=2;w=3600`, `"address";q=1;w=3600`
	want(get(s.url, token), 200, policy)
	want(get(s.url, token), 200, policy)
	want(get(s.url, token), 429, policy)
	want(get(s.url, "abc", "X-Forwarded-For", "192.0.2.1"), 401, "")
	want(get(s.url, "abc", "X-Forwarded-For", "192.0.2.1"), 429, failures)
	want(get(s.url, "abc", "X-Forwarded-For", "192.0.2.2"), 401, "")
	s.stop(t)
	d := p.serve(t, "dev")
	want(get(d.url, token), 200, "")
	d.stop(t)
}
