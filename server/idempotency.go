package server

import (
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/webhook"
)

// keyed returns the service for a request to webhooks, and the request if it
// has an idempotency key; otherwise nil. operation is the operation with its
// parameters: another request with the same key is rejected.
func (a *api) keyed(account uuid.UUID, header *string, operation ...string) (*webhook.Service,
	*webhook.KeyedRequest, error) {
	key, err := idempotencyKey(header)
	if err != nil || key == "" {
		return a.webhooks, nil, err
	}
	r := &webhook.KeyedRequest{AccountID: account, Key: key, Request: operation}
	return a.webhooks.Keyed(r), r, nil
}

// replayed returns the value of Idempotency-Replayed.
func replayed(r *webhook.KeyedRequest) *string {
	if r == nil || !r.Replayed {
		return nil
	}
	return ptr("true")
}
