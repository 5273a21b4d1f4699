package supplier_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

// Hazard: a redirect would send signed requests to another host.
func TestHTTP_Redirect_IsNotFollowed(t *testing.T) {
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

// Hazard: a man in the middle poses as the supplier.
func TestHTTP_UntrustedCertificate_IsRejected(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests.Add(1); says(pendingBody)(w, r) }))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		0o600); err != nil {
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
	for name, tt := range map[string]struct {
		s    *supplier.HTTP
		want string
	}{
		"self-signed": {connect(t, server.URL), "the certificate is not signed by an authority that is trusted"},
		"for another host": {connect(t, strings.Replace(server.URL, "127.0.0.1", "localhost", 1), trusting),
			"the certificate is not for the supplier's host"},
		"TLS 1.1": {connect(t, old.URL, trusting), "the TLS handshake failed"},
		"no TLS": {
			connect(t, strings.Replace(start(t, server.Config.Handler.ServeHTTP), "http:", "https:", 1), trusting),
			"the TLS handshake failed"},
		"a name that is nobody": {connect(t, "https://supplier.invalid", trusting), ""}, // that depends on who resolves it
		"no server":             {connect(t, "https://127.0.0.1:1", trusting), "the connection was refused or lost"},
	} {
		a, err := tt.s.Submit(t.Context(), asked)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || requests.Load() != 0 {
			t.Errorf("%s: %s after %d requests, error %v, want %s", name, a.Outcome, requests.Load(), err, tt.want)
		}
		wantHarmless(t, err)
	}
}

func TestHTTP_ProxyInEnvironment_IsIgnored(t *testing.T) {
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

func TestHTTP_SlowAnswer_TimesOut(t *testing.T) {
	hang := func(r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise net/http does not notice that the client disconnected
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
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections without responding, not even in TLS
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s := connect(t, "https://"+listener.Addr().String(), func(c *supplier.HTTPConfig) {
		c.Timeout = 100 * time.Millisecond
	})
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
	want := []card.Offer{{Min: 50_00, Max: 750_00, Left: card.Unlimited}, {Min: 100_00, Max: 100_00},
		{Min: 25_50, Max: 30_00, Left: 7}}
	if diff := gocmp.Diff(want, offers); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if s.KeyRetention() != time.Hour { // the supplier's shorter retention takes precedence
		t.Errorf("%s", s.KeyRetention())
	}
	for name, tt := range map[string]struct {
		body       string
		configured time.Duration
		want       time.Duration // -1 for an error
	}{
		"for good":                {`{"offers":[],"key_retention_seconds":null}`, 0, 0},
		"for good, it says":       {`{"offers":[],"key_retention_seconds":null}`, time.Hour, time.Hour},
		"longer than it is said":  {`{"offers":[],"key_retention_seconds":7200}`, time.Hour, time.Hour},
		"only the supplier":       {`{"offers":[],"key_retention_seconds":7200}`, 0, 2 * time.Hour},
		"longer than time":        {`{"offers":[],"key_retention_seconds":9223372036854775807}`, time.Hour, time.Hour},
		"no retention":            {`{"offers":[]}`, 0, -1},
		"a retention of nothing":  {`{"offers":[],"key_retention_seconds":0}`, 0, -1},
		"a negative one":          {`{"offers":[],"key_retention_seconds":-1}`, 0, -1},
		"a retention of a second": {`{"offers":[],"key_retention_seconds":1}`, 0, time.Second},
		"a fraction":              {`{"offers":[],"key_retention_seconds":1.5}`, 0, -1},
		"no offers":               {`{"key_retention_seconds":null}`, 0, -1},
		"null offers":             {`{"offers":null,"key_retention_seconds":null}`, 0, -1},
		"null for an offer":       {`{"offers":[null],"key_retention_seconds":null}`, 0, -1},
		"left is not said":        {`{"offers":[{"min_usd":"50","max_usd":"50"}],"key_retention_seconds":null}`, 0, -1},
		"fewer than none are left": {`{"offers":[{"min_usd":"50","max_usd":"50","left":-1}],"key_retention_seconds":null}`,
			0, -1},
		"no least": {`{"offers":[{"max_usd":"50","left":1}],"key_retention_seconds":null}`, 0, -1},
		"least above most": {`{"offers":[{"min_usd":"51","max_usd":"50","left":1}],"key_retention_seconds":null}`, 0,
			-1},
		"an odd amount": {`{"offers":[{"min_usd":"5e1","max_usd":"50","left":1}],"key_retention_seconds":null}`,
			0, -1},
		"as many as may be": {`{"offers":[` +
			strings.TrimSuffix(strings.Repeat(`{"min_usd":"50","max_usd":"50","left":1},`, 100), ",") +
			`],"key_retention_seconds":60}`, 0, time.Minute},
		"one too many": {`{"offers":[` +
			strings.TrimSuffix(strings.Repeat(`{"min_usd":"50","max_usd":"50","left":1},`, 101), ",") +
			`],"key_retention_seconds":60}`, 0, -1},
		"too many": {`{"offers":[` + strings.TrimSuffix(strings.Repeat(`{},`, 101), ",") +
			`],"key_retention_seconds":null}`, 0, -1},
	} {
		s := connect(t, start(t, says(tt.body)), func(c *supplier.HTTPConfig) { c.KeyRetention = tt.configured })
		_, err := s.Offers(t.Context())
		if (err != nil) != (tt.want < 0) || s.KeyRetention() != cmp.Or(max(tt.want, 0), tt.configured) {
			t.Errorf("%s: %v, %s", name, err, s.KeyRetention())
		}
	}
}

func TestNewHTTP_InvalidConfig_IsAnError(t *testing.T) {
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

// FuzzHTTP_Answers checks that only answers of the contract are accepted.
func FuzzHTTP_Answers(f *testing.F) {
	for _, body := range []string{issuedBody, pendingBody, declinedBody, unknownBody,
		`{"key":"x","status":"declined","KEY":1}`, "", "null", "[]"} {
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
		case err == nil && a.Outcome == issue.Declined &&
			(!strings.Contains(text, "declined") && !strings.Contains(text, `\u`) || a.Reason == ""):
			t.Fatalf("declined by %q", text)
		case err == nil && a.Outcome == issue.Issued && a.Flaw == "" && a.USD <= 0, err == nil && a.Outcome == issue.Unknown:
			t.Fatalf("%s worth %d", a.Outcome, a.USD)
		}
	})
}

func TestHTTP_UnknownRetention_ReadsOffers(t *testing.T) {
	s := connect(t, start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/offers" {
			says(`{"offers":[],"key_retention_seconds":86400}`)(w, r)
			return
		}
		gives(404, "application/problem+json", unknownBody)(w, r)
	}))
	found, err := s.Lookup(t.Context(), asked)
	if got := s.KeyRetention(); err == nil && found.Outcome == issue.Unknown && got != 24*time.Hour {
		t.Errorf("unknown key with a retention of %v (0 is forever), want 24h", got)
	}
	_, err = s.Offers(t.Context())
	if s.KeyRetention() != 24*time.Hour {
		t.Error(s.KeyRetention(), err)
	}
}
