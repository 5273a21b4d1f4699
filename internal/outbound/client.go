// Package outbound is the one HTTP client for URLs that customers choose.
//
// It imports none of our packages. It stores nothing: after a crash it is up to the caller to repeat an interrupted attempt.
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

// Client calls URLs that customers choose. It connects to no address that its Guard refuses, follows no redirects, uses no proxy
// and keeps no cookies. It is safe for concurrent use.
type Client struct {
	guard     Guard
	transport *http.Transport
}

// NewClient returns a client for the URLs that g allows. The caller must close it.
func NewClient(g Guard) *Client {
	g.Timeout = cmp.Or(g.Timeout, 15*time.Second)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &Client{guard: g, transport: &http.Transport{
		Proxy:                  nil, // a proxy would connect for us, and to anything
		DialContext:            g.dialer().DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: g.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    g.Timeout, // because net/http keeps connecting after the attempt is over
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: largestHeaders,
	}}
}

// Timeout returns how long an attempt may take.
func (c *Client) Timeout() time.Duration { return c.guard.Timeout }

// CheckURL is Guard.CheckURL of the client's guard.
func (c *Client) CheckURL(url string) error { return c.guard.CheckURL(url) }

// Close closes idle connections. It does not interrupt attempts that are under way.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Target is a URL that the Guard of a client has checked. Whoever posts often to one URL has it checked once.
type Target struct {
	url     *url.URL
	refused string // why nothing is sent there; "" if it is
}

// Target returns the target of a URL. If the guard does not allow the URL, every answer from the target says so.
func (c *Client) Target(raw string) Target {
	u, err := c.guard.parse(raw)
	if err != nil {
		return Target{refused: "the url " + err.Error()}
	}
	return Target{url: u}
}

// Answer is the result of one attempt.
type Answer struct {
	Took       time.Duration
	Status     int           // HTTP status; 0 if there was no response
	Body       string        // up to 1,024 bytes of the response's body, as valid UTF-8 without control characters except \n and \t
	RetryAfter time.Duration // from Retry-After (seconds or HTTP date, RFC 9110 section 10.2.3); never negative; 0 if absent or invalid
	Reason     string        // why there was no response, for the integrator; "" if there was one
}

// Post sends body, unchanged, once. A status counts as a response even if the rest never arrives. If ctx is cancelled, Reason says so. The
// caller must not change body afterwards: if the receiver responds early, parts of it may still be in transit. The names of header must be in
// their canonical form.
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
	connected := false
	attempt, cancel := context.WithTimeout(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	}), c.guard.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(attempt, http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return Answer{Reason: c.reason(ctx, err, false)}
	}
	req.URL, req.Host = to.url, to.url.Host
	maps.Copy(req.Header, header)
	if _, has := header["User-Agent"]; !has {
		req.Header["User-Agent"] = []string{"cardmint-webhooks"}
	}
	// With one of these headers, net/http would repeat a request that may have arrived.
	delete(req.Header, "Idempotency-Key")
	delete(req.Header, "X-Idempotency-Key")

	res, err := c.transport.RoundTrip(req) // an http.Client adds redirects and cookies
	if err != nil {
		return Answer{Reason: c.reason(ctx, err, connected)}
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 100 {
		return Answer{Reason: notHTTP}
	}
	answer := Answer{Status: res.StatusCode, RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now())}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return answer // the body is the raw connection, which has no deadline
	}
	if res.ContentLength == 0 {
		return answer
	}
	beginning, _ := io.ReadAll(io.LimitReader(res.Body, longestAnswer))
	answer.Body = plain(beginning)
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, largestAnswer-longestAnswer+1)) // one byte more, to reach EOF
	return answer
}

// reason returns why there was no response. The texts are fixed, because errors of the standard library contain addresses that customers
// must not see. ctx is the caller's; connected is whether the request got a connection.
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
	switch text := err.Error(); {
	case is[*net.OpError](err) && connected, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.Contains(text, "server closed idle connection"):
		return "the connection broke off"
	case strings.Contains(text, "response headers exceeded"):
		return "the headers of the answer are too long"
	case connected:
		return notHTTP
	}
	return "the connection could not be made"
}

// tlsReason returns what is wrong with a certificate or a handshake; "" for other errors.
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

// plain returns untrusted bytes as text that is safe for a terminal, a log or a database. It must still be escaped for HTML.
func plain(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(text), ""))
}
