package supplier_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

const (
	secret      = card.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	otherSecret = card.Secret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	vectorKey   = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
)

var vectorTime = time.Unix(1795186000, 0)

func secrets(t testing.TB, texts ...card.Secret) supplier.Secrets {
	t.Helper()
	s, err := supplier.ParseSecrets(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// document returns the published contract.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../openapi/supplier.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func validate(text string) error {
	doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
	if err != nil {
		return err
	}
	return doc.Validate(context.Background(), openapi3.EnableExamplesValidation())
}

func TestContract_ExamplesMatchSchemas(t *testing.T) {
	text := document(t)
	if err := validate(text); err != nil {
		t.Fatal(err)
	}
	for _, broken := range [][2]string{{"status: issued\n", "status: shipped\n"},
		{"usd_amount: '150.50'\n", "usd_amount: 150.50\n"},
		{"example: 11/29", "example: 2029-11"}, {"reason: out_of_stock, temporary", "reason: sold_out, temporary"}} {
		if !strings.Contains(text, broken[0]) || validate(strings.Replace(text, broken[0], broken[1], 1)) == nil {
			t.Errorf("%q instead of %q is not detected", broken[1], broken[0])
		}
	}
}

// Implementers of suppliers test with these vectors.
func TestSignature_ContractVectors(t *testing.T) {
	text, s := strings.Join(strings.Fields(document(t)), " "), secrets(t, secret)
	if !strings.Contains(text, secret.Reveal()) || !strings.Contains(text, "`1795186000`") {
		t.Error("the secret or the time differs from the document")
	}
	for target, header := range map[string]http.Header{
		"`/v1/cards/" + vectorKey +
			"`": s.SignRequest("PUT", "/v1/cards/"+vectorKey, vectorTime, []byte(`{"usd_amount":"150.50","currency":"USD"}`)),
		"`/v1/offers`":                       s.SignRequest("GET", "/v1/offers", vectorTime, nil),
		"`{\"key\":\"" + vectorKey + "\"}`,": s.SignMessage("cb_01J9Z7Q4", vectorTime, []byte(`{"key":"`+vectorKey+`"}`)),
	} {
		signature := header.Get(supplier.SignatureHeader) + header.Get("Webhook-Signature")
		if !regexp.MustCompile(regexp.QuoteMeta(target) + ".{1,120}`" + regexp.QuoteMeta(signature) + "`").MatchString(text) {
			t.Errorf("after %s the document lacks %s", target, signature)
		}
	}
}

func TestSignature_ChangedRequest_IsRejected(t *testing.T) {
	s := secrets(t, secret)
	body := []byte(`{"a":1}`)
	good := s.SignRequest("PUT", "/v1/cards/k?x=1", vectorTime, body)
	with := func(name, value string) http.Header { h := good.Clone(); h.Set(name, value); return h }
	signature := good.Get(supplier.SignatureHeader)
	for name, tt := range map[string]struct {
		method, target string
		header         http.Header
		body           string
		now            time.Time
		genuine        bool
	}{
		"as it was signed":     {"PUT", "/v1/cards/k?x=1", good, `{"a":1}`, vectorTime, true},
		"five minutes later":   {"PUT", "/v1/cards/k?x=1", good, `{"a":1}`, vectorTime.Add(5 * time.Minute), true},
		"five minutes earlier": {"PUT", "/v1/cards/k?x=1", good, `{"a":1}`, vectorTime.Add(-5 * time.Minute), true},
		"too late": {"PUT", "/v1/cards/k?x=1", good, `{"a":1}`, vectorTime.Add(5*time.Minute + time.Second),
			false},
		"too early": {"PUT", "/v1/cards/k?x=1", good, `{"a":1}`, vectorTime.Add(-5*time.Minute - time.Second),
			false},
		"another method": {"POST", "/v1/cards/k?x=1", good, `{"a":1}`, vectorTime, false},
		"another path":   {"PUT", "/v1/cards/l?x=1", good, `{"a":1}`, vectorTime, false},
		"another query":  {"PUT", "/v1/cards/k?x=2", good, `{"a":1}`, vectorTime, false},
		"another body":   {"PUT", "/v1/cards/k?x=1", good, `{"a":2}`, vectorTime, false},
		"no body":        {"PUT", "/v1/cards/k?x=1", good, ``, vectorTime, false},
		"another time": {"PUT", "/v1/cards/k?x=1", with(supplier.TimestampHeader, "1795186001"), `{"a":1}`,
			vectorTime, false},
		"no time": {"PUT", "/v1/cards/k?x=1", with(supplier.TimestampHeader, ""), `{"a":1}`, vectorTime,
			false},
		"an odd time": {"PUT", "/v1/cards/k?x=1", with(supplier.TimestampHeader, "1795186000.0"), `{"a":1}`,
			vectorTime, false},
		"an absurd time": {"PUT", "/v1/cards/k?x=1", with(supplier.TimestampHeader, "9223372036854775807"),
			`{"a":1}`, vectorTime, false},
		"no signature": {"PUT", "/v1/cards/k?x=1", with(supplier.SignatureHeader, ""), `{"a":1}`, vectorTime,
			false},
		"another version": {"PUT", "/v1/cards/k?x=1", with(supplier.SignatureHeader, "v2"+signature[2:]), `{"a":1}`,
			vectorTime, false},
		"an empty signature": {"PUT", "/v1/cards/k?x=1", with(supplier.SignatureHeader, "v1,"), `{"a":1}`, vectorTime,
			false},
		"half a signature": {"PUT", "/v1/cards/k?x=1", with(supplier.SignatureHeader, signature[:23]), `{"a":1}`,
			vectorTime, false},
		"after a wrong one": {"PUT", "/v1/cards/k?x=1", with(supplier.SignatureHeader, "v1,AAAA "+signature), `{"a":1}`,
			vectorTime, true},
		"after many wrong ones": {"PUT", "/v1/cards/k?x=1",
			with(supplier.SignatureHeader, strings.Repeat("v1,AAAA ", 8)+signature), `{"a":1}`, vectorTime, false},
		"by somebody else": {"PUT", "/v1/cards/k?x=1",
			secrets(t, otherSecret).SignRequest("PUT", "/v1/cards/k?x=1", vectorTime, body), `{"a":1}`, vectorTime, false},
		"by both, the other 1st": {"PUT", "/v1/cards/k?x=1",
			secrets(t, otherSecret, secret).SignRequest("PUT", "/v1/cards/k?x=1", vectorTime, body), `{"a":1}`, vectorTime,
			true},
	} {
		if err := s.VerifyRequest(tt.method, tt.target, tt.header, []byte(tt.body), tt.now); (err == nil) != tt.genuine {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := secrets(t, otherSecret, secret).VerifyRequest("PUT", "/v1/cards/k?x=1", good, body, vectorTime); err != nil {
		t.Errorf("with the previous secret: %v", err)
	}
	if s.VerifyMessage(
		http.Header{"Webhook-Id": {"PUT\n/x"}, "Webhook-Timestamp": good[supplier.TimestampHeader],
			"Webhook-Signature": good[supplier.SignatureHeader]}, body, vectorTime) == nil {
		t.Error("a request was accepted as a callback")
	}
}

// Callbacks have the signatures of the official library.
func TestSignature_Callbacks_AreStandardWebhooks(t *testing.T) {
	library, err := standardwebhooks.NewWebhook(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	now, body := time.Now(), []byte(`{"key":"k"}`)
	if err := library.Verify(body, secrets(t, otherSecret, secret).SignMessage("m", now, body)); err != nil {
		t.Errorf("the library: %v", err)
	}
	theirs, err := library.Sign("m", now, body)
	if err != nil {
		t.Fatal(err)
	}
	header := secrets(t, otherSecret).SignMessage("m", now, body)
	header.Set("Webhook-Signature", theirs)
	if err := secrets(t, secret).VerifyMessage(header, body, now); err != nil {
		t.Error(err)
	}
}

func TestParseSecrets_24To64Bytes(t *testing.T) {
	for n, good := range map[int]bool{23: false, 24: true, 64: true, 65: false} {
		_, err := supplier.ParseSecrets(card.Secret("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n))))
		if (err == nil) != good {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestParseSecrets_Invalid_IsNotShown(t *testing.T) {
	for _, texts := range [][]card.Secret{{}, {""}, {"whsec_"}, {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		{"whsec_not base64"}, {"whsec_c2hvcnQ="}, {secret, "whsec_canary"},
		{card.Secret("whsec_" + strings.Repeat("AAAA", 22))}} {
		if _, err := supplier.ParseSecrets(texts...); err == nil || strings.Contains(err.Error(), "canary") ||
			strings.Contains(err.Error(), "not base64") {
			t.Errorf("%d secrets: %v", len(texts), err)
		}
	}
}
