package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Every response fits the contract, and none is a server error.
func FuzzRequest_NoServerError(f *testing.F) {
	const one = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	for _, seed := range []struct{ method, target, kind, key, body string }{
		{"GET", "/api/cards", "", "", ""},
		{"GET", "/api/cards?status=generated&limit=3&cursor=AZqhyfhofO-OTpscl_sdiA", "", "", ""},
		{"GET", "/api/cards?limit=%zz&;=&&limit[]=1", "", "", ""},
		{"GET", "/api/cards?limit=9999999999&status=%ff", "", "", ""},
		{"GET", "/api/cards/" + one, "", "", ""},
		{"GET", "/api/cards/%00", "", "", ""},
		{"GET", "/api/currencies?x", "", "", ""},
		{"GET", "/api/cards?reference=%00&currency=%ff&created_after=2026-11-20T14:46:00.120Z&created_before=0001-01-01T00:00:00Z&payment_state=paid", "", "", ""},
		{"GET", "/api/cards?reference=%ff&limit=1&created_before=9999-12-31T23:59:59-23:59", "", "", ""},
		{"POST", "/api/cards", "application/json", "",
			`{"usd_amount":50,"currency":"monero","reference":"\u0000","metadata":{"":"","\ud83d\ude00":"\u0000"}}`},
		{"POST", "/api/cards", "application/json", "k", orderBody("50")},
		{"POST", "/api/cards", "application/json", `"k"`, orderBody(`"750.00"`)},
		{"POST", "/api/cards", "application/json", "\xff", `{"usd_amount":1e400,"currency":1e400}`},
		{"POST", "/api/cards", "application/json", "", `{"usd_amount":[{}],"currency":null,"":[[]]}`},
		{"POST", "/api/cards", "application/json; charset", "", "\xef\xbb\xbf{}"},
		{"POST", "/api/cards", "", "", `{"usd_amount":{"usd_amount":50},"currency":"\ud800"}`},
		{"POST", "/api/sandbox/cards/" + one + "/payments", "application/json", "",
			`{"amount":"9223372.036854775808","confirmations":10.0}`},
		{"POST", "/api/sandbox/cards/" + one + "/payments", "application/json", "",
			`{"amount":"0.000000000000000001","confirmations":1e400}`},
		{"POST", "/api/sandbox/cards//payments", "", "", ""},
		{"DELETE", "/api/cards/" + one, "", "", ""},
		{"OPTIONS", "/api/../api/cards", "", "", ""},
		{"HEAD", "//api/cards", "", "", ""},
	} {
		f.Add(seed.method, seed.target, seed.kind, seed.key, seed.body)
	}
	d := deploy(f, setup{})
	token := d.token(f)
	f.Fuzz(func(t *testing.T, method, target, kind, key, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || !strings.HasPrefix(target, "/") || strings.ContainsAny(target, " \t\r\n") ||
			strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || method == "" || method == "PRI" {
			t.Skip("never reaches the handler")
		}
		headers := []string{"Content-Type", kind}
		if key != "" {
			headers = append(headers, "Idempotency-Key", key)
		}
		a := d.serve(t, method, target, token, body, headers...)
		if a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "address_unavailable") {
			d.work()
			return
		}
		if a.status >= 500 {
			t.Errorf("%d: %s", a.status, a.body)
		}
	})
}
