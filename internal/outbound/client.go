// Package outbound is the one HTTP client for URLs that customers choose.
//
// It imports none of our packages. It stores nothing: after a crash it is up to
// the caller to repeat an interrupted attempt.
package outbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	maxKeptBytes     = 1 << 10  // of a response's body
	maxBodyBytes     = 64 << 10 // beyond which the connection is closed
	maxHeaderBytes   = 32 << 10
	maxIdle          = 512 // connections
	maxIdlePerTarget = 8   // scheme, host and port
	maxIdleTime      = 30 * time.Second
)

const notHTTP = "the answer is not HTTP"

// Client calls URLs that customers choose. It connects to no address that its
// Guard rejects, follows no redirects, uses no proxy and keeps no cookies. It
// is safe for concurrent use.
type Client struct {
	guard     Guard
	transport *http.Transport
}

// NewClient returns a client for the URLs that g allows. The caller must close
// it.
func NewClient(g Guard) *Client {
	g.Timeout = cmp.Or(g.Timeout, 15*time.Second)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &Client{guard: g, transport: &http.Transport{
		Proxy:                  nil, // a proxy would connect to any address
		DialContext:            g.dialer().DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: g.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    g.Timeout, // net/http continues to connect after the attempt has ended
		Protocols:              &protocols,
		DisableCompression:     true, // a small body could expand without limit
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerTarget,
		IdleConnTimeout:        maxIdleTime,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}}
}

// Timeout returns how long an attempt may take.
func (c *Client) Timeout() time.Duration { return c.guard.Timeout }

// CheckURL calls the CheckURL method of the client's guard.
func (c *Client) CheckURL(url string) error { return c.guard.CheckURL(url) }

// Close closes idle connections. It does not interrupt attempts.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Request is a POST request.
type Request struct {
	URL    string
	Header http.Header // names in canonical form
	Body   []byte      // the caller must not change it afterwards
	// Admit decides whether a connection to an address may be made now. It
	// returns 0, or how long to wait. It may be called for several addresses of
	// the host concurrently, and not at all if a connection is reused. Defaults
	// to always.
	Admit func(netip.Addr) time.Duration
}

// Result is the result of one attempt.
type Result struct {
	Took   time.Duration
	Status int // HTTP status; 0 if there was no response
	// Body has up to 1,024 bytes of the response's body, as valid UTF-8 without
	// control characters except \n and \t.
	Body string
	// RetryAfter is the value of Retry-After (seconds or HTTP date, RFC 9110
	// section 10.2.3). It is never negative, and 0 if absent or invalid.
	RetryAfter time.Duration
	Postponed  time.Duration // the wait that Admit returned, if nothing was sent because of it; otherwise 0
	Address    netip.Addr    // of the receiver; invalid if there was no connection
	Reason     string        // why there was no response, for the integrator; "" if there was one
}

// Post sends a request once. A status counts as a response even if the rest
// never arrives. If ctx is canceled, Reason is set.
func (c *Client) Post(ctx context.Context, r Request) Result {
	start := time.Now()
	result := c.post(ctx, r)
	result.Took = time.Since(start)
	return result
}

func (c *Client) post(ctx context.Context, r Request) Result {
	if err := c.CheckURL(r.URL); err != nil {
		return Result{Reason: "the url " + err.Error()}
	}
	var address netip.Addr
	attempt, cancel := context.WithTimeout(withAdmit(ctx, r.Admit), c.guard.Timeout)
	defer cancel()
	attempt = httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { address = remoteAddress(info.Conn) },
	})
	req, err := http.NewRequestWithContext(attempt, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Result{Reason: c.reason(ctx, err, false)}
	}
	maps.Copy(req.Header, r.Header)
	if _, has := req.Header["User-Agent"]; !has {
		req.Header["User-Agent"] = []string{"cardmint-webhooks"}
	}
	res, err := c.transport.RoundTrip(req) // an http.Client would follow redirects
	if wait, is := errors.AsType[postponed](err); is {
		return Result{Postponed: time.Duration(wait), Reason: wait.Error()}
	}
	if err != nil {
		return Result{Address: address, Reason: c.reason(ctx, err, address.IsValid())}
	}
	defer func() { _ = res.Body.Close() }()
	result := read(res)
	result.Address = address
	return result
}

// remoteAddress returns the address of the other side of a connection.
func remoteAddress(c net.Conn) netip.Addr {
	to, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return to.Addr().Unmap()
}

func read(res *http.Response) Result {
	if res.StatusCode < 100 {
		return Result{Reason: notHTTP}
	}
	result := Result{Status: res.StatusCode, RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now())}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return result // the body is the connection itself, which has no deadline
	}
	kept, _ := io.ReadAll(io.LimitReader(res.Body, maxKeptBytes))
	result.Body = plain(kept)
	// A connection is reused only if its response was read up to EOF.
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxBodyBytes-maxKeptBytes+1))
	return result
}

// reason returns why there was no response. The texts are fixed, because errors
// of the standard library contain addresses that customers must not see. ctx is
// the caller's; connected is whether the request got a connection.
func (c *Client) reason(ctx context.Context, err error, connected bool) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errNotPublic):
		return "the address of the host is not allowed: it is not public"
	case ctx.Err() != nil:
		return "the request was canceled before an answer arrived"
	case is[*net.DNSError](err):
		return "the name of the host can't be resolved"
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", c.guard.Timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the host can't be reached"
	}
	if text := tlsReason(err); text != "" {
		return "TLS: " + text
	}
	switch text := err.Error(); { // two of these errors have no exported value
	case is[*net.OpError](err) && connected, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(text, "server closed idle connection"):
		return "the connection was lost"
	case strings.Contains(text, "response headers exceeded"):
		return "the headers of the answer are too long"
	case connected:
		return notHTTP
	}
	return "the connection could not be made"
}

// tlsReason returns what is wrong with a certificate or a handshake; "" for
// other errors.
func tlsReason(err error) string {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	text := err.Error()
	switch {
	case isInvalid && invalid.Reason == x509.Expired && invalid.Cert != nil && time.Now().Before(invalid.Cert.NotBefore):
		return "the certificate is not valid yet"
	case isInvalid && invalid.Reason == x509.Expired:
		return "the certificate has expired"
	case is[x509.HostnameError](err):
		return "the certificate is not for this host"
	case is[x509.UnknownAuthorityError](err):
		return "the certificate is not signed by an authority that is trusted"
	case is[*tls.CertificateVerificationError](err):
		return "the certificate is not valid"
	case is[tls.RecordHeaderError](err):
		return "the port does not speak it"
	case strings.Contains(text, "tls: ") && strings.Contains(text, "protocol version"): // alerts have no exported type
		return "the protocol version is too old: 1.2 is the least"
	case strings.Contains(text, "tls: "):
		return "the handshake failed"
	}
	return ""
}

func is[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

// retryAfter parses the value of Retry-After, which was received at now.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// plain returns untrusted bytes as text that is safe for a terminal, a log or a
// database. It must still be escaped for HTML.
func plain(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(text), ""))
}
