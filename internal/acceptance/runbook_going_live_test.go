package acceptance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
)

func (h *host) goingLive() {
	const steps = "What to do"
	var usd atomic.Value
	usd.Store("150")
	net, _ := h.startWithMonero() // in test mode
	h.addStock(3)
	h.write("/etc/cardmint/suppliers.toml", "[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\nlow_stock = 2\n", 0o600)
	h.setVariable("CARDMINT_RATE", "")
	h.setVariable("CARDMINT_RATE_SOURCES", "coingecko,kraken")
	h.setVariable("CARDMINT_RATE_URL", "coingecko="+coingecko(h.T, &usd)+";kraken="+kraken(h.T, &usd))
	h.setVariable("CARDMINT_WEBHOOK_INSECURE", "true")
	h.run(steps)
	wantOutput(h.T, h.run(steps), "view-only: yes")
	wantOutput(h.T, h.run(steps), "150 USD")
	wantOutput(h.T, h.run(steps), "shelf")
	tokens := regexp.MustCompile(`cm_live_\w+`).FindAllString(h.run(steps), -1)
	if len(tokens) != 2 {
		h.Fatalf("tokens: %d", len(tokens))
	}
	h.checkRefusals()
	if out, code := h.shell(
		"cp cards.csv /var/lib/cardmint && cm stock import cards.csv --supplier shelf --yes"); code != 0 {
		h.Fatal(out)
	}
	h.run(steps)
	wantOutput(h.T, h.runUntil("It refunds", steps), "monero after 2 confirmations", "shelf (stock")
	h.awaitReady()
	h.awaitEpochs(2)
	h.token = tokens[0]
	// The wallet is ahead of the new database, so that the stock is held.
	release, code := h.shell("cm stock release --supplier shelf --yes")
	if code != 0 {
		h.Fatal(release)
	}
	h.awaitOffers()
	c := h.order(150)
	h.payReal(net, c)
	h.token = tokens[1]
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
	// The first block of the chain pays the wallet, so that a transfer waits.
	wantOutput(h.T, h.runExit(3, steps), "everything agrees", "1 issued, 1 paid", "its balance now")
	h.runUntil(`"status":"ready"`, "What live mode refuses")
}

// checkRefusals starts the service with each setting that live mode refuses, as
// listed in the page's table.
func (h *host) checkRefusals() {
	h.Helper()
	text, err := os.ReadFile("../../docs/operate/going-live.md")
	must(h, err)
	_, table, _ := strings.Cut(string(text), "## What live mode refuses")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	changes := map[string][2]string{
		"--simulated pays without money": {"CARDMINT_SIMULATED", "true"},
		"no supplier of real cards":      {"CARDMINT_SUPPLIERS", ""},
		"the certificate of PostgreSQL is not verified": {"CARDMINT_DATABASE_URL",
			"postgres://db.example/cardmint?sslmode=require"},
		"plain http to another machine":        {"CARDMINT_MONERO_DAEMON_URL", "http://node.example:18081"},
		"fixed rates are for test mode":        {"CARDMINT_RATE", "monero=150"},
		"--webhook-insecure: not in live mode": {"CARDMINT_WEBHOOK_INSECURE", "true"},
	}
	if len(rows) != len(changes) {
		h.Errorf("the table has %d rows, the test has %d", len(rows), len(changes))
	}
	path := filepath.Join(h.dir, "etc/cardmint/cardmint.env")
	for _, row := range rows {
		change, known := changes[row[1]]
		if !known {
			h.Errorf("%q is not tested", row[1])
			continue
		}
		before, err := os.ReadFile(path)
		must(h, err)
		h.setVariable(change[0], change[1])
		if out, code := h.shell("cm serve"); code != 1 || !strings.Contains(out, row[1]) {
			h.Errorf("%s: exit code %d\n%s", row[1], code, out)
		}
		must(h, os.WriteFile(path, before, 0o600))
	}
}
