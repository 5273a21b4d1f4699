package acceptance_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// printedCard is a card that a command prints with --json.
func printedCard(t *testing.T, text string) (c client.Card) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

func TestCardCommands_Sandbox_CreatePayAndWatch(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	made := printedCard(t, p.must(t, "card", "create", "99.50", "--reference", "order-1", "--idempotency-key", "1", "--json"))
	if made.USDAmount.String() != "99.5" || made.Reference != "order-1" || made.Payment.Currency != "monero" {
		t.Errorf("%+v", made)
	}
	if again := p.must(t, "card", "create", "99.50", "--reference", "order-1", "--idempotency-key", "1"); !strings.Contains(again,
		made.UUID.String()) || !strings.Contains(again, made.Payment.Address) {
		t.Errorf("another card: %s", again)
	}
	cmd := exec.Command(p.path, "card", "watch")
	cmd.Env = p.env
	watching := rig.Start(t, cmd)
	awaitLine := func(pattern string) {
		t.Helper()
		watching.Ready(t, 20*time.Second, func() error {
			if !regexp.MustCompile("(?m)" + pattern).MatchString(watching.Output()) {
				return io.ErrNoProgress
			}
			return nil
		})
	}
	awaitLine(` unpaid: \S+ monero is due$`)
	underpaid := printedCard(t, p.must(t, "card", "pay", made.UUID.String(), "--amount", "0.1", "--json"))
	if underpaid.Payment.State != client.PaymentStateUnderpaid {
		t.Errorf("%+v", underpaid.Payment)
	}
	awaitLine(` underpaid: 0\.1 monero arrived, send \S+ more$`)
	wantOutput(t, p.must(t, "card", "pay", "--confirmations", "1"), "confirming: ", "1 of 10 confirmations")
	awaitLine(` confirming: `)
	if _, stderr, code := p.run("card", "pay"); code != 1 || !strings.Contains(stderr, "hint: create one: ") {
		t.Errorf("no card waits for money: exit code %d\n%s", code, stderr)
	}
	wantOutput(t, p.must(t, "card", "pay", made.UUID.String(), "--amount", "0.1"), "paid: ", "number    99")
	watching.Wait(t, 20*time.Second)
	wantOutput(t, watching.Output(), " paid: ", "number    99", "code ")
	if seen := printedCard(t, p.must(t, "card", "watch", made.UUID.String(), "--json")); seen.Credentials.CardNumber == "" {
		t.Errorf("%+v", seen)
	}
	s.stop(t)
}

func TestCardWatch_CanceledCard_FailsWithHint(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev", "--seed-demo")
	for state, id := range demoCards(t, s) {
		out, stderr, code := p.run("card", "watch", id)
		switch state {
		case "paid", "reversed":
			if code != 0 || !strings.Contains(out, "number ") {
				t.Errorf("%s: exit code %d\n%s%s", state, code, out, stderr)
			}
		case "expired", "late", "canceled":
			if code != 1 || !strings.Contains(out, " "+state) || !strings.Contains(stderr, "\nhint: ") {
				t.Errorf("%s: exit code %d\n%s%s", state, code, out, stderr)
			}
		}
	}
	s.stop(t)
}

// demoCards returns the cards that --seed-demo has printed, by state.
func demoCards(t *testing.T, s *server) map[string]string {
	t.Helper()
	cards := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^  ([0-9a-f-]{36})  (\S+)`).FindAllStringSubmatch(s.Output(), -1) {
		cards[row[2]] = row[1]
	}
	if len(cards) != 9 {
		t.Fatalf("%d states:\n%s", len(cards), s.Output())
	}
	return cards
}

func TestCardCommands_Errors_AreExplained(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	unknown := uuid.Must(uuid.NewV7()).String()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no amount":     {[]string{"card", "create", "much"}, `"much" is not an amount of US dollars`},
		"small amount":  {[]string{"card", "create", "10"}, "usd_amount must be between 50 and 750 (invalid_request"},
		"unknown coin":  {[]string{"card", "create", "150", "--currency", "doge"}, "currency "},
		"unknown card":  {[]string{"card", "watch", unknown}, "the account has no card " + unknown},
		"no uuid":       {[]string{"card", "pay", "150"}, `"150" is not the uuid of a card`},
		"no coins":      {[]string{"card", "pay", "--amount", "much"}, `"much" is not an amount of coins`},
		"bad token":     {[]string{"card", "pay", "--url", s.url, "--token", "cm_test_x"}, "(unauthorized"},
		"other service": {[]string{"card", "pay", "--url", "http://127.0.0.1:1"}, "no token for http://127.0.0.1:1"},
		"no service":    {[]string{"card", "pay", "--url", "http://127.0.0.1:1", "--token", "x"}, "no service listens at http://127.0.0.1:1"},
		"bad address":   {[]string{"listen", "--url", "ftp://x", "--token", "x"}, "the base URL must have"},
		"not provoked":  {[]string{"trigger", "feed.reset"}, "can't be made to happen"},
		"no example":    {[]string{"trigger", "card.generated", "--set", "seq=1"}, "--set and --header are for examples"},
	} {
		stdout, stderr, code := p.run(tt.args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "\nhint: ") ||
			regexp.MustCompile(`(Create|Get|List|Simulate)[A-Z][a-z]+: `).MatchString(stderr) {
			t.Errorf("%s: exit code %d\n%s", name, code, stderr)
		}
	}
	s.stop(t)
}

func TestTrigger_Sandbox_MakesEventHappen(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	for _, kind := range []string{"card.generated", "payment.detected", "payment.underpaid", "payment.late",
		"payment.canceled"} {
		var e printedEvent
		if err := json.Unmarshal([]byte(p.must(t, "trigger", kind, "--json")), &e); err != nil || e.Type != kind || e.Seq == 0 {
			t.Errorf("%s: %+v, %v", kind, e, err)
		}
		wantOutput(t, p.must(t, "card", "show", e.CardUUID), e.CardUUID)
	}
	if _, stderr, code := p.run("trigger", "card.refund_due"); code != 1 || !strings.Contains(stderr, "declining") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.stop(t)
	s = p.serve(t, "dev", "--sandbox-supplier", "declining")
	wantOutput(t, p.must(t, "trigger", "card.refund_due"), "card.refund_due card=")
	s.stop(t)
}
