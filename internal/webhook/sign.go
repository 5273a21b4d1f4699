package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cardmint/cardmint/internal/card"
)

// Sign returns the headers that prove the origin of body, with a signature by
// each of the secrets.
func Sign(id string, at time.Time, body []byte, secrets []card.Secret) (http.Header, error) {
	by, err := newSigner(secrets)
	if err != nil {
		return nil, err
	}
	return by.sign(id, at, body)
}

// signer signs by the rules of Standard Webhooks 1.0, with each of its keys.
type signer []*standardwebhooks.Webhook

func newSigner(secrets []card.Secret) (signer, error) {
	keys := make(signer, len(secrets))
	for i, secret := range secrets {
		var err error
		if keys[i], err = standardwebhooks.NewWebhook(secret.Reveal()); err != nil {
			return nil, fmt.Errorf("secret of webhook is not whsec_ and base64: %w", err)
		}
	}
	return keys, nil
}

func (keys signer) sign(id string, at time.Time, body []byte) (http.Header, error) {
	signatures := make([]string, len(keys))
	for i, key := range keys {
		var err error
		if signatures[i], err = key.Sign(id, at, body); err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
	}
	// The keys are in net/http's canonical form. http.Header.Set would have to
	// convert each.
	return http.Header{
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {strings.Join(signatures, " ")},
	}, nil
}
