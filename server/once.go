package server

import (
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/webhook"
)

// once returns the service for a request to webhooks, and the request if it has
// an idempotency key. what names the operation and everything that it is asked
// for, so that another request with the same key is found out.
func (a *api) once(account uuid.UUID, header *string, what ...string) (*webhook.Service, *webhook.Once, error) {
	key, err := idempotencyKey(header)
	if err != nil || key == "" {
		return a.webhooks, nil, err
	}
	o := &webhook.Once{AccountID: account, Key: key, Request: what}
	return a.webhooks.Once(o), o, nil
}

// replayed returns the value of Idempotency-Replayed.
func replayed(o *webhook.Once) *string {
	if o == nil || !o.Replayed {
		return nil
	}
	return ptr("true")
}
