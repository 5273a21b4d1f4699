// Package webhook sends events to the addresses that customers choose.
//
// It may import packages card and outbound only. What is to be sent are rows that were committed with what they tell of: an attempt that a crash cut
// off is made again once the claim of the dead process ends. So every event arrives at least once, and perhaps again.
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

// Poster makes attempts. It implements card.Poster.
type Poster struct {
	client *outbound.Client
	now    func() time.Time
}

var _ card.Poster = (*Poster)(nil)

// NewPoster returns a poster to the addresses that guard allows. Close it.
func NewPoster(guard outbound.Guard) *Poster {
	return &Poster{client: outbound.NewClient(guard), now: time.Now}
}

// Close ends the connections that are idle.
func (p *Poster) Close() { p.client.Close() }

// CheckURL implements card.Poster.
func (p *Poster) CheckURL(url string) error { return p.client.CheckURL(url) }

// Post implements card.Poster: one request, signed by the rules of Standard Webhooks 1.0.
func (p *Poster) Post(ctx context.Context, url string, secrets []card.Secret, e card.Event) card.Attempt {
	at, body := p.now(), e.Payload()
	header, err := Sign(e.ID.String(), at, body, secrets)
	if err != nil {
		return card.Attempt{At: at, Error: "the request could not be signed"}
	}
	header.Set("Content-Type", "application/json")
	answer := p.client.Post(ctx, url, header, body)
	return card.Attempt{At: at, Took: answer.Took, Status: answer.Status, Answer: answer.Body, Error: answer.Reason, RetryAfter: answer.RetryAfter}
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
