package acceptance_test

import (
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

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// eventReceiver starts a webhook receiver that sends every event to the
// channel.
func eventReceiver(t *testing.T, status int) (url string, events chan *client.Event) {
	t.Helper()
	events = make(chan *client.Event, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e, err := client.ParseWebhook(body, r.Header, hookSecret)
		if err != nil {
			t.Error(err)
		}
		events <- e
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "thanks\nand more")
	}))
	t.Cleanup(server.Close)
	return server.URL + "/hook", events
}

func TestListen_NewEvents_ArePrintedAndForwarded(t *testing.T) {
	skipIfShort(t)
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	token := regexp.MustCompile(`(?m)^token: (\S+)$`).FindStringSubmatch(s.Output())[1]
	c := newClient(t, s.url, token)
	buy := func() *client.Card {
		made, err := c.CreateCard(t.Context(),
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
		if err != nil {
			t.Fatal(err)
		}
		if made, err = c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{}); err != nil {
			t.Fatal(err)
		}
		return made
	}
	buy() // before the listener starts
	hook, events := eventReceiver(t, http.StatusOK)
	cmd := exec.Command(p.path, "listen", "--url", s.url, "--forward-to", hook, "--every", "50ms")
	cmd.Env = append(p.env, "CARDMINT_TOKEN="+token, "CARDMINT_WEBHOOK_SECRET="+hookSecret)
	listening := rig.Start(t, cmd)
	listening.Ready(t, waitLimit, func() error {
		if !strings.Contains(listening.Output(), "listening after event 2") {
			return io.ErrNoProgress
		}
		return nil
	})
	made := buy()
	for _, want := range []client.EventType{client.EventTypePaymentDetected, client.EventTypeCardGenerated} {
		select {
		case e := <-events:
			if e.Type != want || e.CardUUID != made.UUID || e.Seq < 3 {
				t.Errorf("forwarded %+v, want %s of %s", e, want, made.UUID)
			}
		case <-time.After(waitLimit):
			t.Fatalf("nothing was forwarded\n%s", listening.Output())
		}
	}
	listening.Ready(t, waitLimit, func() error {
		out := listening.Output()
		if strings.Count(out, "-> 200 thanks (") != 2 ||
			!strings.Contains(out, " 4 card.generated card="+made.UUID.String()+" status=generated payment=paid") {
			return io.ErrNoProgress
		}
		return nil
	})
	if out := listening.Output(); strings.Contains(out, token) || strings.Contains(out, hookSecret) {
		t.Errorf("a secret was printed:\n%s", out)
	}
}

func TestListen_BadToken_IsExplained(t *testing.T) {
	skipIfShort(t)
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	_, stderr, code := p.run("listen", "--url", s.url, "--token", "cm_test_wrong")
	if code != 1 || !strings.Contains(stderr, "unauthorized") ||
		!strings.Contains(stderr, "hint: check --url, and that CARDMINT_TOKEN") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

func TestTrigger_ExampleEvent_IsSent(t *testing.T) {
	skipIfShort(t)
	p := newProgram(t, "")
	hook, events := eventReceiver(t, http.StatusNoContent)
	for _, kind := range []string{"card.generated", "payment.late", "webhook.disabled"} {
		out := p.must(t, "trigger", kind, "--to", hook, "--secret", hookSecret)
		if e := <-events; string(e.Type) != kind || e.Seq != 0 || !strings.Contains(out, e.ID.String()) ||
			!strings.Contains(out, "-> 204") {
			t.Errorf("%s: sent %+v\n%s", kind, e, out)
		}
	}
	refusing, _ := eventReceiver(t, http.StatusTeapot)
	out, stderr, code := p.run("trigger", "card.generated", "--to", refusing, "--secret", hookSecret)
	if code != 1 || !strings.Contains(out, "-> 418 thanks") || !strings.Contains(stderr, "hint: it has to answer 2xx") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	for _, args := range [][]string{
		{"trigger", "card.eaten"}, {"trigger", "card.generated", "--to", "nowhere"},
		{"trigger", "card.generated", "--to", hook, "--secret", "short&bad"},
	} {
		if _, stderr, code := p.run(args...); code == 0 || !strings.Contains(stderr, "hint: ") {
			t.Errorf("%v: exit code %d\n%s", args, code, stderr)
		}
	}
}
