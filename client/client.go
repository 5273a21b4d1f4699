// Package client is the Go SDK of cardmint, a service that sells prepaid cards
// for cryptocurrency.
//
//	c, err := client.New("https://cards.example.com", os.Getenv("CARDMINT_TOKEN"))
//	if err != nil {
//		return err
//	}
//	card, err := c.CreateCard(ctx, client.CreateCardRequest{
//		USDAmount: decimal.NewFromInt(150),
//		Currency:  "monero",
//	})
//	if err != nil {
//		return err
//	}
//	fmt.Println("send", card.Payment.Amount, "to", card.Payment.Address)
//	card, err = c.WaitForCard(ctx, card.UUID)
//	if err != nil {
//		return err
//	}
//	use(card.Credentials.CardNumber)
//
// # Errors
//
// When the service rejects a request, the error is an [*Error], found by
// [errors.As]; decide by its Code. Any other error means that the context
// ended, or that no readable response arrived.
//
// # Retries
//
// Calls are retried, with exponential backoff and jitter, and never after the
// context has ended:
//
//   - after 408 and 429, when the service has not executed the request. Retry-After
//     is honored.
//   - after 502, 503, 504 and a broken or timed-out connection, when the outcome is
//     unknown. All attempts of a call that changes something carry the same random
//     Idempotency-Key, so that the service executes it once. [Client.Do] generates
//     no key, so it does not retry a POST in these cases.
//
// A 500 is not retried, because it is likely to recur. See [WithRetry].
//
// Each method takes options for that call: [WithRetry], [WithTimeout],
// [WithAttemptTimeout], [WithHeader], and [WithResponse], which returns the
// status and headers of the response.
//
// # Events
//
// [NewWebhookHandler] receives the events that the service sends to a webhook,
// and [Client.Events] reads the same events in order. An event reports that a
// card changed, and never holds credentials: read them with [Client.GetCard],
// or with [Client.RevealCard] where the service masks them.
//
// # Money and times
//
// Amounts are exact decimals. Coin amounts are in whole coins, not in atomic
// units. Times are UTC.
//
// The service sends usd_amount as a JSON number in the response of CreateCard
// and as a string everywhere else. [Card] has one type for both,
// [decimal.Decimal]; requests send it as a string.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
)

// Client calls the service for the account of its token. It is safe for
// concurrent use. It never prints its token.
type Client struct {
	baseURL   string
	token     *string // a pointer, because fmt prints only its address, with any verb
	http      http.Client
	userAgent string
	settings
	pollFirst   time.Duration
	pollLongest time.Duration
	middleware  []func(http.RoundTripper) http.RoundTripper
	logger      *slog.Logger // nil for none
}

// NewFromEnv returns a client of the service at CARDMINT_URL with the token
// CARDMINT_TOKEN. Both environment variables must be set.
func NewFromEnv(opts ...Option) (*Client, error) {
	baseURL, token := os.Getenv("CARDMINT_URL"), os.Getenv("CARDMINT_TOKEN")
	switch {
	case baseURL == "":
		return nil, errors.New(
			`client: CARDMINT_URL is not set; it is the service's address, like "https://cards.example.com"`)
	case token == "":
		return nil, errors.New("client: CARDMINT_TOKEN is not set; it is a token of the account")
	}
	return New(baseURL, token, opts...)
}

// New returns a client of the service at baseURL, for example
// "https://cards.example.com": the part before "/api/cards". A trailing "/api"
// is removed. The token is the account's API token, without "Bearer". New sends
// no request, so an invalid token is reported by the first call.
func New(baseURL, token string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	switch {
	// The URL may contain a password, so the error omits it.
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New(`client: the base URL must have a scheme and a host, like "https://cards.example.com"`)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("client: the base URL must not have a user, a query or a fragment")
	case token == "":
		return nil, errors.New("client: the token is empty")
	case !visible(token):
		return nil, errors.New("client: the token has a space, a line break or another character that no token has")
	}
	c := &Client{
		baseURL:     strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/api"), "/"),
		token:       &token,
		userAgent:   "cardmint-go" + moduleVersion(debug.ReadBuildInfo),
		settings:    settings{maxAttempts: 4, maxElapsed: time.Minute, attemptTimeout: 30 * time.Second},
		pollFirst:   time.Second,
		pollLongest: 15 * time.Second,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("client: an option is nil")
		}
		opt.setClient(c)
	}
	if err := c.settings.check(); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	switch {
	case strings.ContainsFunc(c.userAgent, unicode.IsControl):
		return nil, errors.New("client: the user agent has a control character")
	case c.pollFirst <= 0 || c.pollLongest < c.pollFirst:
		return nil, errors.New("client: WithPollInterval needs a first interval above zero and a longest that is not shorter")
	}
	if c.http.Transport, err = wrapped(c.http.Transport, c.middleware); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	// A redirect would send the token to another server.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// moduleVersion is "/" and the version of this module in the program that
// imports it, or empty if it is unknown, as in the module's own tests.
func moduleVersion(read func() (*debug.BuildInfo, bool)) string {
	info, ok := read()
	if !ok {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/cardmint/cardmint/client" && module.Replace == nil && module.Version != "" {
			return "/" + strings.TrimPrefix(module.Version, "v")
		}
	}
	return ""
}

// String returns the service's URL, without the token.
func (c *Client) String() string {
	if c == nil || c.token == nil {
		return "cardmint client of no service"
	}
	return "cardmint client of " + c.baseURL
}

// CreateCard orders a card and returns the payment instruction: send exactly
// Payment.Amount of Payment.Currency to Payment.Address before
// Payment.ExpiresAt. [Client.WaitForCard] waits for the payment.
//
// Retries never create a second card, because all attempts carry the same
// random Idempotency-Key. To repeat the call yourself, also after a restart,
// choose the key with [WithIdempotencyKey].
func (c *Client) CreateCard(ctx context.Context, in CreateCardRequest, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opCreateCard(), in: in}, opts)
}

// GetCard reads one card. A card that does not exist or belongs to another
// account is an [*Error] with [ProblemCodeNotFound].
func (c *Client) GetCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opGetCard(id.String())}, opts)
}

// RevealCard reads one card with unmasked credentials, also where the service
// masks them in [Client.GetCard]. The service records each call. The
// credentials are empty until the card is generated, and after they were
// purged: then CredentialsPurgedAt is set.
func (c *Client) RevealCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opRevealCard(id.String())}, opts)
}

// CancelCard cancels a card that holds no money and returns it. Its payment is
// then [PaymentStateCanceled], or expired if it already was. Repeating the call
// is harmless. Once money has arrived, even unconfirmed, the error is an
// [*Error] with [ProblemCodeCardHasPayments]. Money that arrives later is
// treated as if it came after the quote has expired.
func (c *Client) CancelCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opCancelCard(id.String())}, opts)
}

// ListCurrencies lists the cryptocurrencies that the service accepts, with
// their current rates.
func (c *Client) ListCurrencies(ctx context.Context, opts ...CallOption) ([]Currency, error) {
	list, err := call[[]Currency](ctx, c, request{operation: opListCurrencies()}, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// ListOffers lists the amounts that cards can be ordered for right now,
// ascending and without overlaps. Left is nil if the number of cards is not
// limited. The list may be some seconds old: if other clients have ordered the
// last cards, CreateCard fails with [ProblemCodeAmountUnavailable].
func (c *Client) ListOffers(ctx context.Context, opts ...CallOption) ([]Offer, error) {
	list, err := call[[]Offer](ctx, c, request{operation: opListOffers()}, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// SimulatePayment pays for a card with simulated money and returns the card.
// With the zero request it pays the amount due and confirms it. Outside a
// sandbox the error is an [*Error] with [ProblemCodeNotFound].
//
// Retries do not pay again.
func (c *Client) SimulatePayment(ctx context.Context, id uuid.UUID, in SimulatePaymentRequest,
	opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opSimulatePayment(id.String()), in: in}, opts)
}

// call executes an operation whose response is a T.
func call[T any](ctx context.Context, c *Client, r request, opts []CallOption) (*T, error) {
	out := new(T)
	if _, err := c.do(ctx, r, out, opts); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return out, nil
}

// exec executes an operation and decodes its response into out, which is nil if
// the response has no body.
func (c *Client) exec(ctx context.Context, r request, out any, opts []CallOption) error {
	if _, err := c.do(ctx, r, out, opts); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}
