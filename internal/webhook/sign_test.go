package webhook_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// The test vector of the Standard Webhooks specification.
const (
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSign_SpecificationVector(t *testing.T) {
	header, err := webhook.Sign(vectorID, time.Unix(vectorTime, 0), []byte(vectorBody), []card.Secret{vectorSecret})
	check(t, err)
	want := http.Header{"Webhook-Id": {vectorID}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {vectorSignature}}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Error(diff)
	}
}

func TestSign_InvalidSecret_IsNotShown(t *testing.T) {
	_, err := webhook.Sign("id", time.Unix(1, 0), nil, []card.Secret{"whsec_not base64"})
	if err == nil || strings.Contains(err.Error(), "not base64:") || strings.Contains(err.Error(), "whsec_not") {
		t.Errorf("error %v", err)
	}
}

// verifiers returns the official libraries: each returns the payload of a
// request, or an error if its signature is invalid.
func verifiers(t *testing.T) map[string]func(secret card.Secret, r received) ([]byte, error) {
	t.Helper()
	program := func(name string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip("needs " + name)
		}
		return path
	}
	js := filepath.Join("..", "..", "tools", "webhook-verify")
	install := exec.Command(program("npm"), "ci", "--no-audit", "--no-fund", "--loglevel", "error")
	install.Dir = js
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v: %s", err, out)
	}
	module, err := exec.Command(program("go"), "list", "-m", "-f", "{{.Dir}}",
		"github.com/standard-webhooks/standard-webhooks/libraries").Output()
	check(t, err)
	run := func(cmd *exec.Cmd, dir string, env ...string) func(card.Secret, received) ([]byte, error) {
		return func(secret card.Secret, r received) ([]byte, error) {
			input, err := json.Marshal(map[string]any{"secret": secret.Reveal(), "payload": r.Body,
				"headers": map[string]string{"webhook-id": r.ID, "webhook-timestamp": r.Timestamp,
					"webhook-signature": r.Signature}})
			check(t, err)
			again := exec.Command(cmd.Path, cmd.Args[1:]...)
			again.Dir, again.Stdin, again.Env = dir, strings.NewReader(string(input)), append(os.Environ(), env...)
			return again.Output()
		}
	}
	return map[string]func(card.Secret, received) ([]byte, error){
		"JavaScript": run(exec.Command(program("node"), "verify.js"), js),
		"Python": run(exec.Command(program("python3"), "verify.py"), js, "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONPATH="+filepath.Join(strings.TrimSpace(string(module)), "python")),
	}
}

func TestHTTPPoster_OfficialLibraries_VerifyRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("installs a package with npm")
	}
	all := verifiers(t)
	onEach(t, func(t *testing.T, s *fixture) {
		r := newReceiver(t, nil)
		w, first := s.createWebhook(r.URL)
		_, second, err := s.webhooks.RotateWebhookSecret(t.Context(), s.account, w.ID)
		check(t, err)
		s.insertEvents(1)
		s.deliver()
		got := r.all()[0]
		altered := got
		altered.Body = strings.Replace(got.Body, "underpaid", "late", 1)
		for name, verify := range all {
			for _, secret := range []card.Secret{first, second} {
				out, err := verify(secret, got)
				var want, is map[string]any
				if err != nil || json.Unmarshal([]byte(got.Body), &want) != nil || json.Unmarshal(out, &is) != nil ||
					!cmp.Equal(want, is) {
					t.Errorf("%s: verified as %s, error %v", name, out, err)
				}
			}
			if out, err := verify(second, altered); err == nil {
				t.Errorf("%s: an altered body was verified: %s", name, out)
			}
		}
	})
}
