package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	ourPage   = "https://shop.example"
	otherPage = "https://evil.example"
)

func TestCORS_NoOrigins_IsOff(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	a := d.send(t, http.MethodGet, "/api/cards", token, "", "Origin", ourPage).want(t, http.StatusOK)
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			t.Errorf("%s: %v", name, a.header[name])
		}
	}
	d.send(t, http.MethodOptions, "/api/cards", "", "", "Origin", ourPage, "Access-Control-Request-Method",
		"GET").refused(t, http.StatusMethodNotAllowed, "method_not_allowed")
}

func TestCORS_ConfiguredOrigin_MayCall(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{origins: []string{ourPage}})
	token := d.token(t)
	names := func(text string) []string { return strings.Split(text, ", ") }

	a := d.serve(t, http.MethodOptions, "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", "", "", "Origin", ourPage,
		"Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "authorization,idempotency-key").want(t,
		http.StatusNoContent)
	equal(t, "body", a.body, "")
	equal(t, "origin", a.header.Get("Access-Control-Allow-Origin"), ourPage)
	for _, method := range []string{"GET", "HEAD", "POST", "PATCH", "DELETE"} {
		if !slices.Contains(names(a.header.Get("Access-Control-Allow-Methods")), method) {
			t.Errorf("%s is not allowed: %v", method, a.header)
		}
	}
	for _, header := range []string{"Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id"} {
		if !slices.Contains(names(a.header.Get("Access-Control-Allow-Headers")), header) {
			t.Errorf("%s is not allowed: %v", header, a.header)
		}
	}

	for what, a := range map[string]answer{
		"a list":    d.send(t, http.MethodGet, "/api/cards", token, "", "Origin", ourPage).want(t, http.StatusOK),
		"a refusal": d.send(t, http.MethodGet, "/api/cards", "", "", "Origin", ourPage).want(t, http.StatusUnauthorized),
		"nothing":   d.send(t, http.MethodGet, "/api/none", token, "", "Origin", ourPage).want(t, http.StatusNotFound),
		"the wrong": d.send(t, http.MethodPut, "/api/cards", token, "", "Origin", ourPage).want(t,
			http.StatusMethodNotAllowed),
		"a contract": d.send(t, http.MethodGet, "/openapi.json", "", "", "Origin", ourPage).want(t, http.StatusOK),
	} {
		equal(t, what+": origin", a.header.Get("Access-Control-Allow-Origin"), ourPage)
		equal(t, what+": Vary", a.header.Get("Vary"), "Origin")
		equal(t, what+": credentials", a.header.Values("Access-Control-Allow-Credentials"), nil)
		for _, header := range []string{"Location", "Link", "Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-Id",
			"Idempotency-Replayed"} {
			if !slices.Contains(names(a.header.Get("Access-Control-Expose-Headers")), header) {
				t.Errorf("%s: %s is not exposed: %v", what, header, a.header)
			}
		}
	}
}

func TestCORS_OtherOrigin_MayNotCall(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{origins: []string{ourPage}})
	token := d.token(t)
	for _, origin := range []string{otherPage, "null", "*", ourPage + ".evil.example", ourPage + ":8443",
		"http://shop.example", "HTTPS://SHOP.EXAMPLE", ourPage + "/", absent} {
		a := d.send(t, http.MethodGet, "/api/cards", token, "", "Origin", origin).want(t, http.StatusOK)
		equal(t, origin+": allowed", a.header.Values("Access-Control-Allow-Origin"), nil)
		equal(t, origin+": Vary", a.header.Get("Vary"), "Origin") // a cache must not return it to an allowed page
		d.send(t, http.MethodOptions, "/api/cards", "", "", "Origin", origin, "Access-Control-Request-Method",
			"GET").refused(t, http.StatusMethodNotAllowed, "method_not_allowed")
	}
	// Pages can't read health, and not every OPTIONS request is a preflight.
	equal(t, "livez",
		d.send(t, http.MethodGet, "/livez", "", "", "Origin", ourPage).header.Values("Access-Control-Allow-Origin"), nil)
	d.send(t, http.MethodOptions, "/api/cards", token, "", "Origin", ourPage).refused(t, http.StatusMethodNotAllowed,
		"method_not_allowed")
}
