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

// Sign returns the headers that prove the origin of body, by the rules of
// Standard Webhooks 1.0. They contain one signature per secret.
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
	return http.Header{
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {strings.Join(signatures, " ")},
	}, nil
}
