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
	// Name is the supplier's name, which is stored with every card that is
	// asked for: one for each account of Stripe and for testing. Defaults to
	// "stripe".
	Name string
	// Key is a restricted API key, rk_live_... or rk_test_..., or a secret key
	// for testing. There is no default.
	Key card.Secret
	// Cardholder owns the cards: ich_... There is no default.
	Cardholder string
	// URL is where Stripe's API is. It must be https. Defaults to Stripe's own.
	URL string
	// Insecure also allows a URL that is http, on a loopback address, for
	// tests.
	Insecure bool
	// Page is the https address of the operator's page that shows a card. The
	// card's id is added to its path. There is no default.
	Page string
	// PageSecret is what the passwords of the page are derived from: at least
	// 32 bytes that the page knows too. There is no default.
	PageSecret card.Secret
	// Now is the time. Defaults to time.Now.
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
	stripeTimeout        = 15 * time.Second // for a call, also if the caller's deadline is later
	stripeLargestAnswer  = 8 << 20          // bytes: a page of cards has some hundred thousand
	stripeLargestHeaders = 64 << 10
	largestRefusal       = 64 << 10
	longestBusy          = time.Hour // that Stripe may ask to be left alone
	stripeAgent          = "cardmint"
	stripeAgentInfo      = "X-Stripe-Client-User-Agent"
)

// newStripeBackend returns what asks Stripe once and prints nothing. It uses no
// proxy, follows no redirects, and shares nothing with others of the process.
func newStripeBackend(api string) stripe.Backend {
	return stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: stripeWire{newStripeTransport()}, Timeout: stripeTimeout},
		URL:               stripe.String(api),
		MaxNetworkRetries: stripe.Int64(0), // who asks again decides package issue
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // its lines quote answers
	})
}

// stripeCards is where Stripe's cards are.
const stripeCards = "/v1/issuing/cards"

// call sends a request of stripe-go's, and reads the answer. The methods of
// stripe.Client do the same, but with them all that Stripe sells would be
// linked into the program.
func (s *Stripe) call(ctx context.Context, method, path string, params stripe.ParamsContainer,
	answer stripe.LastResponseSetter) error {
	params.GetParams().Context = ctx
	return s.backend.Call(method, path, s.cfg.Key.Reveal(), params, answer)
}

func newStripeTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // that of the environment would see card numbers if it is trusted
		DialContext:            (&net.Dialer{Timeout: stripeTimeout}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    stripeTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: stripeLargestHeaders,
	}
}

// stripeWire lets nothing but a response with status 200 through. Anything else
// becomes a refusal, without what Stripe wrote.
//
// net/http repeats a request whose connection breaks before the response. That
// does no harm: it has the same key.
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
		res.Body = http.MaxBytesReader(nil, res.Body, stripeLargestAnswer)
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	r := &refusal{status: res.StatusCode}
	if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 31); err == nil {
		r.after = min(time.Duration(seconds)*time.Second, longestBusy)
	}
	var body struct {
		Error *stripe.Error `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, largestRefusal))
	if err == nil && json.Unmarshal(text, &body) == nil && body.Error != nil {
		r.kind, r.code, r.decline, r.param = body.Error.Type, body.Error.Code, body.Error.DeclineCode, body.Error.Param
	}
	return nil, r
}

// refusal is a response with another status than 200. Its text has no words of
// Stripe's but those of its vocabulary.
type refusal struct {
	status  int
	after   time.Duration
	kind    stripe.ErrorType // this and the rest are "" if Stripe did not say
	code    stripe.ErrorCode
	decline stripe.DeclineCode
	param   string
}

func (r *refusal) Error() string { return fmt.Sprintf("HTTP status %d%s", r.status, r.words()) }

// words returns what Stripe calls the cause.
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

// stripeWord matches names of Stripe's, and of its parameters. They have no
// digits but an index, so that no number passes for one.
var stripeWord = regexp.MustCompile(`^[a-z_]{1,60}(\[([a-z_]{1,60}|\d)\]){0,4}$`)

// rejected reports whether an error says that no card was made, neither by this
// request nor by an earlier one with the same key.
//
// Status 400 and 402 are the answers to the request itself, or to the one that
// had the same key. Others may come before Stripe looks at the key, so that
// they say nothing of an earlier request. A key that was used for something
// else (idempotency_error) had made a card.
func rejected(err error) (r *refusal, is bool) {
	r, is = errors.AsType[*refusal](err)
	return r, is && (r.status == http.StatusBadRequest && r.kind == stripe.ErrorTypeInvalidRequest ||
		r.status == http.StatusPaymentRequired &&
			(r.kind == stripe.ErrorTypeCard || r.kind == stripe.ErrorTypeInvalidRequest))
}

// declines reports whether a rejected request was declined because of this
// card, and whether a later request may succeed. Anything else is wrong with
// the account, the cardholder or the configuration: it concerns every card, and
// an operator can correct it.
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

// plainStripe returns why a call failed, without anything that Stripe sent,
// which may have card numbers, and without addresses.
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
		return errors.New("the certificate is not to be trusted")
	case isType[*net.OpError](err):
		return errors.New("the connection failed")
	case isType[*http.MaxBytesError](err):
		return fmt.Errorf("the answer is longer than %d bytes", stripeLargestAnswer)
	}
	return errors.New("the connection broke off, or the answer is not Stripe's")
}

func isType[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}
