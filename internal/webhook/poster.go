package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
)

// HTTPPoster is the Poster of a service: it calls webhooks through the guarded client.
type HTTPPoster struct {
	client *outbound.Client
	now    func() time.Time
}

// NewHTTPPoster returns a poster to the addresses that guard allows. Close it.
func NewHTTPPoster(guard outbound.Guard) *HTTPPoster {
	return &HTTPPoster{client: outbound.NewClient(guard), now: time.Now}
}

// Close ends the connections that are idle.
func (p *HTTPPoster) Close() { p.client.Close() }

// CheckURL returns what is wrong with an address, as a text that goes on after its name.
func (p *HTTPPoster) CheckURL(url string) error { return p.client.CheckURL(url) }

// Post sends an event once, signed with each of the secrets by the rules of Standard Webhooks 1.0.
func (p *HTTPPoster) Post(ctx context.Context, url string, secrets []card.Secret, e card.Event) Attempt {
	at, body := p.now(), e.Payload()
	header, err := Sign(e.ID.String(), at, body, secrets)
	if err != nil {
		return Attempt{At: at, Error: "the request could not be signed"}
	}
	header.Set("Content-Type", "application/json")
	answer := p.client.Post(ctx, url, header, body)
	return Attempt{At: at, Took: answer.Took, Status: answer.Status, Answer: answer.Body, Error: answer.Reason, RetryAfter: answer.RetryAfter}
}

// Sign returns the headers that prove where a body comes from: with several secrets it has a signature by each.
func Sign(id string, at time.Time, body []byte, secrets []card.Secret) (http.Header, error) {
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := standardwebhooks.NewWebhook(secret.Reveal())
		if err != nil {
			return nil, fmt.Errorf("secret of webhook is not whsec_ and base64: %w", err)
		}
		if signatures[i], err = key.Sign(id, at, body); err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
	}
	// Keys are as net/http keeps them: http.Header.Set would spell each anew.
	return http.Header{
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {strings.Join(signatures, " ")},
	}, nil
}
