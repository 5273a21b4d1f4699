package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// soon is a timeout for requests that must exceed it.
const soon = 100 * time.Millisecond

var noTime = cmpopts.IgnoreFields(Result{}, "Took", "Address")

// startRaw starts a receiver with a connection handler, and returns its host
// and port.
func startRaw(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var talks sync.WaitGroup
	talks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			talks.Go(func() {
				defer func() { _ = conn.Close() }()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); talks.Wait() })
	return listener.Addr().String()
}

// wait waits until the other side closes the connection.
func wait(conn io.Reader) { _, _ = io.Copy(io.Discard, conn) }

// certify returns a self-signed certificate, and a pool that trusts it.
func certify(t *testing.T, edit func(*x509.Certificate)) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "receiver"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"shop.example.com"},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if edit != nil {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestPost_SendsBodyUnchanged(t *testing.T) {
	body := []byte("{\"a\":1,\r\n \"\x00\xff\u2028\":2}\n")
	var got *http.Request
	var received []byte
	certificate, pool := certify(t, nil)
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		received, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "fine\n\tso")
	}, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
	client := newClient(t, Guard{Insecure: true, RootCAs: pool})
	header := http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"evt_1"}}
	sent := header.Clone()

	answer := client.Post(t.Context(), Request{URL: server.URL + "/hooks?shop=1", Header: header, Body: body})
	if diff := cmp.Diff(Result{Status: 200, Body: "fine\n\tso"}, answer, noTime); diff != "" {
		t.Fatalf("answer (-want +got):\n%s", diff)
	}
	if answer.Took <= 0 {
		t.Errorf("Took = %s", answer.Took)
	}
	if !bytes.Equal(received, body) {
		t.Errorf("received %q, want %q", received, body)
	}
	if got.Method != "POST" || got.Proto != "HTTP/1.1" || got.RequestURI != "/hooks?shop=1" ||
		got.TLS.Version < tls.VersionTLS12 {
		t.Errorf("got %s %s %s by TLS %x", got.Method, got.RequestURI, got.Proto, got.TLS.Version)
	}
	want := http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"evt_1"},
		"User-Agent": {"cardmint-webhooks"}, "Content-Length": {strconv.Itoa(len(body))}}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sent, header); diff != "" {
		t.Errorf("Post has changed the caller's headers:\n%s", diff)
	}
	client.Post(t.Context(), Request{URL: server.URL, Header: http.Header{"User-Agent": {"other"}}})
	if got.UserAgent() != "other" || got.ContentLength != 0 {
		t.Errorf("User-Agent %q, Content-Length %d", got.UserAgent(), got.ContentLength)
	}
}

func TestPost_LineBreakInHeader_SendsNothing(t *testing.T) {
	server := startServer(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, Guard{Insecure: true})
	got := client.Post(t.Context(), Request{URL: server.URL, Header: http.Header{"A": {"b\r\nC: d"}}})
	if got.Status != 0 || server.accepted.Load() != 0 {
		t.Errorf("got %+v and %d connections", got, server.accepted.Load())
	}
}

func TestPost_ForbiddenURL_DoesNotConnect(t *testing.T) {
	server := startServer(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, Guard{})
	for url, want := range map[string]string{
		server.URL:               "the url must begin with https://",
		"https://127.0.0.1:8443": "the url must have a public address: not one that is loopback, private, local or otherwise special",
	} {
		if diff := cmp.Diff(Result{Reason: want}, client.Post(t.Context(), Request{URL: url}),
			noTime); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
	if n := server.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// A proxy would connect to any address. net/http never uses one for 127.0.0.1,
// so the URL has a name.
func TestPost_ProxyInEnvironment_IsIgnored(t *testing.T) {
	proxy := startServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	certificate, pool := certify(t, nil)
	fine := func(http.ResponseWriter, *http.Request) {}
	_, resolver := nameServer(t, "127.0.0.1")
	client := newClient(t, Guard{Insecure: true, RootCAs: pool, Resolver: resolver})
	for _, receiver := range []*server{startServer(t, fine),
		startServer(t, fine, &tls.Config{Certificates: []tls.Certificate{certificate}})} {
		url := strings.Replace(receiver.URL, "127.0.0.1", "shop.example.com", 1)
		if got := client.Post(t.Context(), Request{URL: url}); got.Status != 200 || receiver.accepted.Load() != 1 {
			t.Errorf("%s: got %+v and %d connections", url, got, receiver.accepted.Load())
		}
	}
	if n := proxy.accepted.Load(); n != 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

func TestPost_Redirect_IsNotFollowed(t *testing.T) {
	other := startServer(t, func(http.ResponseWriter, *http.Request) {})
	var status atomic.Int32
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 {
			t.Error("cookies were kept")
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		w.Header().Set("Location", other.URL)
		w.WriteHeader(int(status.Load()))
	})
	client := newClient(t, Guard{Insecure: true})
	for _, code := range []int{301, 302, 303, 307, 308} {
		status.Store(int32(code))
		if diff := cmp.Diff(Result{Status: code}, client.Post(t.Context(), Request{URL: server.URL, Body: []byte("x")}),
			noTime); diff != "" {
			t.Errorf("%d (-want +got):\n%s", code, diff)
		}
	}
	if n := other.accepted.Load(); n != 0 {
		t.Errorf("%d connections to where redirects lead", n)
	}
}

func TestPost_ReadsUpTo64KiB_KeepsConnection(t *testing.T) {
	var length atomic.Int64
	server := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), int(length.Load())))
	})
	client := newClient(t, Guard{Insecure: true})
	for _, step := range []struct {
		length, kept int64
		connections  int32
	}{
		{0, 0, 1}, {10, 10, 1}, {64 << 10, 1024, 1}, {64<<10 + 1, 1024, 1}, // all on one connection, and the last breaks it
		{1, 1, 2},
	} {
		length.Store(step.length)
		got := client.Post(t.Context(), Request{URL: server.URL})
		if got.Status != 200 || len(got.Body) != int(step.kept) || server.accepted.Load() != step.connections {
			t.Errorf("answer of %d bytes: got %d, %q, %d bytes of it, %d connections, want %d", step.length, got.Status,
				got.Reason, len(got.Body),
				server.accepted.Load(), step.connections)
		}
	}
}

// A request that may have arrived is not repeated, even on a reused connection.
func TestPost_BrokenKeptConnection_DoesNotRepeat(t *testing.T) {
	var requests atomic.Int32
	address := startRaw(t, func(conn net.Conn) {
		for in := bufio.NewReader(conn); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			wait(r.Body)
			if requests.Add(1) > 1 {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	client := newClient(t, Guard{Insecure: true})
	for _, want := range []Result{{Status: 204}, {Reason: "the connection was lost"}} {
		if diff := cmp.Diff(want, client.Post(t.Context(), Request{URL: "http://" + address, Body: []byte("x")}),
			noTime); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the receiver got %d requests, want 2", n)
	}
}

func TestPost_NoAnswer_ReturnsReason(t *testing.T) {
	heard := func(say string) func(net.Conn) { // after the request: net/http logs earlier bytes
		return func(conn net.Conn) {
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				wait(r.Body)
				_, _ = io.WriteString(conn, say)
			}
		}
	}
	hang := func(conn net.Conn) {
		heard("HTTP/1.1 200 OK\r\nA: ")(conn)
		wait(conn)
	}
	reset := func(conn net.Conn) {
		heard("")(conn)
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	for name, test := range map[string]struct {
		talk func(net.Conn)
		want string
	}{
		"hangs":             {func(conn net.Conn) { wait(conn) }, "no answer within 100ms"},
		"hangs in a header": {hang, "no answer within 100ms"},
		"hangs up":          {heard(""), "the connection was lost"},
		"hangs up early":    {func(net.Conn) {}, "the connection was lost"},
		"resets":            {reset, "the connection was lost"},
		"breaks in a line":  {heard("HTTP/1.1 20"), notHTTP},
		"breaks in headers": {heard("HTTP/1.1 200 OK\r\nA: b\r\n"), "the connection was lost"},
		"speaks SSH":        {heard("SSH-2.0-OpenSSH_9.2p1\r\n"), notHTTP},
		"speaks no HTTP":    {heard("\x00\x01\x02\x03\r\n\r\n"), notHTTP},
		"status is a word":  {heard("HTTP/1.1 fine\r\n\r\n"), notHTTP},
		"status 000":        {heard("HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n"), notHTTP},
		"header is none":    {heard("HTTP/1.1 200 OK\r\n127.0.0.1\r\n\r\n"), notHTTP},
		"length is a word":  {heard("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), notHTTP},
		"speaks TLS":        {heard("\x15\x03\x01\x00\x02\x02\x46"), notHTTP},
		"endless headers": {heard("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 40)),
			"the headers of the answer are too long"},
		"endless 1xx": {
			heard(strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: "+strings.Repeat("x", 1000)+"\r\n\r\n", 40)),
			"the headers of the answer are too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard := Guard{Insecure: true}
			if strings.HasPrefix(test.want, "no answer within") {
				guard.Timeout = soon
			}
			client := newClient(t, guard)
			got := client.Post(t.Context(), Request{URL: "http://" + startRaw(t, test.talk), Body: []byte("x")})
			if diff := cmp.Diff(Result{Reason: test.want}, got, noTime); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPost_NoConnection_ReturnsReason(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	_, resolver := nameServer(t) // knows no addresses
	client := newClient(t, Guard{Insecure: true, Resolver: resolver})
	given, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx       context.Context
		url, want string
	}{
		{t.Context(), "http://" + listener.Addr().String(), "the connection was refused"},
		{t.Context(), "http://shop.example.com", "the name of the host can't be resolved"},
		{given, "http://" + listener.Addr().String(), "the request was canceled before an answer arrived"},
	} {
		if diff := cmp.Diff(Result{Reason: test.want}, client.Post(test.ctx, Request{URL: test.url}),
			noTime); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.url, diff)
		}
	}
}

// A ServerHello that chooses TLS 1.1, as of an old server.
const oldHello = "\x16\x03\x02\x00\x2a" + "\x02\x00\x00\x26\x03\x02" + "0123456789abcdef0123456789abcdef" +
	"\x00\xc0\x13\x00"

func TestPost_TLSFailure_ReturnsReason(t *testing.T) {
	hello := func(say string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, say)
			wait(conn)
		}
	}
	for name, test := range map[string]struct {
		edit     func(*x509.Certificate)
		stranger bool
		settings *tls.Config
		talk     func(net.Conn)
		want     string
	}{
		"expired": {edit: func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		}, want: "TLS: the certificate has expired"},
		"not valid yet": {edit: func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Minute)
		}, want: "TLS: the certificate is not valid yet"},
		"wrong host": {edit: func(c *x509.Certificate) {
			c.IPAddresses = nil
		}, want: "TLS: the certificate is not for this host"},
		"self-signed": {stranger: true, want: "TLS: the certificate is not signed by an authority that is trusted"},
		"for clients": {edit: func(c *x509.Certificate) {
			c.ExtKeyUsage[0] = x509.ExtKeyUsageClientAuth
		}, want: "TLS: the certificate is not valid"},
		"1.0 and 1.1": {settings: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
			want: "TLS: the protocol version is too old: 1.2 is the least"},
		"chooses 1.1": {talk: hello(oldHello), want: "TLS: the protocol version is too old: 1.2 is the least"},
		"asks for ours": {settings: &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12},
			want: "TLS: the handshake failed"},
		"refuses":        {talk: hello("\x15\x03\x01\x00\x02\x02\x28"), want: "TLS: the handshake failed"},
		"speaks HTTP":    {talk: hello("HTTP/1.1 400 Bad Request\r\n\r\n"), want: "TLS: the port does not speak it"},
		"hangs up":       {talk: func(net.Conn) {}, want: "the connection was lost"},
		"hangs":          {talk: func(conn net.Conn) { wait(conn) }, want: "no answer within 100ms"},
		"nothing at all": {want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certificate, pool := certify(t, test.edit)
			if test.stranger {
				pool = x509.NewCertPool()
			}
			guard := Guard{Insecure: true, RootCAs: pool}
			if name == "hangs" {
				guard.Timeout = soon
			}
			var url string
			if test.talk != nil {
				url = "https://" + startRaw(t, test.talk)
			} else {
				settings := new(tls.Config)
				if test.settings != nil {
					settings = test.settings
				}
				settings.Certificates = []tls.Certificate{certificate}
				url = startServer(t, func(http.ResponseWriter, *http.Request) {}, settings).URL
			}
			client := newClient(t, guard)
			got := client.Post(t.Context(), Request{URL: url, Body: []byte("x")})
			if got.Reason != test.want || (got.Status == 0) != (test.want != "") {
				t.Errorf("got %d, %q, want %q", got.Status, got.Reason, test.want)
			}
		})
	}
}

// The status counts even if the rest of the response does not arrive.
func TestPost_UnfinishedAnswer_KeepsStatus(t *testing.T) {
	say := func(then func(net.Conn), first string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, first)
			then(conn)
		}
	}
	endless := func(conn net.Conn) {
		for {
			if _, err := conn.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	}
	for name, test := range map[string]struct {
		timeout time.Duration
		talk    func(net.Conn)
		want    Result
	}{
		"endless": {0, say(endless, "HTTP/1.1 200 OK\r\n\r\n"), Result{Status: 200, Body: strings.Repeat("x", 1024)}},
		"breaks": {0, say(func(net.Conn) {}, "HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\nhalf"),
			Result{Status: 500, Body: "half"}},
		"slow": {time.Second, say(func(c net.Conn) { wait(c) }, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
			Result{Status: 200, Body: "half"}},
		"switches": {0, say(func(c net.Conn) { wait(c) }, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: ws\r\n\r\n"),
			Result{Status: 101}},
		"hints": {0, say(func(net.Conn) {}, "HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"),
			Result{Status: 410}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, Guard{Insecure: true, Timeout: test.timeout})
			got := client.Post(t.Context(), Request{URL: "http://" + startRaw(t, test.talk), Body: []byte("x")})
			if diff := cmp.Diff(test.want, got, noTime); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPost_Body_IsPlainText(t *testing.T) {
	var body atomic.Pointer[string]
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("asks for a compressed answer")
		}
		_, _ = io.WriteString(w, *body.Load())
	})
	client := newClient(t, Guard{Insecure: true})
	for raw, want := range map[string]string{
		"a\x00b\x01\r\n\tc\x7f":                    "ab\n\tc",
		"\x1b[31mred\x1b]0;title\x07 \u009b2J":     "[31mred]0;title 2J",
		"a\xff\xfeb\xc3":                           "ab",
		"<script>alert(1)</script> & 'so' \"on\"":  "<script>alert(1)</script> & 'so' \"on\"",
		"grün 日本 🙂":                                "grün 日本 🙂",
		strings.Repeat("x", 1023) + "é" + "y":      strings.Repeat("x", 1023),
		strings.Repeat("é", 600):                   strings.Repeat("é", 512),
		strings.Repeat("\x00", 1024) + "not shown": "",
	} {
		body.Store(&raw)
		got := client.Post(t.Context(), Request{URL: server.URL})
		if got.Body != want || !utf8.ValidString(got.Body) {
			t.Errorf("%q became %q, want %q", raw, got.Body, want)
		}
	}
}

func TestPost_RetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                                0,
		"0":                               0,
		"120":                             2 * time.Minute,
		"007":                             7 * time.Second,
		"86400":                           24 * time.Hour,
		"2147483647":                      2147483647 * time.Second,
		"2147483648":                      0,
		"99999999999999999999999":         0,
		"-5":                              0,
		"+5":                              0,
		"1.5":                             0,
		"1e3":                             0,
		"0x10":                            0,
		"1_0":                             0,
		"soon":                            0,
		"120, 60":                         0,
		"Fri, 20 Nov 2026 12:00:30 GMT":   30 * time.Second,
		"Friday, 20-Nov-26 12:01:00 GMT":  time.Minute, // the two forms that are obsolete
		"Fri Nov 20 13:00:00 2026":        time.Hour,
		"Fri, 20 Nov 2026 11:59:59 GMT":   0,
		"Thu, 01 Jan 1970 00:00:00 GMT":   0,
		"Fri, 31 Dec 9999 23:59:59 GMT":   1<<63 - 1,
		"Fri, 20 Nov 2026 12:00:30 +0100": 0,
		"2026-11-20T12:00:30Z":            0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", value, got, want)
		}
	}
	server := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	client := newClient(t, Guard{Insecure: true})
	got := client.Post(t.Context(), Request{URL: server.URL})
	if diff := cmp.Diff(Result{Status: 503, RetryAfter: 2 * time.Minute}, got, noTime); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// answering returns a handler that answers each request on a connection with
// the same bytes, until then returns false. It counts connections.
func answering(connections *atomic.Int32, say string, then func(net.Conn) (more bool)) func(net.Conn) {
	return func(conn net.Conn) {
		connections.Add(1)
		for in := bufio.NewReader(conn); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			wait(r.Body)
			if _, err := io.WriteString(conn, say); err != nil || !then(conn) {
				return
			}
		}
	}
}

func TestPost_UnsolicitedBytes_CloseConnection(t *testing.T) {
	more := func(net.Conn) bool { return true }
	for name, test := range map[string]struct {
		say         string
		then        func(net.Conn) bool
		connections int32 // for three requests
	}{
		"no body":  {"HTTP/1.1 204 No Content\r\n\r\n", more, 1},
		"a length": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine", more, 1},
		"chunks":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n", more, 1},
		"chunks and a trailer": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n4\r\nfine\r\n0\r\nA: b\r\n\r\n", more, 1},
		"hints":                {"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", more, 1},
		"wants it closed":      {"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", more, 3},
		"HTTP/1.0":             {"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine", more, 3},
		"until the end":        {"HTTP/1.1 200 OK\r\n\r\nfine", func(net.Conn) bool { return false }, 3},
		"hangs up unasked":     {"HTTP/1.1 204 No Content\r\n\r\n", func(net.Conn) bool { return false }, 3},
		"more than its length": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfineHTTP/1.1 410 Gone\r\n\r\n", more, 3},
		"a body of no content": {"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 410 Gone\r\n\r\n", more, 3},
		"speaks unasked": {"HTTP/1.1 204 No Content\r\n\r\n", func(conn net.Conn) bool {
			time.Sleep(10 * time.Millisecond)
			_, _ = io.WriteString(conn, "HTTP/1.1 410 Gone\r\n\r\n")
			return true
		}, 3},
		"half a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nfine", func(net.Conn) bool {
			return false
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int32
			address := startRaw(t, answering(&connections, test.say, test.then))
			client := newClient(t, Guard{Insecure: true}) // closed before the receiver waits for the end of its connections
			for range 3 {
				if got := client.Post(t.Context(), Request{URL: "http://" + address, Body: []byte("x")}); got.Status/100 != 2 {
					t.Errorf("got %+v", got)
				}
				time.Sleep(50 * time.Millisecond) // for the receiver's next action
			}
			if n := connections.Load(); n != test.connections {
				t.Errorf("%d connections, want %d", n, test.connections)
			}
		})
	}
}

func TestPost_TLS_KeepsConnection(t *testing.T) {
	certificate, pool := certify(t, nil)
	server := startServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") },
		&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
	client := newClient(t, Guard{Insecure: true, RootCAs: pool})
	for range 5 {
		if got := client.Post(t.Context(), Request{URL: server.URL, Body: []byte("x")}); got.Status != 200 || got.Body != "fine" {
			t.Errorf("got %+v", got)
		}
	}
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// net/http hides write errors of the body.
func TestPost_UnreadBody_ReturnsReason(t *testing.T) {
	for want, talk := range map[string]func(net.Conn){
		"no answer within 100ms": func(net.Conn) { time.Sleep(3 * soon) },
		"the connection was lost": func(conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, 100))
			_ = conn.(*net.TCPConn).SetLinger(0)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			guard := Guard{Insecure: true}
			if strings.HasPrefix(want, "no answer") {
				guard.Timeout = soon
			}
			address := startRaw(t, talk)
			client := newClient(t, guard)
			got := client.Post(t.Context(), Request{URL: "http://" + address, Body: make([]byte, 16<<20)})
			if diff := cmp.Diff(Result{Reason: want}, got, noTime); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPost_EarlyAnswer_IsRead(t *testing.T) {
	address := startRaw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		_ = conn.(*net.TCPConn).CloseWrite()
		wait(conn)
	})
	client := newClient(t, Guard{Insecure: true})
	got := client.Post(t.Context(), Request{URL: "http://" + address, Body: make([]byte, 32<<10)})
	if diff := cmp.Diff(Result{Status: 413}, got, noTime); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPost_Canceled_ReturnsImmediately(t *testing.T) {
	gone := make(chan struct{})
	client := newClient(t, Guard{Insecure: true})
	ctx, cancel := context.WithCancel(t.Context())
	address := startRaw(t, func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		cancel()
		wait(conn)
		close(gone)
	})
	got := client.Post(ctx, Request{URL: "http://" + address})
	if diff := cmp.Diff(Result{Reason: "the request was canceled before an answer arrived"}, got, noTime); diff != "" ||
		got.Took > 5*time.Second {
		t.Errorf("after %s (-want +got):\n%s", got.Took, diff)
	}
	<-gone // the connection is closed, not kept
}

func TestPost_ManyConcurrent_KeepsFewConnections(t *testing.T) {
	const many = 3 * maxIdlePerTarget
	var all, answered sync.WaitGroup
	all.Add(many)
	var open atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait()
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := newClient(t, Guard{Insecure: true})
	for range many {
		answered.Go(func() { client.Post(t.Context(), Request{URL: server.URL}) })
	}
	answered.Wait()
	for deadline := time.Now().Add(5 * time.Second); open.Load() != maxIdlePerTarget; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open, want %d", open.Load(), maxIdlePerTarget)
		}
	}
}

func TestPost_NotAdmitted_DoesNotConnect(t *testing.T) {
	server := startServer(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, Guard{Insecure: true})
	for i, wait := range []time.Duration{time.Second, 0} {
		var asked []netip.Addr
		got := client.Post(t.Context(), Request{URL: server.URL, Body: []byte("x"),
			Admit: func(a netip.Addr) time.Duration {
				asked = append(asked, a)
				return wait
			}})
		admitted := wait == 0
		if got.Postponed != wait || (got.Status == 200) != admitted || got.Address.IsValid() != admitted {
			t.Errorf("got %+v", got)
		}
		if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, asked, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("Admit was called for (-want +got):\n%s", diff)
		}
		if n := server.accepted.Load(); int(n) != i {
			t.Errorf("%d connections, want %d", n, i)
		}
	}
}
