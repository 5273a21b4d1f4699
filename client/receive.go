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
	// ErrWebhookSignature means that a request is not proven to come from the
	// service: a header is missing or invalid, the timestamp is off by more
	// than five minutes, or no signature matches. The error's text names the
	// cause and the remedy.
	ErrWebhookSignature = errors.New("invalid webhook signature")
	// ErrWebhookPayload means that a payload is longer than 64 KiB, or is
	// signed but invalid.
	ErrWebhookPayload = errors.New("the webhook's payload can't be read")
)

const (
	maxPayload = 64 << 10 // bytes; real payloads have less than 1 KiB
	minSecret  = 24       // bytes, by the specification
)

// ParseWebhook verifies that a request to a webhook comes from the service, and
// returns its event. It needs the body exactly as it was received, the
// request's headers, and the webhook's secret; during a rotation, the new and
// the old secret. Requests are signed by the rules of Standard Webhooks 1.0
// (https://www.standardwebhooks.com).
//
// An error is [ErrWebhookSignature], [ErrWebhookPayload], or reports an invalid
// secret.
//
// The same event may arrive more than once, with the same ID, and events may
// arrive out of order (see Seq). Ignore unknown types. An event with Seq 0 is a
// test event. [NewWebhookHandler] also deduplicates and responds.
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

// webhookKeys decodes secrets. It rejects an empty or short one, because an
// attacker could guess it.
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
		Seq *int64 `json:"seq"` // distinguishes 0, a test event's, from a missing value
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
