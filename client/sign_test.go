package client

import (
	"errors"
	"testing"
	"time"
)

func TestSignWebhook_IsWhatAReceiverAccepts(t *testing.T) {
	const secret Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	payload := []byte(`{"type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":43}`)
	for name, tc := range map[string]struct {
		at    time.Time
		wants error
	}{
		"now":          {time.Now(), nil},
		"too long ago": {time.Now().Add(-webhookTolerance - time.Minute), ErrWebhookSignature},
	} {
		header, err := SignWebhook(payload, hookID, tc.at, secret)
		if err != nil {
			t.Fatal(err)
		}
		e, err := ParseWebhook(payload, header, secret)
		if !errors.Is(err, tc.wants) || err == nil && (e.ID != hookID || e.Seq != 43) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := SignWebhook(payload, hookID, time.Now(), "whsec_short"); err == nil {
		t.Error("a short secret is accepted")
	}
}
