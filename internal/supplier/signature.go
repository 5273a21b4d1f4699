package supplier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// The headers of a signed request.
const (
	TimestampHeader = "Cardmint-Timestamp"
	SignatureHeader = "Cardmint-Signature"
)

const (
	secretPrefix     = "whsec_"
	shortestSecret   = 24 // bytes, by Standard Webhooks
	longestSecret    = 64
	tolerance        = 5 * time.Minute // between the clocks of both sides
	mostSignatures   = 8               // verified per request
	signatureVersion = "v1,"
)

var (
	errSecret    = errors.New("the secret must be whsec_ and then 24 to 64 bytes in base64")
	errSignature = errors.New("no signature matches")
	errTime      = errors.New("the time of the signature differs by more than five minutes")
)

// Secrets sign and verify messages between cardmint and a supplier. Several are
// in use while a secret is rotated.
type Secrets struct{ keys [][]byte }

// ParseSecrets parses secrets, newest first, and skips empty ones. At least one
// is required. Errors show no secrets.
func ParseSecrets(texts ...card.Secret) (Secrets, error) {
	var s Secrets
	for _, text := range texts {
		if text == "" {
			continue
		}
		encoded, is := strings.CutPrefix(text.Reveal(), secretPrefix)
		key, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if !is || err != nil || len(key) < shortestSecret || len(key) > longestSecret {
			return Secrets{}, errSecret
		}
		s.keys = append(s.keys, key)
	}
	if len(s.keys) == 0 {
		return Secrets{}, errSecret
	}
	return s, nil
}

// SignRequest returns the headers that prove the origin of a request. target is
// the path and query as sent.
func (s Secrets) SignRequest(method, target string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return http.Header{TimestampHeader: {timestamp},
		SignatureHeader: {s.sign(method, "\n", target, "\n", timestamp, "\n", string(body))}}
}

// VerifyRequest returns an error unless a request was signed with one of the
// secrets, within five minutes of now.
func (s Secrets) VerifyRequest(method, target string, header http.Header, body []byte, now time.Time) error {
	timestamp := header.Get(TimestampHeader)
	if err := near(timestamp, now); err != nil {
		return err
	}
	return s.verify(header.Get(SignatureHeader), method, "\n", target, "\n", timestamp, "\n", string(body))
}

// SignMessage returns the headers of a callback, by the rules of Standard
// Webhooks.
func (s Secrets) SignMessage(id string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp},
		"Webhook-Signature": {s.sign(id, ".", timestamp, ".", string(body))}}
}

// VerifyMessage returns an error unless a callback was signed with one of the
// secrets, within five minutes of now.
func (s Secrets) VerifyMessage(header http.Header, body []byte, now time.Time) error {
	id, timestamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	if id == "" {
		return errSignature
	}
	if err := near(timestamp, now); err != nil {
		return err
	}
	return s.verify(header.Get("Webhook-Signature"), id, ".", timestamp, ".", string(body))
}

// sign returns one signature of the parts per secret.
func (s Secrets) sign(parts ...string) string {
	signatures := make([]string, len(s.keys))
	for i, key := range s.keys {
		signatures[i] = signatureVersion + base64.StdEncoding.EncodeToString(mac(key, parts))
	}
	return strings.Join(signatures, " ")
}

// verify returns an error unless one of the signatures matches the parts and one
// of the secrets.
func (s Secrets) verify(signatures string, parts ...string) error {
	given := strings.Fields(signatures)
	for _, text := range given[:min(len(given), mostSignatures)] {
		encoded, known := strings.CutPrefix(text, signatureVersion)
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if !known || err != nil {
			continue
		}
		for _, key := range s.keys {
			if hmac.Equal(signature, mac(key, parts)) {
				return nil
			}
		}
	}
	return errSignature
}

func mac(key []byte, parts []string) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

func near(timestamp string, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errSignature
	}
	if at := time.Unix(seconds, 0); at.Before(now.Add(-tolerance)) || at.After(now.Add(tolerance)) {
		return errTime
	}
	return nil
}
