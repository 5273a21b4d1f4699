package client

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

var (
	// ErrWebhookSignature says that nothing proves that a request comes from
	// the service: a header is missing or can't be read, the request is more
	// than five minutes old or ahead, or none of its signatures is right. The
	// error's text says which, and what to check.
	ErrWebhookSignature = errors.New("the webhook's signature is not good")
	// ErrWebhookPayload says that a payload is longer than 64 KiB, or is signed
	// but can't be read.
	ErrWebhookPayload = errors.New("the webhook's payload can't be read")
)

const (
	maxPayload = 64 << 10 // bytes; the service's have less than 1 KiB
	minSecret  = 24       // bytes, by the specification
)

// ParseWebhook reads an event out of a request that was sent to a webhook,
// after it has checked that the service has sent it. It needs the body exactly
// as it was received, the request's headers, and the webhook's secret; while
// the secret is being changed, the new one and the old one. Requests are signed
// by the rules of Standard Webhooks 1.0 (https://www.standardwebhooks.com).
//
// An error is [ErrWebhookSignature], [ErrWebhookPayload], or says that a secret
// can't be used.
//
// The same event may come more than once, with the same ID, and events may come
// in another order than they happened, which Seq tells. Pass over types that
// you do not know. An event with Seq 0 is an example. [NewWebhookHandler] does
// what else a receiver has to do.
func ParseWebhook(payload []byte, header http.Header, secrets ...Secret) (*Event, error) {
	keys, err := webhookKeys(secrets)
	if err != nil {
		return nil, fmt.Errorf("ParseWebhook: %w", err)
	}
	e, err := parseWebhook(payload, header, keys)
	if err != nil {
		return nil, fmt.Errorf("ParseWebhook: %w", err)
	}
	return e, nil
}

// webhookKeys reads secrets. An empty or short one is refused, because anybody
// could sign with it.
func webhookKeys(secrets []Secret) ([][]byte, error) {
	if len(secrets) == 0 {
		return nil, errors.New("the webhook's secret is missing")
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
		if err != nil || len(raw) < minSecret {
			return nil, fmt.Errorf(
				"secret %d of %d can't be used: it must be whsec_ and the base64 of at least %d bytes, as CreateWebhook answers it",
				i+1, len(secrets), minSecret)
		}
		keys[i] = raw
	}
	return keys, nil
}

func parseWebhook(payload []byte, header http.Header, keys [][]byte) (*Event, error) {
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrWebhookPayload, maxPayload)
	}
	if err := verifyWebhook(payload, header, keys); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWebhookSignature, err)
	}
	id, err := uuid.Parse(header.Get(headerWebhookID))
	if err != nil {
		return nil, fmt.Errorf("%w: the webhook-id is not a UUID", ErrWebhookPayload)
	}
	var in struct {
		Event
		Seq *int64 `json:"seq"` // tells 0, which is an example's, from none
	}
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWebhookPayload, err)
	}
	if in.Type == "" || in.Timestamp.IsZero() || in.Seq == nil || *in.Seq < 0 {
		return nil, fmt.Errorf("%w: it needs a type, a timestamp and a seq", ErrWebhookPayload)
	}
	in.Event.ID, in.Event.Seq = id, *in.Seq
	return &in.Event, nil
}
