package acceptance_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// printedEvent is an event that listen or trigger prints with --json.
type printedEvent struct {
	Type         string `json:"type"`
	Seq          int64  `json:"seq"`
	CardUUID     string `json:"card_uuid"`
	PaymentState string `json:"payment_state"`
	Forwarded    *struct {
		To     string `json:"to"`
		OK     bool   `json:"ok"`
		Status int    `json:"status"`
	} `json:"forwarded"`
}

// tenantReceiver starts a webhook receiver that verifies signatures and sends
// the X-Tenant header of each request to got.
func tenantReceiver(t *testing.T, secret string) (address string, got chan string) {
	t.Helper()
	got = make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, err := client.ParseWebhook(body, r.Header, client.Secret(secret)); err != nil {
			t.Error(err)
		}
		got <- strings.Join(r.Header.Values("X-Tenant"), "+")
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/hook", got
}

func TestListen_EventsAndHeaders_AreForwarded(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	token := regexp.MustCompile(`(?m)^token: (\S+)$`).FindStringSubmatch(s.Output())[1]
	p.env = append(p.env, "CARDMINT_TOKEN="+token, "CARDMINT_URL="+strings.TrimPrefix(s.url, "http://"))
	secret := p.must(t, "listen", "--print-secret")
	if again := p.must(t, "listen", "--print-secret"); again != secret || !strings.HasPrefix(secret, "whsec_") ||
		strings.Contains(secret, token) {
		t.Errorf("secrets %q and %q", secret, again)
	}
	hook, got := tenantReceiver(t, secret)
	cmd := exec.Command(p.path, "listen", "--after", "0", "--every", "50ms", "--forward-to", hook, "--events",
		"card.generated,payment.late",
		"--header", "X-Tenant: shop, the first", "--header", "X-Tenant:two", "--json")
	cmd.Env = p.env
	listening := rig.Start(t, cmd)
	c := newClient(t, s.url, token)
	made, err := c.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case tenant := <-got:
		if tenant != "shop, the first+two" {
			t.Errorf("X-Tenant: %s", tenant)
		}
	case <-time.After(waitLimit):
		t.Fatalf("nothing was forwarded\n%s", listening.Output())
	}
	var line []string
	listening.Ready(t, 10*time.Second, func() error {
		if line = regexp.MustCompile(`(?m)^\{.*\}$`).FindAllString(listening.Output(), -1); len(line) == 0 {
			return io.ErrNoProgress
		}
		return nil
	})
	var e printedEvent
	if err := json.Unmarshal([]byte(line[0]), &e); err != nil || len(line) != 1 {
		t.Fatalf("%q, %v", line, err)
	}
	if e.Type != "card.generated" || e.Seq != 2 || e.CardUUID != made.UUID.String() || e.Forwarded == nil ||
		e.Forwarded.To != "http://"+hook || !e.Forwarded.OK {
		t.Errorf("%s", line[0])
	}
}

func TestTrigger_Set_ChangesFields(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	hook, got := tenantReceiver(t, hookSecret)
	p.env = append(p.env, "CARDMINT_WEBHOOK_SECRET="+hookSecret)
	const id = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	out := p.must(t, "trigger", "card.generated", "--to", hook, "--set", "card_uuid="+id, "--set", "seq=42", "--set",
		"payment_state=reversed", "--header", "X-Tenant:a", "--json")
	var e printedEvent
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Seq != 42 || e.CardUUID != id ||
		e.PaymentState != "reversed" || e.Forwarded.Status != http.StatusOK || <-got != "a" {
		t.Errorf("%s, %v", out, err)
	}
	for _, wrong := range [][]string{
		{"--set", "payment_state=eaten"}, {"--set", "color=red"}, {"--set", "seq=-1"},
		{"--set", "since=2026-11-20T14:46:00Z"}, {"--set", "card_uuid=x"},
		{"--header", "no colon"}, {"--header", "Webhook-Id: forged"}, {"--header", "a b: c"}, {"--header", "a: b\nc: d"},
	} {
		_, stderr, code := p.run(append([]string{"trigger", "card.generated", "--to", hook}, wrong...)...)
		if code != 1 || !strings.Contains(stderr, "cardmint: "+wrong[0]) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%v: exit code %d, %q", wrong, code, stderr)
		}
	}
	if len(got) > 0 {
		t.Error("an invalid event was sent")
	}
}
