package acceptance_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// start gives the host a service that runs, with an account.
func (h *host) start() {
	h.Helper()
	if out, code := h.shell(
		"[ -e /var/lib/cardmint/cardmint.keys ] || cm keys create; cm migrate && cm account create shop && cm token create shop >token && systemctl start cardmint"); code != 0 {
		h.Fatal(out)
	}
	token, err := os.ReadFile(filepath.Join(h.dir, "token"))
	must(h, err)
	h.token = strings.TrimSpace(string(token))
	h.awaitReady()
}

// awaitReady waits until the service is.
func (h *host) awaitReady() {
	h.Helper()
	h.awaitReadiness(http.StatusOK, "")
}

// awaitNotReady waits until the service is not ready, and says why.
func (h *host) awaitNotReady(why string) {
	h.Helper()
	h.awaitReadiness(http.StatusServiceUnavailable, why)
}

// awaitReadiness waits until the service answers so when it is asked whether it is
// ready.
func (h *host) awaitReadiness(status int, part string) {
	h.Helper()
	last := ""
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		res, err := http.Get("http://" + h.address + "/readyz")
		if err != nil {
			last = err.Error()
			continue
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if last = string(body); res.StatusCode == status && strings.Contains(last, part) {
			return
		}
	}
	h.Fatalf("readyz: %s, want %d %q\n%s", last, status, part, h.log("cardmint"))
}

func (h *host) client() *client.Client { return newClient(h, "http://"+h.address, h.token) }

// order orders a card.
func (h *host) order(usd int64) *client.Card {
	h.Helper()
	c, err := h.client().CreateCard(h.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(usd), Currency: "monero"})
	must(h, err)
	return c
}

// pay pays a part of what a card costs, with simulated money.
func (h *host) pay(c *client.Card, part string) {
	h.Helper()
	amount := c.Payment.Amount.Mul(decimal.RequireFromString(part)).Truncate(12)
	_, err := h.client().SimulatePayment(h.Context(), c.UUID, client.SimulatePaymentRequest{Amount: &amount})
	must(h, err)
}

// awaitPayments waits until payments are in these states, and those of them that are
// paid are issued.
func (h *host) awaitPayments(want map[uuid.UUID]client.PaymentState) {
	h.Helper()
	for deadline := time.Now().Add(waitLimit); len(want) > 0; time.Sleep(100 * time.Millisecond) {
		for id, state := range want {
			got, err := h.client().GetCard(h.Context(), id)
			if err == nil && got.Payment.State == state &&
				(state != client.PaymentStatePaid || got.Status == client.CardStatusGenerated) {
				delete(want, id)
			} else if time.Now().After(deadline) {
				h.Fatalf("%+v, %v; want %s", got, err, state)
			}
		}
	}
}

// exec changes the database behind everybody's back.
func (h *host) exec(statement string, args ...any) {
	h.Helper()
	_, err := rig.OpenSQL(h, h.databaseURL()).Exec(statement, args...)
	must(h, err)
}

func (h *host) databaseURL() string { return h.service().setting("CARDMINT_DATABASE_URL") }

// service returns the program with the configuration of the host, for what is
// no operator's.
func (h *host) service() *program {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "etc/cardmint/cardmint.env"))
	must(h, err)
	p := &program{path: filepath.Join(h.dir, "bin", programName), env: append(os.Environ(), h.env...)}
	for _, line := range regexp.MustCompile(`(?m)^(CARDMINT_\w+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		p.env = append(p.env, line[1]+"="+strings.Trim(line[2], `"`))
	}
	return p
}

// unit adds a service that may run already.
func (h *host) unit(name string, running *rig.Process, start func() *rig.Process) {
	h.units[name], h.running[name] = start, running
}
