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
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	longestAnswer  = 1 << 10  // bytes that are kept of a response
	largestAnswer  = 64 << 10 // bytes that are read of it, so that the connection can be used again
	largestHeaders = 32 << 10
)

const notHTTP = "the answer is not HTTP"

// Client calls URLs that customers choose. It connects to no address that its
// Guard refuses, follows no redirects, uses no proxy and keeps no cookies. It
// is safe for concurrent use.
type Client struct {
	guard Guard
	tls   *tls.Config
	idle  pool
}

// NewClient returns a client for the URLs that g allows. The caller must close
// it.
func NewClient(g Guard) *Client {
	g.Timeout = cmp.Or(g.Timeout, 15*time.Second)
	return &Client{guard: g,
		tls: &tls.Config{RootCAs: g.RootCAs, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
}

// Timeout returns how long an attempt may take.
func (c *Client) Timeout() time.Duration { return c.guard.Timeout }

// CheckURL is Guard.CheckURL of the client's guard.
func (c *Client) CheckURL(url string) error { return c.guard.CheckURL(url) }

// Close closes idle connections, and those of attempts that are under way once
// they have ended.
func (c *Client) Close() { c.idle.close() }

// Target is a URL that the Guard of a client has checked. Whoever posts often
// to one URL has it checked once.
type Target struct {
	// Admit decides whether a request may be sent to an address now. It returns
	// how long to wait; 0 if it may. It is called before a connection is made
	// or used again, perhaps from several goroutines at the same time. Nil
	// admits every request.
	Admit func(netip.Addr) time.Duration

	url     *url.URL
	address string // host and port
	key     string // the same for all targets that share connections
	refused string // why nothing is sent there; "" if it is
}

// Target returns the target of a URL. If the guard does not allow the URL,
// every answer from the target says so.
func (c *Client) Target(raw string) Target {
	u, err := c.guard.parse(raw)
	if err != nil {
		return Target{refused: "the url " + err.Error()}
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	return Target{url: u, address: address, key: u.Scheme + "://" + address}
}

// Host returns the scheme, host and port of a target; "" if the URL is not
// allowed.
func (t Target) Host() string { return t.key }

// Answer is the result of one attempt.
type Answer struct {
	Took   time.Duration
	Status int // HTTP status; 0 if there was no response
	// up to 1,024 bytes of the response's body, as valid UTF-8 without control
	// characters except \n and \t
	Body string
	// from Retry-After (seconds or HTTP date, RFC 9110 section 10.2.3); never
	// negative; 0 if absent or invalid
	RetryAfter time.Duration
	Postponed  time.Duration // if positive, nothing was sent: the wait that Target.Admit returned
	Address    netip.Addr    // of the receiver; not valid if there was no connection
	Reason     string        // why there was no response, for the integrator; "" if there was one
}

// admit is Admit, or admits every request.
func (t Target) admit(a netip.Addr) time.Duration {
	if t.Admit == nil {
		return 0
	}
	return t.Admit(a)
}

// postponed means that Admit wants a request to be sent later.
type postponed time.Duration

func (p postponed) Error() string { return "too many requests to the address" }

// Post sends body, unchanged, once. A status counts as a response even if the
// rest never arrives. If ctx is cancelled, Reason says so. The names of header
// must be in their canonical form. body should have a few KiB: it is sent
// before the response is read.
func (c *Client) Post(ctx context.Context, to Target, header http.Header, body []byte) Answer {
	start := time.Now()
	answer := c.post(ctx, to, header, body)
	answer.Took = time.Since(start)
	return answer
}

func (c *Client) post(ctx context.Context, to Target, header http.Header, body []byte) Answer {
	if to.refused != "" {
		return Answer{Reason: to.refused}
	}
	if ctx.Err() != nil {
		return Answer{Reason: c.reason(ctx, ctx.Err(), false)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return Answer{Reason: c.reason(ctx, err, false)}
	}
	req.URL, req.Host = to.url, to.url.Host
	maps.Copy(req.Header, header)
	if _, has := header["User-Agent"]; !has {
		req.Header["User-Agent"] = []string{"cardmint-webhooks"}
	}
	conn, err := c.connect(ctx, to, time.Now().Add(c.guard.Timeout))
	if later, is := errors.AsType[postponed](err); is {
		return Answer{Postponed: time.Duration(later), Reason: later.Error()}
	}
	if err != nil {
		return Answer{Reason: c.reason(ctx, err, false)}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	res, err := conn.exchange(req)
	if err != nil {
		stop()
		_ = conn.Close()
		return Answer{Address: conn.address, Reason: c.reason(ctx, err, true)}
	}
	answer, whole := read(res)
	answer.Address = conn.address
	if stop() && whole && !res.Close && conn.in.Buffered() == 0 {
		c.idle.put(to.key, conn)
	} else {
		_ = conn.Close()
	}
	return answer
}

// read returns the answer in a response, and whether it has read all of the
// response.
func read(res *http.Response) (answer Answer, whole bool) {
	if res.StatusCode < 100 {
		return Answer{Reason: notHTTP}, false
	}
	answer = Answer{Status: res.StatusCode, RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now())}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return answer, false // what follows is another protocol
	}
	if res.ContentLength == 0 {
		return answer, true
	}
	// Closing the body would read all of it, however long it is.
	beginning, err := io.ReadAll(io.LimitReader(res.Body, longestAnswer))
	answer.Body = plain(beginning)
	if err != nil {
		return answer, false
	}
	n, err := io.Copy(io.Discard, io.LimitReader(res.Body, largestAnswer-longestAnswer+1)) // one byte more, to reach EOF
	return answer, err == nil && n <= largestAnswer-longestAnswer
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
		return "the attempt was given up before an answer came"
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
	switch {
	case is[*net.OpError](err) && connected, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection broke off"
	case errors.Is(err, errLongHeaders):
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
