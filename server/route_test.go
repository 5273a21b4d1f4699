package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Methods that a path of the contract does not have are refused, and the Allow
// header lists the existing ones.
func TestRoutes_WrongMethod_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	allowed := map[string][]string{}
	for _, path := range outsideContract {
		allowed[path] = []string{http.MethodGet, http.MethodHead}
	}
	for template, item := range contract().Paths.Map() {
		path := strings.ReplaceAll(template, "{uuid}", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
		for method := range item.Operations() {
			allowed[path] = append(allowed[path], method)
			if method == http.MethodGet {
				allowed[path] = append(allowed[path], http.MethodHead)
			}
		}
	}
	for path, methods := range allowed {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND",
			"get", "X"} {
			if slices.Contains(methods, method) {
				continue
			}
			t.Run(method+" "+path, func(t *testing.T) {
				a := d.speak(t, d.address(),
					fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", method, path,
						token))
				a.want(t, http.StatusMethodNotAllowed)
				equal(t, "Allow", sorted(strings.Split(a.header.Get("Allow"), ", ")), sorted(methods))
				if method == http.MethodHead {
					equal(t, "body", a.body, "")
					return
				}
				a.refused(t, http.StatusMethodNotAllowed, "method_not_allowed")
			})
		}
	}
}

func TestRoutes_OtherSpelling_IsNotFound(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, target := range []string{
		"/", "//", "/api", "/api/", "//api/cards", "/api//cards", "/api/cards/", "/api/cards//", "/API/cards", "/api/Cards",
		"/api/v1/cards",
		"/api/cards/x/y", "/api/./cards", "/api/x/../cards", "/api/cards/..%2fcards", "/api/cards%2f", "/api/cards%00",
		"/api/cards.json", "/api/cards;a=b", "/cards", "/livez/", "/readyz/x", "/openapi.yml", "/openapi", "/metrics",
		"/debug/pprof/",
		"/debug/vars", "/favicon.ico", "/.env", "/.git/config", "/api/currencies/monero", "/" + strings.Repeat("a", 8_000),
		"/api/%0d%0aX:%20y",
	} {
		t.Run(fmt.Sprintf("%.60s", target), func(t *testing.T) {
			for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
				text := fmt.Sprintf(
					"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method,
					target, token)
				d.speak(t, d.address(), text).refused(t, http.StatusNotFound, "not_found")
			}
		})
	}
}

func TestRoutes_UnusualRequest_IsServed(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	bearer := "Authorization: Bearer " + d.token(t) + "\r\n"
	for _, x := range []struct {
		name, text string
		status     int
	}{
		{"an absolute URI", "GET http://elsewhere.test/api/cards HTTP/1.1\r\nHost: elsewhere.test\r\n" + bearer + "\r\n",
			http.StatusOK},
		{"an absolute URI without a token", "GET https://elsewhere.test/api/cards HTTP/1.1\r\nHost: x\r\n\r\n",
			http.StatusUnauthorized},
		{"an escaped letter", "GET /%61pi/cards HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\n", http.StatusOK},
		{"HTTP 1.0", "GET /api/cards HTTP/1.0\r\n" + bearer + "\r\n", http.StatusOK},
		{"a query of its own", "GET /livez?a=b&c HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\n", http.StatusOK},
		{"a body where none is expected", "GET /api/cards HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" + bearer + "\r\n{{{",
			http.StatusOK},
		{"the scheme in other letters",
			"GET /api/cards HTTP/1.1\r\nHost: x\r\n" + strings.Replace(bearer, "Bearer", "bEARER", 1) + "\r\n", http.StatusOK},
	} {
		t.Run(x.name, func(t *testing.T) { d.speak(t, d.address(), x.text).want(t, x.status) })
	}
	for _, x := range []struct{ name, text string }{
		{"an absolute URI without a path", "GET http://elsewhere.test HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n"},
		{"a tunnel", "CONNECT elsewhere.test:443 HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n"},
	} {
		t.Run(x.name, func(t *testing.T) {
			conn := dial(t, d.address())
			_, err := conn.Write([]byte(x.text))
			need(t, err)
			readResponse(t, conn, "GET / HTTP/1.1").refused(t, http.StatusNotFound, "not_found")
		})
	}
}

// X-HTTP-Method-Override and similar headers would bypass a filter in front of
// the service.
func TestRoutes_MethodCannotBeOverridden(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "_method"} {
		a := d.send(t, http.MethodGet, "/api/cards", token, orderBody("50"), header, "POST").want(t, http.StatusOK)
		equal(t, header, a.body, "[]\n")
	}
	d.send(t, http.MethodGet, "/api/cards?_method=POST", token, orderBody("50")).invalid(t, "query/_method")
}
