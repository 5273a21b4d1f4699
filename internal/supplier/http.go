package supplier

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/trace"
)

const (
	defaultTimeout   = 10 * time.Second // less than the limit of an attempt in package issue
	maxAnswerBytes   = 64 << 10
	maxHeaderBytes   = 32 << 10
	maxKeyBytes      = 64
	maxIdle          = 16 // connections: package issue requests as many cards concurrently
	unknownRetention = -1 // nanoseconds: no offers were read yet
)

// HTTPConfig configures a supplier that implements openapi/supplier.yaml.
type HTTPConfig struct {
	// Name identifies the supplier in intents, logs and the callback path: up
	// to 32 lower-case letters, digits and hyphens. It must never change.
	// Required.
	Name string
	// URL is the supplier's base URL. It must begin with https://, and may be in
	// a private network. Required.
	URL string
	// Secret signs requests and verifies callbacks: whsec_ and the base64 of 24
	// to 64 bytes. Required.
	Secret card.Secret
	// PreviousSecret is used in addition, until the supplier has the new
	// secret. Defaults to none.
	PreviousSecret card.Secret
	// KeyRetention is how long the supplier keeps keys. A shorter retention in
	// its offers takes precedence. Defaults to forever.
	KeyRetention time.Duration
	// Timeout limits one request, including the answer. Defaults to 10 s.
	Timeout time.Duration
	// CAFile is a PEM file of trusted certificate authorities. Defaults to the
	// system's authorities.
	CAFile string
	// Mode is card.TestMode or card.LiveMode. Every request for a card contains
	// it, and a supplier of the other mode receives no requests. Defaults to
	// card.LiveMode.
	Mode string
	// ValidFor is the requested minimum validity of cards. Defaults to none.
	ValidFor time.Duration
	// Insecure allows http://. For tests and development only.
	Insecure bool
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// HTTP requests cards from a supplier over HTTP. It follows no redirects, uses
// no proxy and keeps no cookies. Anything outside of the contract is an error,
// and the card may exist; *issue.BusyError means that it does not. Errors
// contain no text from the supplier.
type HTTP struct {
	name      string
	base      string
	secrets   Secrets
	timeout   time.Duration
	validFor  time.Duration
	retention time.Duration
	mode      Mode
	stated    atomic.Pointer[Mode] // in the last offers; nil before any were read
	// offeredRetention is the key retention in the last offers, in nanoseconds;
	// 0 if keys are kept forever, unknownRetention before any were read.
	offeredRetention atomic.Int64
	transport        *http.Transport
	now              func() time.Time
}

var _ issue.Supplier = (*HTTP)(nil)

var (
	supplierName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	ourKey       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	wireKey      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[1-9][0-9]*)?$`)
)

// NewHTTP returns a supplier. It makes no connection. Errors show no secrets.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	if !supplierName.MatchString(cfg.Name) || cfg.Name == sandboxName {
		return nil, fmt.Errorf("name: must be lower-case letters, digits and hyphens, 32 at most, and not %s", sandboxName)
	}
	base, err := url.Parse(cfg.URL)
	switch {
	case err != nil || base.Host == "" || base.Opaque != "" || base.User != nil || base.RawQuery != "" ||
		base.ForceQuery || strings.Contains(cfg.URL, "#"):
		return nil, errors.New(
			"url: must be an address such as https://cards.example.net/v1, without user, query and fragment")
	case base.Scheme != "https" && !(cfg.Insecure && base.Scheme == "http"):
		return nil, errors.New("url: must begin with https://")
	case cfg.Mode != "" && cfg.Mode != card.TestMode && cfg.Mode != card.LiveMode:
		return nil, fmt.Errorf("mode: must be %s or %s", card.TestMode, card.LiveMode)
	case cfg.Timeout < 0 || cfg.KeyRetention < 0 || cfg.ValidFor < 0:
		return nil, errors.New("a duration is negative")
	}
	secrets, err := ParseSecrets(cfg.Secret, cfg.PreviousSecret)
	if err != nil || cfg.Secret == "" {
		return nil, errSecret
	}
	trusted, err := authorities(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	s := &HTTP{name: cfg.Name, base: strings.TrimRight(base.String(), "/"), secrets: secrets,
		timeout: cmp.Or(cfg.Timeout, defaultTimeout),
		mode:    Mode(cmp.Or(cfg.Mode, card.LiveMode)), validFor: cfg.ValidFor, retention: cfg.KeyRetention, now: cfg.Now}
	s.offeredRetention.Store(unknownRetention)
	if s.now == nil {
		s.now = time.Now
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // HTTP/2 would repeat refused requests
	s.transport = &http.Transport{
		Proxy:                  nil, // a proxy could read cards, or choose the receiver of requests
		DialContext:            (&net.Dialer{Timeout: s.timeout}).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    s.timeout,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return s, nil
}

// authorities reads certificates from a file. Without a file it returns nil, for
// the system's.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificates: %s has none in PEM", file)
	}
	return pool, nil
}

// Close closes idle connections.
func (s *HTTP) Close() { s.transport.CloseIdleConnections() }

// Name implements issue.Supplier.
func (s *HTTP) Name() string { return s.name }

// Secrets returns the supplier's secrets, for NewCallback.
func (s *HTTP) Secrets() Secrets { return s.secrets }

// KeyRetention implements issue.Supplier. It is the shorter of the configured
// retention and the one in the last offers.
func (s *HTTP) KeyRetention() time.Duration {
	told := time.Duration(s.offeredRetention.Load())
	if told == 0 || told == unknownRetention || s.retention != 0 && s.retention < told {
		return s.retention
	}
	return told
}

// Submit implements issue.Supplier.
func (s *HTTP) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	if err := s.checkMode(ctx); err != nil {
		return issue.Answer{}, err
	}
	in := CardRequest{USDAmount: r.USD.String(), Currency: CurrencyUSD, Mode: s.mode}
	if s.validFor > 0 {
		in.ValidUntil = s.now().UTC().Add(s.validFor).Format("2006-01")
	}
	body, err := json.Marshal(in)
	if err != nil {
		return issue.Answer{}, err
	}
	return s.ask(ctx, r, opRequestCard, body)
}

// Lookup implements issue.Supplier.
func (s *HTTP) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	if err := s.checkMode(ctx); err != nil {
		return issue.Answer{}, err
	}
	return s.ask(ctx, r, opGetCard, nil)
}

// Cancel cancels a request if that is still possible, and returns its answer:
// Declined if no card was issued and none will be.
func (s *HTTP) Cancel(ctx context.Context, r issue.Request) (issue.Answer, error) {
	return s.ask(ctx, r, opCancelCard, nil)
}

// checkMode returns an error if the supplier has the other mode. In test mode
// an unreadable mode is an error too; in live mode the supplier checks the mode
// in the request.
func (s *HTTP) checkMode(ctx context.Context) error {
	if s.stated.Load() == nil && s.mode == ModeTest {
		if _, err := s.Offers(ctx); err != nil && s.stated.Load() == nil {
			return fmt.Errorf("read the supplier's mode: %w", err)
		}
	}
	if cause := s.mismatch(); cause != "" {
		return &issue.BusyError{Cause: cause}
	}
	return nil
}

// mismatch describes how the mode in the last offers differs from ours. It is ""
// if they are equal, or no offers were read.
func (s *HTTP) mismatch() string {
	stated := s.stated.Load()
	switch {
	case stated == nil || *stated == s.mode:
		return ""
	case s.mode == ModeTest:
		return "the supplier makes real cards: they are sold in live mode only"
	}
	return "the supplier's cards are not real: they are for test mode only"
}

// Offers returns the current offers. It is an error if the supplier has the other
// mode.
func (s *HTTP) Offers(ctx context.Context) ([]card.Offer, error) {
	r, err := s.call(ctx, opListOffers(), nil)
	if err != nil {
		return nil, err
	}
	offers, retention, mode, err := r.offers()
	if err != nil {
		return nil, err
	}
	s.offeredRetention.Store(int64(retention))
	s.stated.Store(&mode)
	if cause := s.mismatch(); cause != "" {
		return nil, errors.New(cause)
	}
	return offers, nil
}

// operation is an operation of the contract.
type operation struct{ method, path string }

// ask sends a request about a card. Only a lookup can answer Unknown.
func (s *HTTP) ask(ctx context.Context, r issue.Request, op func(key string) operation, body []byte) (issue.Answer,
	error) {
	key, err := keyOf(r)
	if err != nil {
		return issue.Answer{}, err
	}
	o := op(key)
	reply, err := s.call(ctx, o, body)
	if err != nil {
		return issue.Answer{}, err
	}
	if o.method == http.MethodGet && reply.isProblem(http.StatusNotFound, ProblemCodeUnknownKey) {
		if s.offeredRetention.Load() == unknownRetention { // the supplier may have forgotten the key
			if _, err := s.Offers(ctx); err != nil {
				return issue.Answer{}, fmt.Errorf("read the key retention: %w", err)
			}
		}
		return issue.Answer{}, nil
	}
	return reply.answer(key)
}

// keyOf returns the supplier's key for a request. The answer to a key is final,
// so a declined request is repeated with a new key: the number after the point
// counts the declines.
func keyOf(r issue.Request) (string, error) {
	key := r.Key
	if r.Declines > 0 {
		key = fmt.Sprintf("%s.%d", r.Key, r.Declines)
	}
	if !ourKey.MatchString(r.Key) || len(key) > maxKeyBytes {
		return "", errors.New("the key is not one that the contract allows")
	}
	return key, nil
}

// intentKey returns the key of the intent for a supplier's key.
func intentKey(key string) string {
	key, _, _ = strings.Cut(key, ".")
	return key
}

// call sends a signed request once, and reads the whole reply.
func (s *HTTP) call(ctx context.Context, op operation, body []byte) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, op.method, s.base+op.path, bytes.NewReader(body))
	if err != nil {
		return reply{}, errors.New("the request can't be made")
	}
	maps.Copy(req.Header, s.secrets.SignRequest(op.method, req.URL.RequestURI(), s.now(), body))
	req.Header.Set("Accept", jsonType+", "+problemType)
	req.Header.Set("User-Agent", "cardmint")
	trace.Inject(ctx, req.Header)
	if body != nil {
		req.Header.Set("Content-Type", jsonType)
	}
	res, err := s.transport.RoundTrip(req) // an http.Client follows redirects
	if err != nil {
		return reply{}, s.cause(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	failpoint.Hit(failpoint.Sent)
	r := reply{status: res.StatusCode, header: res.Header}
	if r.status != http.StatusOK && r.status != http.StatusNotFound && r.status != http.StatusForbidden {
		return r, nil // other bodies are for humans; the body of 101 is the connection, which has no deadline
	}
	if r.body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1)); err != nil {
		return reply{}, s.cause(ctx, err)
	}
	if len(r.body) > maxAnswerBytes {
		return reply{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswerBytes)
	}
	return r, nil
}

// cause returns why there is no answer. The texts are fixed, because errors of
// the standard library quote the response.
func (s *HTTP) cause(ctx context.Context, err error) error {
	var timeout interface{ Timeout() bool }
	_, isDial := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case is[*net.DNSError](err):
		return errors.New("the name of the supplier's host can't be resolved")
	case is[x509.HostnameError](err):
		return errors.New("the certificate is not for the supplier's host")
	case is[x509.UnknownAuthorityError](err):
		return errors.New("the certificate is not signed by an authority that is trusted")
	case is[*tls.CertificateVerificationError](err):
		return errors.New("the certificate is not valid")
	case is[tls.RecordHeaderError](err), is[tls.AlertError](err), strings.Contains(err.Error(), "tls: "):
		return errors.New("the TLS handshake failed")
	case isDial, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was refused or lost")
	}
	return errors.New("the answer is not HTTP")
}

func is[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}
