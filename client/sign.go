package client

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// SignWebhook returns the headers that the service sends with a payload at a
// given time, for tests of receivers. The id is the event's. It fails if the
// secret is invalid.
//
//	header, err := client.SignWebhook(payload, uuid.New(), time.Now(), secret)
//	r := httptest.NewRequest(http.MethodPost, "/hooks/cardmint", bytes.NewReader(payload))
//	r.Header = header
func SignWebhook(payload []byte, id uuid.UUID, at time.Time, secret Secret) (http.Header, error) {
	keys, err := webhookKeys([]Secret{secret})
	if err != nil {
		return nil, fmt.Errorf("SignWebhook: %w", err)
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set(headerWebhookID, id.String())
	header.Set(headerWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(headerWebhookSignature, webhookSignature(keys[0], id.String(), at.Unix(), payload))
	return header, nil
}
