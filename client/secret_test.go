package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const testSecret Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestSecret_IsNeitherPrintedNorLogged(t *testing.T) {
	w := WebhookWithSecret{Secret: testSecret}
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&b, verb+verb+verb+verb, testSecret, w, &w, []Secret{testSecret})
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).Info("made", "secret", testSecret, "webhook", w, "pointer", &w)
	}
	text := strings.ToLower(b.String())
	for _, form := range []string{"%s", "%x"} {
		if strings.Contains(text, strings.ToLower(fmt.Sprintf(form, testSecret.Reveal()))) {
			t.Errorf("printed: %s", text)
		}
	}
	if got := fmt.Sprintf("%s %v", testSecret, Secret("")); got != "[hidden] [none]" {
		t.Error(got)
	}
}

func TestSecret_JSONHasIt(t *testing.T) {
	w := WebhookWithSecret{Secret: testSecret}
	raw, err := json.Marshal(w)
	if err != nil || !bytes.Contains(raw, []byte(`"secret":"`+testSecret.Reveal()+`"`)) {
		t.Fatalf("%s, %v", raw, err)
	}
	var back WebhookWithSecret
	if err := json.Unmarshal(raw, &back); err != nil || back.Secret.Reveal() != string(testSecret) {
		t.Errorf("%q, %v", back.Secret.Reveal(), err)
	}
}
