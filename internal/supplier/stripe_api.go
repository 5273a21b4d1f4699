package supplier

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/trace"
)

// StripeConfig configures a Stripe.
type StripeConfig struct {
	// Name is the supplier's name, which is stored with every requested card.
	// Use one name per Stripe account and mode. Defaults to "stripe".
	Name string
	// Key is a restricted API key, rk_live_... or rk_test_..., or a secret key
	// for testing. Required.
	Key card.Secret
	// Cardholder owns the cards: ich_... Required.
	Cardholder string
	// URL is the https URL of Stripe's API. Defaults to Stripe's own.
	URL string
	// Insecure also allows an http URL with a loopback address, for tests.
	Insecure bool
	// Page is the https URL of the operator's page that shows a card. The card's
	// id is added to its path. Required.
	Page string
	// PageSecret is the secret for the passwords of the page: at least 32 bytes
	// that the page knows too. Required.
	PageSecret card.Secret
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

var stripeAPIKey = regexp.MustCompile(`^(rk_live|rk_test|sk_test)_[A-Za-z0-9_]+$`)

// Validate fills in the defaults, and returns an error if a field is not valid.
func (c *StripeConfig) Validate() error {
	c.Name, c.URL = cmp.Or(c.Name, "stripe"), cmp.Or(c.URL, stripe.APIURL)
	if c.Now == nil {
		c.Now = time.Now
	}
	switch key := c.Key.Reveal(); {
	case strings.HasPrefix(key, "sk_live_"):
		return errors.New(
			"the API key must be a restricted one, rk_live_...: a secret key may do everything with the account")
	case !stripeAPIKey.MatchString(key):
		return errors.New("the API key must begin with rk_live_ or rk_test_")
	case !stripeCardholder.MatchString(c.Cardholder):
		return errors.New("the cardholder must be an id such as ich_1MsKAB2eZvKYlo2C3eZ2BdvK")
	case len(c.PageSecret) < 32:
		return errors.New("the secret of the page must have at least 32 bytes")
	}
	if page, err := url.Parse(c.Page); err != nil || page.Scheme != "https" || page.Host == "" || page.User != nil ||
		page.RawQuery != "" || page.Fragment != "" {
		return errors.New("the page must be an https address without user, query and fragment")
	}
	api, err := url.Parse(c.URL)
	if err != nil || api.Host == "" || api.User != nil || api.RawQuery != "" || api.Fragment != "" {
		return errors.New("the address of the API must have no user, query or fragment")
	}
	if api.Scheme == "https" {
		return nil
	}
	if ip, err := netip.ParseAddr(api.Hostname()); api.Scheme != "http" || !c.Insecure || err != nil || !ip.IsLoopback() {
		return errors.New("the address of the API must begin with https://")
	}
	return nil
}

const (
	stripeTimeout        = 15 * time.Second // of a call
	stripeMaxAnswerBytes = 8 << 20          // a page of cards has about 100 KB
	stripeMaxHeaderBytes = 64 << 10
	maxRefusalBytes      = 64 << 10
	maxBusy              = time.Hour // limits Retry-After
	stripeAgent          = "cardmint"
	stripeAgentInfo      = "X-Stripe-Client-User-Agent"
)

// newStripeBackend returns a backend that sends each request once and logs
// nothing. It uses no proxy, follows no redirects, and shares no state with other
// backends.
func newStripeBackend(api string) stripe.Backend {
	return stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: stripeWire{newStripeTransport()}, Timeout: stripeTimeout},
		URL:               stripe.String(api),
		MaxNetworkRetries: stripe.Int64(0), // package issue decides about retries
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // its log lines quote answers
	})
}

// stripeCards is the path of Stripe's cards.
const stripeCards = "/v1/issuing/cards"

// call sends a request, and reads the answer. stripe.Client would do the same,
// but link all products of Stripe into the program.
func (s *Stripe) call(ctx context.Context, method, path string, params stripe.ParamsContainer,
	answer stripe.LastResponseSetter) error {
	params.GetParams().Context = ctx
	return s.backend.Call(method, path, s.cfg.Key.Reveal(), params, answer)
}

func newStripeTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy could read card numbers
		DialContext:            (&net.Dialer{Timeout: stripeTimeout}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    stripeTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: stripeMaxHeaderBytes,
	}
}

// stripeWire passes only responses with status 200. It converts all other
// responses to a refusal without Stripe's text.
//
// net/http repeats a request if the connection breaks before the response. That
// is harmless, because the key is the same.
type stripeWire struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w stripeWire) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", stripeAgent) // stripe-go looks into the environment for these
	req.Header.Del(stripeAgentInfo)
	trace.Inject(req.Context(), req.Header)
	res, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		res.Body = http.MaxBytesReader(nil, res.Body, stripeMaxAnswerBytes)
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	r := &refusal{status: res.StatusCode}
	if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 31); err == nil {
		r.after = min(time.Duration(seconds)*time.Second, maxBusy)
	}
	var body struct {
		Error *stripe.Error `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxRefusalBytes))
	if err == nil && json.Unmarshal(text, &body) == nil && body.Error != nil {
		r.kind, r.code, r.decline, r.param = body.Error.Type, body.Error.Code, body.Error.DeclineCode, body.Error.Param
	}
	return nil, r
}

// refusal is a response with another status than 200. It contains only words of
// Stripe's fixed vocabulary.
type refusal struct {
	status  int
	after   time.Duration
	kind    stripe.ErrorType // this and the rest are "" if Stripe did not say
	code    stripe.ErrorCode
	decline stripe.DeclineCode
	param   string
}

func (r *refusal) Error() string { return fmt.Sprintf("HTTP status %d%s", r.status, r.words()) }

// words returns Stripe's codes for the cause.
func (r *refusal) words() string {
	text := ""
	for _, word := range []struct{ name, value string }{
		{"", string(r.kind)}, {"code ", string(r.code)}, {"decline code ", string(r.decline)}, {"parameter ", r.param},
	} {
		if stripeWord.MatchString(word.value) {
			text += ", " + word.name + word.value
		}
	}
	return text
}

// stripeWord matches Stripe's codes and parameter names. Their only digits are
// indexes, so a card number can't match.
var stripeWord = regexp.MustCompile(`^[a-z_]{1,60}(\[([a-z_]{1,60}|\d)\]){0,4}$`)

// rejected reports whether an error means that no card was made, neither by this
// request nor by an earlier one with the same key.
//
// Status 400 and 402 answer the request itself, or replay the answer to an earlier
// one with the same key. Other statuses may precede the lookup of the key, and
// prove nothing about an earlier request. An idempotency_error means that the key
// was used with other parameters, and may have made a card.
func rejected(err error) (r *refusal, is bool) {
	r, is = errors.AsType[*refusal](err)
	return r, is && (r.status == http.StatusBadRequest && r.kind == stripe.ErrorTypeInvalidRequest ||
		r.status == http.StatusPaymentRequired &&
			(r.kind == stripe.ErrorTypeCard || r.kind == stripe.ErrorTypeInvalidRequest))
}

// declines reports whether Stripe declined this particular card, and whether a
// later request may succeed. Other causes lie in the account, the cardholder or
// the configuration: they concern every card, and an operator can fix them.
func (r *refusal) declines() (is, temporary bool) {
	switch {
	case r.code == stripe.ErrorCodeBalanceInsufficient, r.decline == stripe.DeclineCodeInsufficientFunds:
		return true, true
	case r.kind == stripe.ErrorTypeCard, r.code == stripe.ErrorCodeAmountTooLarge,
		r.code == stripe.ErrorCodeAmountTooSmall:
		return true, false
	}
	return false, false
}

// plainStripe returns why a call failed, without text from Stripe, which may
// contain card numbers, and without addresses.
func plainStripe(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r, is := errors.AsType[*refusal](err); is {
		if r.status == http.StatusTooManyRequests {
			return &issue.BusyError{After: r.after}
		}
		return r
	}
	timeout, isTimeout := errors.AsType[net.Error](err)
	switch {
	case isTimeout && timeout.Timeout():
		return fmt.Errorf("no answer within %s", stripeTimeout)
	case isType[*net.DNSError](err):
		return errors.New("the name can't be resolved")
	case isType[*tls.CertificateVerificationError](err), isType[x509.UnknownAuthorityError](err),
		isType[x509.HostnameError](err):
		return errors.New("the certificate is not trusted")
	case isType[*net.OpError](err):
		return errors.New("the connection failed")
	case isType[*http.MaxBytesError](err):
		return fmt.Errorf("the answer is longer than %d bytes", stripeMaxAnswerBytes)
	}
	return errors.New("the connection was lost, or the answer is not from Stripe")
}

func isType[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}
