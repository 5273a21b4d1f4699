package outbound

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const longestURL = 2048

// errNotPublic means that the dialer rejected an address.
var errNotPublic = errors.New("address is not public")

// Guard decides to which URLs and addresses a Client may send requests.
type Guard struct {
	Insecure bool           // allows plain http, and loopback, private and other special addresses; for development
	RootCAs  *x509.CertPool // Defaults to the system's.
	Resolver *net.Resolver  // Defaults to net.DefaultResolver.
	Timeout  time.Duration  // Limits a whole attempt. Defaults to 15 s.
}

// CheckURL returns an error if a URL is not allowed. The text explains how to
// fix it, and completes a sentence that begins with "url". CheckURL does not
// resolve the host, so the dialer may still refuse the address of a URL that
// passes.
func (g Guard) CheckURL(raw string) error {
	_, err := g.parse(raw)
	return err
}

func (g Guard) parse(raw string) (*url.URL, error) {
	switch {
	case len(raw) > longestURL:
		return nil, errors.New("must not be longer than 2,048 characters")
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }):
		return nil, errors.New("must not hold spaces, control characters or backslashes: percent-encode them")
	case strings.ContainsFunc(raw, func(r rune) bool { return r > 0x7f }):
		return nil, errors.New("must be ASCII: write the host in punycode (xn--...) and percent-encode the rest")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil: // without the cause, which quotes the URL
		return nil, errors.New("must be a URL such as https://shop.example.com/hooks")
	case u.Scheme != "https" && !g.Insecure, u.Opaque != "":
		return nil, errors.New("must begin with https://")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("must begin with https:// or http://")
	case u.Hostname() == "":
		return nil, errors.New("must name a host, such as https://shop.example.com/hooks")
	case u.User != nil:
		return nil, errors.New(
			"must not hold a user or a password: remove what is before the @, and check the signature instead")
	case strings.Contains(raw, "#"): // finds an empty fragment too
		return nil, errors.New("must not hold a fragment: remove the # and what follows it")
	}
	if err := g.checkHost(u); err != nil {
		return nil, err
	}
	return u, g.checkPort(u)
}

func (g Guard) checkHost(u *url.URL) error {
	host := u.Hostname()
	labels := strings.Split(host, ".")
	last := strings.ToLower(labels[len(labels)-1])
	address, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		return g.checkAddress(address)
	case last == "":
		return errors.New("must have a host that does not end with a dot")
	case strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x"):
		// Other programs would read it as an address: to inet_aton, 2130706433,
		// 0x7f000001, 0177.0.0.1 and 127.1 are all 127.0.0.1.
		return errors.New("must have a host that is a name, or an IPv4 address of four decimal numbers without leading zeros")
	case len(host) > 253 || !wellFormed(labels):
		return errors.New("must have a host of letters, digits, hyphens and dots, such as shop.example.com")
	case !g.Insecure && (len(labels) == 1 || local(host)):
		return errors.New("must have a host that the internet can reach: not localhost, and no name of a local network")
	}
	return nil
}

func (g Guard) checkAddress(address netip.Addr) error {
	switch {
	case address.Zone() != "":
		return errors.New("must have an address without a zone: remove the %25 and what follows it")
	case !g.Insecure && (address.Is4In6() || !public(address)):
		return errors.New("must have a public address: not one that is loopback, private, local or otherwise special")
	}
	return nil
}

func (g Guard) checkPort(u *url.URL) error {
	text := u.Port()
	if text == "" && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || port == 0 || text != strconv.FormatUint(port, 10):
		return errors.New("must have a port from 1 to 65535, or none")
	case !g.Insecure && port != 443 && port < 1024:
		return errors.New("must have port 443, or one from 1024 to 65535")
	}
	return nil
}

// wellFormed reports whether labels form a valid host name. Source: RFC 1123
// section 2.1.
func wellFormed(labels []string) bool {
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return true
}

// local reports whether a name is reserved, and never belongs to a host on the
// public internet.
func local(host string) bool {
	host = "." + strings.ToLower(host)
	for _, suffix := range []string{
		// registries of special-use names and the root zone
		".localhost", ".local", ".internal", ".home.arpa", ".onion", ".invalid",
		".localdomain", ".intranet", ".private", ".corp", ".home", ".lan", // local by custom: RFC 6762 appendix G, /etc/hosts
	} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// public reports whether an address may belong to a host on the public
// internet. Source: IANA's special-purpose address registries (RFC 6890),
// https://www.iana.org/assignments/iana-ipv4-special-registry and
// https://www.iana.org/assignments/iana-ipv6-special-registry. It excludes even
// the globally reachable ones: no receiver has one.
func public(address netip.Addr) bool {
	address = address.Unmap()
	special := []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
		"192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24", // protocols, AS112, AMT
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", // documentation, benchmarks
		"192.88.99.0/24",             // relays of 6to4
		"224.0.0.0/4", "240.0.0.0/4", // multicast, reserved, broadcast
	}
	if !address.Is4() {
		// This excludes ::, ::1, NAT64, 100::, 5f00::, fc00::, fe80::, fec0::
		// and ff00::, and every address with a zone, which no prefix contains.
		if !netip.MustParsePrefix("2000::/3").Contains(address) {
			return false
		}
		special = []string{
			"2001::/23",                  // protocols: Teredo, benchmarks, ORCHID and others
			"2002::/16",                  // 6to4, which holds an IPv4 address
			"2001:db8::/32", "3fff::/20", // documentation
			"2620:4f:8000::/48", // AS112
		}
	}
	for _, prefix := range special {
		if netip.MustParsePrefix(prefix).Contains(address) {
			return false
		}
	}
	return true
}

// postponed is the wait that Request.Admit returned.
type postponed time.Duration

func (p postponed) Error() string { return "too many requests to the address" }

type admitKey struct{}

// withAdmit passes Request.Admit to the dialer. net/http calls the dialer, and
// forwards only the context.
func withAdmit(ctx context.Context, admit func(netip.Addr) time.Duration) context.Context {
	if admit == nil {
		return ctx
	}
	return context.WithValue(ctx, admitKey{}, admit)
}

// dialer returns the client's only dialer. It checks each address when it
// connects, regardless of earlier DNS answers.
func (g Guard) dialer() *net.Dialer {
	return &net.Dialer{Timeout: g.Timeout, Resolver: g.Resolver,
		ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if !g.Insecure && (err != nil || !public(to.Addr())) {
				return errNotPublic
			}
			if admit, is := ctx.Value(admitKey{}).(func(netip.Addr) time.Duration); is {
				if wait := admit(to.Addr().Unmap()); wait > 0 {
					return postponed(wait)
				}
			}
			return nil
		}}
}
