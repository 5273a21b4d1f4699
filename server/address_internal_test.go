package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestProxies_Client_ReturnsLastUntrustedHop(t *testing.T) {
	trusted := proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}
	for name, c := range map[string]struct {
		peer string
		sent []string
		want string
	}{
		"directly":                          {"192.0.2.1:5000", nil, "192.0.2.1"},
		"directly, with a lie":              {"192.0.2.1:5000", []string{"198.51.100.1"}, "192.0.2.1"},
		"directly over IPv6":                {"[2001:db8::1]:5000", []string{"198.51.100.1"}, "2001:db8::1"},
		"directly, on one link":             {"[fe80::1%eth0]:5000", nil, "fe80::1"},
		"mapped":                            {"[::ffff:192.0.2.1]:5000", nil, "192.0.2.1"},
		"by a proxy":                        {"10.0.0.1:5000", []string{"192.0.2.1"}, "192.0.2.1"},
		"by a proxy, mapped":                {"[::ffff:10.0.0.1]:5000", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		"by a proxy over IPv6":              {"[2001:db8:ffff::1]:5000", []string{"2001:db8::2"}, "2001:db8::2"},
		"by a proxy, with a lie":            {"10.0.0.1:5000", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		"by a proxy, with a lie about it":   {"10.0.0.1:5000", []string{"198.51.100.1, 10.0.0.9, 192.0.2.1"}, "192.0.2.1"},
		"by two proxies":                    {"10.0.0.1:5000", []string{"192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		"by two proxies, in two lines":      {"10.0.0.1:5000", []string{"198.51.100.1,192.0.2.1", "10.0.0.2"}, "192.0.2.1"},
		"by proxies only":                   {"10.0.0.1:5000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"by a proxy that does not say":      {"10.0.0.1:5000", nil, "10.0.0.1"},
		"by a proxy that says nothing":      {"10.0.0.1:5000", []string{""}, "10.0.0.1"},
		"by a proxy that names a port":      {"10.0.0.1:5000", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		"by a proxy with brackets":          {"10.0.0.1:5000", []string{"[2001:db8::2]:4711"}, "2001:db8::2"},
		"by a proxy with brackets, bare":    {"10.0.0.1:5000", []string{"[2001:db8::2]"}, "2001:db8::2"},
		"by a proxy that hides it":          {"10.0.0.1:5000", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		"by two proxies, the first hides":   {"10.0.0.1:5000", []string{"192.0.2.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		"by a proxy, blanks":                {"10.0.0.1:5000", []string{" 192.0.2.1 ,\t10.0.0.2 "}, "192.0.2.1"},
		"over a Unix socket":                {"@", []string{"192.0.2.1"}, "invalid IP"},
		"over a Unix socket without a name": {"", nil, "invalid IP"},
		"from a path":                       {"/run/x.sock", nil, "invalid IP"},
		"without a port":                    {"192.0.2.1", nil, "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
			if c.sent != nil {
				r.Header["X-Forwarded-For"] = c.sent
			}
			if got := trusted.client(r).String(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if got := proxies(nil).client(r); got != address(c.peer) {
				t.Errorf("without proxies %s", got)
			}
		})
	}
}

// By default, gin trusts every proxy.
func TestEngine_IgnoresForwardedFor(t *testing.T) {
	engine := newEngine()
	var got string
	engine.GET("/", func(c *gin.Context) { got = c.ClientIP() })
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	r.Header.Set("X-Real-Ip", "198.51.100.1")
	engine.ServeHTTP(httptest.NewRecorder(), r)
	if got != "192.0.2.1" {
		t.Errorf("the client is %s", got)
	}
}
