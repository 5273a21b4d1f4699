package acceptance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// awaitOutput repeats a script until its output contains want. It ignores the
// exit code.
func (h *host) awaitOutput(want, script string) {
	h.Helper()
	last := ""
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last, _ = h.shell(script); strings.Contains(last, want) {
			return
		}
	}
	h.Fatalf("%s never printed %q; last output:\n%s", script, want, last)
}

func (h *host) rates() {
	const fail, moved = "The sources fail", "The rate has moved too far"
	var gecko, krak atomic.Value
	gecko.Store("150.5")
	krak.Store("149.5")
	exchange := kraken(h.T, &krak)
	h.setVariable("CARDMINT_RATE", "")
	h.setVariable("CARDMINT_RATE_SOURCES", "coingecko,kraken")
	h.setVariable("CARDMINT_RATE_URL", "coingecko="+coingecko(h.T, &gecko)+";kraken="+exchange)
	h.setVariable("CARDMINT_RATE_EVERY", "100ms")
	h.setVariable("CARDMINT_RATE_MAX_AGE", "2s")
	h.substitutions["https://api.kraken.com"] = exchange
	h.start()

	gecko.Store("")
	wantOutput(h.T, h.runExit(1, fail), "coingecko", "kraken")
	wantOutput(h.T, h.run(fail), "200")
	gecko.Store("150.5")
	h.run(fail)
	h.awaitReady()

	gecko.Store("215.4")
	krak.Store("215.4")
	h.awaitOutput("waits for an operator: 215.4 USD", "cm rate show")
	wantOutput(h.T, h.runExit(1, moved), "waits for an operator: 215.4 USD")
	wantOutput(h.T, h.run(moved), "would accept 215.4 USD", "--usd 215.4 --yes")
	wantOutput(h.T, h.run(moved), "recorded", "accepts 215.4 USD")
	h.awaitReady()
	wantOutput(h.T, h.runUntil(`"status":"ready"`, moved), "215.4 USD")
}

// supplier starts a supplier of test cards that behaves according to rules.
func (h *host) supplier(address string, rules ...string) *rig.Process {
	h.Helper()
	args := []string{"supplier", "serve", "--listen", address, "--file", filepath.Join(h.dir, "supplier.db")}
	for _, r := range rules {
		args = append(args, "--be", r)
	}
	cmd := exec.Command(filepath.Join(h.dir, "bin", programName), args...)
	cmd.Env = append(os.Environ(), "CARDMINT_SUPPLIER_SECRET="+supplierSecret.Reveal())
	p := rig.Start(h, cmd)
	p.Ready(h, 30*time.Second, func() error {
		if !strings.Contains(p.Output(), "supplier: http") {
			return fmt.Errorf("no address yet")
		}
		return nil
	})
	return p
}

func (h *host) supply() {
	const fails, parked, stock = "A supplier fails", "Cards that are parked, or whose refund is due",
		"The stock is low or empty"
	address := h.freeAddress()
	h.addStock(3)
	h.write("/etc/cardmint/suppliers.toml",
		fmt.Sprintf(
			"[[supplier]]\nname = \"acme\"\nkind = \"http\"\nurl = \"http://%s\"\nsecret_file = \"acme.secret\"\nmax_usd = \"100\"\n"+
				"[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nmin_usd = \"150\"\nmax_usd = \"150\"\nlow_stock = 2\n", address), 0o600)
	h.write("/etc/cardmint/acme.secret", supplierSecret.Reveal()+"\n", 0o600)
	made := h.supplier(address)
	h.start()
	h.awaitOffers()

	c := h.order(50)
	made.Kill()
	h.pay(c, "1")
	wantOutput(h.T, h.runExit(1, fails), "acme", "hint: ")
	h.runUntil(`loop="issue acme"`, fails)
	made = h.supplier(address)
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
	h.run(fails)
	h.awaitReady()
	h.awaitOffers()

	made.Kill()
	made = h.supplier(address, "declining")
	c = h.order(50)
	h.pay(c, "1")
	list := h.script(parked)
	h.awaitOutput(c.UUID.String(), list)
	wantOutput(h.T, h.run(parked, "UUID", c.UUID.String()), "its refund is due", "acme")
	wantOutput(h.T, h.run(parked, "UUID", c.UUID.String()), "would ask acme")
	made.Kill()
	h.supplier(address)
	wantOutput(h.T, h.run(parked, "UUID", c.UUID.String()), "recorded: ask the supplier again")
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})

	if out, code := h.shell("cm stock list"); code != 0 ||
		!strings.Contains(out, "nothing was ever in the stock of shelf") {
		h.Errorf("an empty stock: exit code %d\n%s", code, out)
	}
	one, _ := stockFile(h, "150", 100, 1)
	if out, code := h.shell("cm stock import " + one + " --supplier shelf --yes"); code != 0 {
		h.Fatal(out)
	}
	wantOutput(h.T, h.runExit(1, stock), "LOW")
	wantOutput(h.T, h.run(stock), "Nothing was", "3 cards")
	wantOutput(h.T, h.run(stock), "imported 3 cards")
	wantOutput(h.T, h.run(stock), "acme", "shelf", "no card waits")
}
