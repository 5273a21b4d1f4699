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
// When the service refuses a request, the error is an [*Error], found by
// [errors.As]; decide by its Code. Any other error says that the context ended,
// or that no answer came or none that could be read.
//
// # Retries
//
// A call is repeated by itself, with a wait that grows and is random, and never
// after its context has ended:
//
//   - after 408 and 429, when the service has done nothing yet. A Retry-After is waited for.
//   - after 502, 503, 504 and a connection that broke or timed out, when nobody knows what the service has done. All attempts of a call that
//     changes something carry one random Idempotency-Key, by which the service does it once. [Client.Do] sends none by itself, and so does
//     not repeat a POST then.
//
// It is not repeated after 500, a fault that is likely to come again. See
// [WithRetry].
//
// Each method takes options for the one call: [WithRetry], [WithTimeout],
// [WithAttemptTimeout], [WithHeader], and [WithResponse], which tells what came
// with the answer.
//
// # Events
//
// [NewWebhookHandler] receives the events that the service sends to a webhook,
// and [Client.Events] reads the same events in order. An event says that there
// is something to look at, and never holds credentials: [Client.GetCard] has
// them, or where the service masks them [Client.RevealCard].
//
// # Money and times
//
// Amounts are exact decimals. Amounts of coins are in whole coins, not in their
// smallest unit. Times are UTC.
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

// Client calls the service on behalf of the account that its token belongs to.
// It is safe for use by several goroutines. It never prints its token.
type Client struct {
	baseURL   string
	token     *string // behind a pointer, of which fmt prints only the address whatever the verb
	http      http.Client
	userAgent string
	settings
	pollFirst   time.Duration
	pollLongest time.Duration
	middleware  []func(http.RoundTripper) http.RoundTripper
	logger      *slog.Logger // nil for none
}

// NewFromEnv returns a client of the service at CARDMINT_URL with the token
// CARDMINT_TOKEN, both of which must be set in the environment.
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
// "https://cards.example.com": what comes before "/api/cards". An "/api" at its
// end is taken for a part of that and left out. The token is the account's API
// token, without "Bearer". New sends nothing; whether the token is good shows
// in the first call.
func New(baseURL, token string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	switch {
	// Without the text itself, which may hold a password.
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
	// A redirect would take the token to wherever it points.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// moduleVersion is "/" and the version of this module in the program that
// imports it, or empty where nobody knows it, as in its own tests.
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

// String names the service, not the token.
func (c *Client) String() string {
	if c == nil || c.token == nil {
		return "cardmint client of no service"
	}
	return "cardmint client of " + c.baseURL
}

// CreateCard asks for a card and answers how to pay for it: send exactly
// Payment.Amount of Payment.Currency to Payment.Address before
// Payment.ExpiresAt. The card waits for its payment; [Client.WaitForCard] waits
// with it.
//
// The call never makes a second card by repeating itself: all its attempts
// carry one random Idempotency-Key. To be able to repeat the call itself, also
// after a restart, choose the key with [WithIdempotencyKey].
func (c *Client) CreateCard(ctx context.Context, in CreateCardRequest, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opCreateCard(), in: in}, opts)
}

// GetCard reads one card. A card that does not exist or belongs to another
// account is an [*Error] with [ProblemCodeNotFound].
func (c *Client) GetCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opGetCard(id.String())}, opts)
}

// RevealCard reads one card with its whole credentials, also where the service
// masks those of [Client.GetCard]. The service keeps a record of each call. The
// credentials are empty until the card is generated, and once they are purged:
// the card then has a CredentialsPurgedAt.
func (c *Client) RevealCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opRevealCard(id.String())}, opts)
}

// CancelCard ends a card that holds no money, and answers it after that: its
// payment is [PaymentStateCanceled], or expired if it was before. It is
// harmless to repeat. Once money has arrived, even without a confirmation, it
// is an [*Error] with [ProblemCodeCardHasPayments]. Money that arrives later is
// treated as if it came after the quote has expired.
func (c *Client) CancelCard(ctx context.Context, id uuid.UUID, opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opCancelCard(id.String())}, opts)
}

// ListCurrencies lists the cryptocurrencies that a card can be paid with, and
// their rates now.
func (c *Client) ListCurrencies(ctx context.Context, opts ...CallOption) ([]Currency, error) {
	list, err := call[[]Currency](ctx, c, request{operation: opListCurrencies()}, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// ListOffers lists the amounts that cards can be ordered for right now,
// ascending and without overlaps. Left is nil where nobody counts the cards.
// The list may be some seconds old: other clients order from it too, and
// CreateCard then fails with [ProblemCodeAmountUnavailable].
func (c *Client) ListOffers(ctx context.Context, opts ...CallOption) ([]Offer, error) {
	list, err := call[[]Offer](ctx, c, request{operation: opListOffers()}, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// SimulatePayment pays for a card with simulated money and answers the card
// after that. With the zero request it pays what is due and confirms it. Only a
// sandbox can do this; elsewhere it is an [*Error] with [ProblemCodeNotFound].
//
// The call pays once however often it repeats itself.
func (c *Client) SimulatePayment(ctx context.Context, id uuid.UUID, in SimulatePaymentRequest,
	opts ...CallOption) (*Card, error) {
	return call[Card](ctx, c, request{operation: opSimulatePayment(id.String()), in: in}, opts)
}

// call does an operation whose answer is a T.
func call[T any](ctx context.Context, c *Client, r request, opts []CallOption) (*T, error) {
	out := new(T)
	if _, err := c.do(ctx, r, out, opts); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return out, nil
}

// exec does an operation whose answer is decoded into out; nil is for an answer
// without a body.
func (c *Client) exec(ctx context.Context, r request, out any, opts []CallOption) error {
	if _, err := c.do(ctx, r, out, opts); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}
