package outbound

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// refusals contains forbidden URLs by their error.
var refusals = map[string][]string{
	"must begin with https://": {
		"", "shop.example.com", "shop.example.com/hooks", "shop.example.com:8443", "//shop.example.com/", "/hooks", "?",
		"https:shop.example.com",
		"http://shop.example.com/", "HTTP://shop.example.com/", "file:///etc/passwd", "gopher://shop.example.com/_x",
		"ftp://shop.example.com/",
		"javascript:alert(1)", "data:text/plain,x", "dict://shop.example.com:11211/", "ldap://shop.example.com/",
		"jar:https://shop.example.com!/",
		"ws://shop.example.com/", "unix:///run/docker.sock", "httpss://shop.example.com/",
		"http://169.254.169.254/latest/meta-data/",
	},
	"must be a URL": {
		"https://[::1", "https://[127.0.0.1]/", "https://::1/", "https://shop.example.com:port/",
		"https://shop.example.com:-1/", "127.0.0.1:443/",
		"https://127%2e0.0.1/", "https://shop.example.com%00/", "https://shop.example.com/%zz", "https://[fe80::1%eth0]/",
		"://shop.example.com/",
		"https://a:443:443/", "https://shop.example.com:443@[::1/",
	},
	"must name a host": {"https://", "https:///hooks", "https:/shop.example.com/", "https://:443/", "https://?q",
		"https://user@/"},
	"must not hold a user": {
		"https://user@shop.example.com/", "https://user:word@shop.example.com/", "https://@shop.example.com/",
		"https://:@shop.example.com/",
		"https://shop.example.com@127.0.0.1/", "https://shop.example.com:443@169.254.169.254/",
		"https://a%40b@shop.example.com/",
	},
	"must not hold a fragment": {"https://shop.example.com/#x", "https://shop.example.com#",
		"https://shop.example.com#@127.0.0.1/"},
	"must not hold spaces": {
		" https://shop.example.com/", "https://shop.example.com/ ", "https://shop.example.com/a b",
		"https://shop.example.com/\r\nHost: x",
		"https://shop.example.com/\x00", "https://shop.example.com/\x7f", "https://shop.example.com\t/",
		`https://shop.example.com\@127.0.0.1/`,
		`https:\\127.0.0.1\`, `\\shop.example.com\share`,
	},
	"must be ASCII": {
		"https://bücher.example.com/", "https://１２７.0.0.1/", "https://127。0。0。1/", "https://ⓛocalhost/",
		"https://shop.example.com/ü",
		"https://shop.example.com/\xff", "https://shop.example.com/\u0085", "https://shop.example.com／x/",
	},
	"must not be longer": {"https://shop.example.com/" + strings.Repeat("a", 2048-24)},
	"must have a host that does not end with a dot": {
		"https://shop.example.com./", "https://localhost./", "https://127.0.0.1./", "https://shop.example.com..:8443/",
		"https://./",
	},
	"four decimal numbers": {
		"https://2130706433/", "https://0x7f000001/", "https://017700000001/", "https://0177.0.0.1/", "https://0x7f.0.0.1/",
		"https://127.1/",
		"https://127.0.1/", "https://0/", "https://127.0.0.0x1/", "https://127.0.0.01/", "https://0x7f.1/",
		"https://1.2.3.4.5/", "https://256.0.0.1/",
		"https://1.1.1.0X1/", "https://93.184.216.034/", "https://3232235521:8443/", "https://127..1/",
		"https://shop.example.0x/",
	},
	"letters, digits, hyphens and dots": {
		"https://shop_1.example.com/", "https://shop..example.com/", "https://.example.com/", "https://-shop.example.com/",
		"https://shop-.example.com/",
		"https://*.example.com/", "https://shop,example.com/", "https://shop!.example.com/", "https://%EF%BC%91.example.com/",
		"https://" + strings.Repeat("a", 64) + ".example.com/", "https://" + strings.Repeat("a.", 126) + "com/",
		"https://a" + strings.Repeat("a.", 125) + "com/", "https://$(id).example.com/",
	},
	"the internet can reach": {
		"https://localhost/", "https://LocalHost:8443/", "https://a.localhost/", "https://printer.local/",
		"https://metadata.google.internal/",
		"https://localhost.localdomain/", "https://db.LocalDomain/", "https://nas.lan/", "https://x.home/",
		"https://ldap.corp/", "https://x.intranet/",
		"https://x.private/", "https://x.invalid/", "https://x.HOME.arpa/", "https://home.arpa/",
		"https://expyuzz4wqqyqhjn.onion/", "https://intranet/", "https://redis:6379/", "https://com/",
	},
	"must have an address without a zone": {"https://[fe80::1%25eth0]/", "https://[::1%251]/",
		"https://[2606:4700::1111%25lo]/"},
	"must have a public address": {
		"https://0.0.0.0/", "https://127.0.0.1/", "https://127.8.8.8:8443/", "https://10.1.2.3/", "https://172.16.0.1/",
		"https://192.168.1.1/",
		"https://169.254.169.254/latest/meta-data/", "https://100.100.100.200/", "https://192.0.0.192/",
		"https://198.18.0.1/", "https://224.0.0.1/",
		"https://255.255.255.255/", "https://[::]/", "https://[::1]/", "https://[0:0:0:0:0:0:0:1]/",
		"https://[::ffff:127.0.0.1]/",
		"https://[::ffff:7f00:1]/", "https://[::ffff:8.8.8.8]/", "https://[::127.0.0.1]/", "https://[::ffff:0:127.0.0.1]/",
		"https://[64:ff9b::7f00:1]/", "https://[64:ff9b::808:808]/", "https://[64:ff9b:1::a00:1]/",
		"https://[2002:7f00:1::]/",
		"https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "https://[fd00:ec2::254]/", "https://[fe80::1]/",
		"https://[fec0::1]/",
		"https://[ff02::1]/", "https://[100::1]/", "https://[2001:db8::1]/", "https://[5f00::1]/",
	},
	"must have port 443": {
		"https://shop.example.com:22/", "https://shop.example.com:25/", "https://shop.example.com:80/",
		"https://shop.example.com:445/",
		"https://93.184.216.34:110/", "https://[2606:4700::1111]:1023/", "https://shop.example.com:1/",
	},
	"must have a port from 1": {
		"https://shop.example.com:/", "https://shop.example.com:0/", "https://shop.example.com:65536/",
		"https://shop.example.com:0443/",
		"https://shop.example.com:99999999999999999999/",
	},
}

func TestGuard_ForbiddenURLs_AreRejected(t *testing.T) {
	for want, urls := range refusals {
		for _, raw := range urls {
			err := Guard{}.CheckURL(raw)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("CheckURL(%q) = %v, want %q", raw, err, want)
			}
		}
	}
}

func TestGuard_PublicURLs_AreAccepted(t *testing.T) {
	for _, raw := range []string{
		"https://shop.example.com", "https://shop.example.com/", "HTTPS://Shop.Example.COM/Hooks",
		"https://shop.example.com:443/",
		"https://shop.example.com:1024/", "https://shop.example.com:65535/hooks?shop=1&x=%20", "https://shop.example.com?x",
		"https://a.co/@me",
		"https://xn--bcher-kva.example/", "https://1.example.com/", "https://0x7f.example.com/", "https://a--b.example.com/",
		"https://localhost.example.com/",
		"https://internal.example.com/", "https://93.184.216.34/", "https://8.8.8.8:8443/", "https://[2606:4700::1111]/",
		"https://[2606:4700::1111]:8443/x",
		"https://AZaz09.example.com/", "https://" + strings.Repeat("a", 63) + ".example.com/",
		"https://" + strings.Repeat("a.", 125) + "com/",
		"https://shop.example.com/?next=http://127.0.0.1/", "https://shop.example.com/%2e%2e/%0d%0a",
		"https://shop.example.com/" + strings.Repeat("a", 2048-25),
	} {
		if err := (Guard{}).CheckURL(raw); err != nil {
			t.Errorf("CheckURL(%q) = %v", raw, err)
		}
		if err := (Guard{Insecure: true}).CheckURL(raw); err != nil {
			t.Errorf("insecure: CheckURL(%q) = %v", raw, err)
		}
	}
}

func TestGuard_Insecure_AcceptsPrivateURLs(t *testing.T) {
	guard := Guard{Insecure: true}
	for _, raw := range []string{
		"http://localhost:8080/hooks", "http://127.0.0.1:80/", "http://[::1]:3000/", "https://localhost/",
		"http://receiver/", "http://host.docker.internal:99/",
		"http://192.168.1.7:8000/", "http://shop.example.com/", "http://7f3ab21c:1/",
	} {
		if err := guard.CheckURL(raw); err != nil {
			t.Errorf("CheckURL(%q) = %v", raw, err)
		}
	}
	for _, raw := range []string{
		"", "ftp://localhost/", "http:localhost", "http://", "http://u@localhost/", "http://localhost/#x", "http://127.1/",
		"http://2130706433/",
		"http://0x7f000001/", "http://localhost./", "http://a_b/", "http://[fe80::1%25eth0]/", "http://localhost:0/",
		"http://localhost:65536/", `http:\\localhost`,
	} {
		if err := guard.CheckURL(raw); err == nil {
			t.Errorf("CheckURL(%q) = nil", raw)
		}
	}
}

// special are addresses that the guard must reject.
var special = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.100.100.200", "100.127.255.255", "127.0.0.1",
	"127.255.255.255",
	"169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.192",
	"192.0.2.1", "192.31.196.1",
	"192.52.193.1", "192.88.99.1", "192.168.0.0", "192.168.255.255", "192.175.48.1", "198.18.0.0", "198.19.255.255",
	"198.51.100.1", "203.0.113.1",
	"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:7f00:1",
	"64:ff9b::7f00:1", "64:ff9b::808:808",
	"64:ff9b:1::a00:1", "100::1", "100:0:0:1::1", "1fff:ffff::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
	"2001:2::1", "2001:10::1", "2001:20::1",
	"2001:1ff:ffff::1", "2001:db8::1", "2001:db8:ffff:ffff::", "2002::1", "2002:7f00:1::", "2002:808:808::",
	"2620:4f:8000::1", "3fff::1", "3fff:fff:ffff::1",
	"4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fdff:ffff::1", "fe80::1", "fe80::1%eth0", "fe80::5efe:7f00:1",
	"febf::1", "fec0::1", "ff02::1",
	"ff0e::1", "2606:4700::1111%eth0",
}

func TestGuard_SpecialAddresses_AreRejected(t *testing.T) {
	control := Guard{}.dialer().ControlContext
	for _, address := range special {
		to := netip.AddrPortFrom(netip.MustParseAddr(address), 443).String()
		if err := control(t.Context(), "tcp", to, nil); !errors.Is(err, errNotPublic) {
			t.Errorf("connecting to %s: %v, want %v", to, err, errNotPublic)
		}
		if err := (Guard{Insecure: true}).dialer().ControlContext(t.Context(), "tcp", to, nil); err != nil {
			t.Errorf("insecure: connecting to %s: %v", to, err)
		}
	}
	for _, address := range []string{"", "127.0.0.1", "localhost:443", "/run/docker.sock", "8.8.8.8", "[::1]:http",
		"shop.example.com:443"} {
		if err := control(t.Context(), "tcp", address, nil); !errors.Is(err, errNotPublic) {
			t.Errorf("connecting to %q: %v, want %v", address, err, errNotPublic)
		}
	}
}

func TestGuard_PublicAddresses_AreAccepted(t *testing.T) {
	for _, address := range []string{
		"1.0.0.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0",
		"126.255.255.255", "128.0.0.0", "172.15.255.255",
		"172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"::ffff:8.8.8.8",
		"2000::1", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700::1111", "2620:4f:8001::1", "2a00:1450::1",
		"3ffe:ffff::1",
	} {
		to := netip.AddrPortFrom(netip.MustParseAddr(address), 8443).String()
		if err := (Guard{}).dialer().ControlContext(t.Context(), "tcp", to, nil); err != nil {
			t.Errorf("connecting to %s: %v", to, err)
		}
	}
}

// names is a name server on loopback that gives every name the same addresses.
type names struct{ addresses atomic.Pointer[[]netip.Addr] }

func (n *names) say(addresses ...string) {
	var all []netip.Addr
	for _, a := range addresses {
		all = append(all, netip.MustParseAddr(a))
	}
	n.addresses.Store(&all)
}

// answer makes the answer to a query with one question. Source: RFC 1035
// section 4.
func (n *names) answer(query []byte) []byte {
	end := 12 // the header's length
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // root, type and class
	kind := binary.BigEndian.Uint16(query[end-4:])
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	for _, a := range *n.addresses.Load() {
		if kind == 1 && a.Is4() || kind == 28 && a.Is6() { // A, AAAA
			answer[7]++
			answer = append(answer, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(a.BitLen()/8))
			answer = append(answer, a.AsSlice()...)
		}
	}
	return answer
}

// nameServer starts a name server and returns it with a resolver that asks it.
func nameServer(t *testing.T, addresses ...string) (*names, *net.Resolver) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var n names
	n.say(addresses...)
	var done sync.WaitGroup
	done.Go(func() {
		for query := make([]byte, 1500); ; {
			length, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(n.answer(query[:length]), from)
		}
	})
	t.Cleanup(func() { _ = socket.Close(); done.Wait() })
	return &n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

func newClient(t *testing.T, g Guard) *Client {
	t.Helper()
	c := NewClient(g)
	t.Cleanup(c.Close)
	return c
}

// server is a receiver that counts the connections it gets.
type server struct {
	*httptest.Server
	accepted atomic.Int32
}

func startServer(t *testing.T, handler http.HandlerFunc, settings ...*tls.Config) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(handler)}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.accepted.Add(1)
		}
	}
	if len(settings) == 0 {
		s.Start()
	} else {
		s.TLS = settings[0]
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return s
}

const notPublic = "the address of the host is not allowed: it is not public"

func TestGuard_ReboundName_DoesNotConnect(t *testing.T) {
	server := startServer(t, func(w http.ResponseWriter, _ *http.Request) {})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	names, resolver := nameServer(t, "93.184.216.34")
	client := newClient(t, Guard{Resolver: resolver})

	found, err := resolver.LookupNetIP(t.Context(), "ip", "shop.example.com") // a check before the call
	if err != nil || len(found) != 1 || !public(found[0]) {
		t.Fatalf("LookupNetIP = %v, %v, want a public address", found, err)
	}
	for _, rebound := range [][]string{
		{"127.0.0.1"}, {"127.0.0.1", "::1"}, {"::ffff:127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "::"},
		{"203.0.113.7", "127.0.0.1", "64:ff9b::7f00:1"},
		{"169.254.169.254", "fd00:ec2::254"},
	} {
		names.say(rebound...)
		if got := client.Post(t.Context(), Request{URL: "https://shop.example.com:" + port + "/"}); got.Reason != notPublic || got.Status != 0 {
			t.Errorf("name has %v: got %+v", rebound, got)
		}
	}
	if n := server.accepted.Load(); n != 0 {
		t.Errorf("loopback's listener has seen %d connections", n)
	}

	// An insecure guard connects to the same address.
	names.say("127.0.0.1")
	insecure := newClient(t, Guard{Insecure: true, Resolver: resolver})
	if got := insecure.Post(t.Context(), Request{URL: "http://shop.example.com:" + port + "/"}); got.Status != 200 || server.accepted.Load() != 1 {
		t.Errorf("insecure: got %+v and %d connections", got, server.accepted.Load())
	}
}

// A public address does not make the name's other addresses acceptable.
func TestGuard_SeveralAddresses_ChecksEach(t *testing.T) {
	_, resolver := nameServer(t, "10.0.0.1", "93.184.216.34", "127.0.0.1", "169.254.169.254")
	dialer := Guard{Resolver: resolver}.dialer()
	judge := dialer.ControlContext
	var mu sync.Mutex
	got := map[string]bool{}
	dialer.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		mu.Lock()
		defer mu.Unlock()
		got[address] = judge(ctx, network, address, raw) == nil
		return errors.New("nothing leaves a test")
	}
	if conn, err := dialer.DialContext(t.Context(), "tcp", "shop.example.com:443"); err == nil {
		_ = conn.Close()
		t.Error("connected")
	}
	want := map[string]bool{"10.0.0.1:443": false, "93.184.216.34:443": true, "127.0.0.1:443": false,
		"169.254.169.254:443": false}
	if diff := cmp.Diff(want, maps.Clone(got)); diff != "" {
		t.Errorf("who may be connected (-want +got):\n%s", diff)
	}
}

func FuzzGuard_CheckURL(f *testing.F) {
	for _, urls := range refusals {
		for _, raw := range urls {
			f.Add(raw)
		}
	}
	f.Add("https://shop.example.com:8443/hooks?x=%20")
	f.Add("https://[2606:4700::1111]:8443/")
	f.Add("https://93.184.216.34/")
	f.Fuzz(func(t *testing.T, raw string) {
		if (Guard{}).CheckURL(raw) != nil {
			return
		}
		if err := (Guard{Insecure: true}).CheckURL(raw); err != nil {
			t.Errorf("accepted, but not when insecure: %v", err)
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.Hostname() == "" {
			t.Fatalf("accepted: %#v, %v", u, err)
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && (!ip.IsGlobalUnicast() || ip.IsPrivate()) {
			t.Errorf("accepted address %s", ip)
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && (!public(a) || a.Is4In6() || a.Zone() != "") {
			t.Errorf("accepted address %s", a)
		}
		if _, err := http.NewRequest(http.MethodPost, raw, nil); err != nil {
			t.Errorf("accepted, but no request: %v", err)
		}
	})
}
