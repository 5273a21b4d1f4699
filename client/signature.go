package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request (Standard Webhooks 1.0).
const (
	headerWebhookID        = "webhook-id"
	headerWebhookTimestamp = "webhook-timestamp"
	headerWebhookSignature = "webhook-signature"
)

const webhookTolerance = 5 * time.Minute

// verifyWebhook returns an error with a remedy unless one of the request's
// signatures is valid: an HMAC-SHA256 of the id, the timestamp and the body.
func verifyWebhook(payload []byte, header http.Header, keys [][]byte) error {
	id, timestamp, signatures := header.Get(headerWebhookID), header.Get(headerWebhookTimestamp),
		header.Get(headerWebhookSignature)
	if id == "" || timestamp == "" || signatures == "" {
		return errors.New(
			"a header of webhook-id, webhook-timestamp and webhook-signature is missing: check what stands between the service and here")
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("webhook-timestamp is not a number of seconds") // the parser's error would contain the value
	}
	switch at, now := time.Unix(seconds, 0), time.Now(); {
	case now.Sub(at) > webhookTolerance:
		return errors.New(
			"webhook-timestamp is more than five minutes ago: check the clock here, and that nothing keeps requests back")
	case at.Sub(now) > webhookTolerance:
		return errors.New("webhook-timestamp is more than five minutes ahead: check the clock here")
	}
	for _, key := range keys {
		right := []byte(webhookSignature(key, id, seconds, payload))
		for signature := range strings.SplitSeq(signatures, " ") {
			if hmac.Equal([]byte(signature), right) {
				return nil
			}
		}
	}
	return errors.New(
		"no signature matches: check the secret, and that the body is used as it was received, neither parsed nor changed")
}

// webhookSignature returns the signature of a request by one key, with its
// version.
func webhookSignature(key []byte, id string, seconds int64, payload []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(seconds, 10) + "."))
	mac.Write(payload)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
