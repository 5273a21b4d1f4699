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

// start creates an account, starts the service, and waits until it is ready.
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

// awaitReady waits until the service is ready.
func (h *host) awaitReady() {
	h.Helper()
	h.awaitReadiness(http.StatusOK, "")
}

// awaitNotReady waits until /readyz fails with the given reason.
func (h *host) awaitNotReady(why string) {
	h.Helper()
	h.awaitReadiness(http.StatusServiceUnavailable, why)
}

// awaitReadiness waits until /readyz returns the status, and a body that
// contains part.
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

// pay pays the given part of a card's price, with simulated money.
func (h *host) pay(c *client.Card, part string) {
	h.Helper()
	amount := c.Payment.Amount.Mul(decimal.RequireFromString(part)).Truncate(12)
	_, err := h.client().SimulatePayment(h.Context(), c.UUID, client.SimulatePaymentRequest{Amount: &amount})
	must(h, err)
}

// awaitPayments waits for the given state of each payment, and until all paid
// cards are issued.
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

// exec runs a statement in the service's database.
func (h *host) exec(statement string, args ...any) {
	h.Helper()
	_, err := rig.OpenSQL(h, h.databaseURL()).Exec(statement, args...)
	must(h, err)
}

func (h *host) databaseURL() string { return h.service().setting("CARDMINT_DATABASE_URL") }

// service returns the program with the configuration of the host, for commands
// that are not part of a page.
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

// unit adds a unit. running is its current process, or nil.
func (h *host) unit(name string, running *rig.Process, start func() *rig.Process) {
	h.units[name], h.running[name] = start, running
}
