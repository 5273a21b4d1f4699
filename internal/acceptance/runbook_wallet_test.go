package acceptance_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// openMonero is like open, for a service with a real node and a wallet of its
// own, both of which are units.
func (h *host) openMonero() (*rig.MoneroNet, *rig.MoneroWallet) {
	h.Helper()
	net := rig.Monero(h)
	wallet := net.NewWallet(h, "", "")
	h.set("CARDMINT_SIMULATED", "")
	h.set("CARDMINT_MONERO_DAEMON_URL", net.DaemonURL)
	h.set("CARDMINT_MONERO_WALLET_URL", wallet.URL)
	h.set("CARDMINT_MONERO_WALLET_FILE", "wallet")
	h.set("CARDMINT_MONERO_CONFIRMATIONS", "2")
	h.fewAddresses()
	h.here["127.0.0.1:18081"], h.here["127.0.0.1:18083"] = strings.TrimPrefix(net.DaemonURL, "http://"),
		strings.TrimPrefix(wallet.URL, "http://")
	h.unit("monerod", net.Daemon.Process, func() *rig.Process {
		net.Daemon.Start(h)
		return net.Daemon.Process
	})
	h.unit("monero-wallet-rpc", wallet.Process, func() *rig.Process {
		wallet.Launch(h)
		return wallet.Process
	})
	h.open()
	return net, wallet
}

// fewAddresses has the wallet make few addresses. At the usual rate it makes
// 6,000 ahead, which takes it as long as all else on most pages.
func (h *host) fewAddresses() {
	h.Helper()
	h.set("CARDMINT_ADDRESS_POOL", "20")
	h.set("CARDMINT_ADDRESS_RATE", "1")
}

// payReal pays for a card from another wallet, with two confirmations.
func (h *host) payReal(net *rig.MoneroNet, c *client.Card) (txID string) {
	h.Helper()
	txID = net.Pay(h, c.Payment.Address, c.Payment.Amount.Mul(decimal.New(1, 12)).IntPart())
	net.Confirm(h, txID, 2)
	return txID
}

func (h *host) worker() {
	const steps = "What to do"
	net, wallet := h.openMonero()
	c := h.order(150)
	h.runs["cardmint"].Kill()
	h.payReal(net, c)
	if _, code := h.shell(h.script(steps)); code == 0 {
		h.Error("a service that was killed answers")
	}
	wantOutput(h.T, h.run(steps), "msg=started")
	h.ready()
	h.until(`cardmint_chain_leading{coin="monero"} 1`, steps)
	h.await(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})

	c = h.order(150)
	wallet.Kill()
	h.logged("msg=failed")
	check := h.script(steps)
	if out, code := h.shell(check); code != 1 || !strings.Contains(out, "hint: ") {
		h.Errorf("wallet check without a wallet: exit code %d\n%s", code, out)
	}
	h.run(steps)
	h.run(steps)
	h.payReal(net, c)
	h.logged("well again")
	wantOutput(h.T, h.run(steps), `loop="watch monero"`)
	wantOutput(h.T, h.until(`"status":"ready"`, steps), "view-only: yes")
	h.await(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
}

// stock gives the host a supplier that is a stock, with cards of 150 dollars.
func (h *host) stock(n int) {
	h.Helper()
	h.write("/etc/cardmint/suppliers.toml",
		"[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nlow_stock = 2\n", 0o600)
	h.set("CARDMINT_SUPPLIERS", filepath.Join(h.dir, "etc/cardmint/suppliers.toml"))
	file, _ := stockFile(h, "150", 1, n)
	must(h, os.Rename(file, filepath.Join(h.dir, "cards.csv")))
}

// epochs waits until the service has begun so many epochs.
func (h *host) epochs(n int) {
	h.Helper()
	for deadline := time.Now().Add(longest); strings.Count(h.log("cardmint"),
		`msg="epoch began"`) < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("there are no %d epochs", n)
		}
	}
}

func (h *host) restore() {
	const before, restoring, forgotten = "Before it happens", "Restoring", "What was lost"
	h.stock(5)
	net, _ := h.openMonero()
	if out, code := h.shell(
		"cp cards.csv /var/lib/cardmint && cm stock import cards.csv --supplier shelf --yes"); code != 0 {
		h.Fatal(out)
	}
	h.offered()
	kept := h.order(150)
	h.run(before)
	h.run(before)
	lost := h.order(150)
	txID := h.payReal(net, lost)
	h.await(map[uuid.UUID]client.PaymentState{lost.UUID: client.PaymentStatePaid})

	h.run(restoring)
	must(h, os.Remove(filepath.Join(h.dir, "var/lib/cardmint/cardmint.keys")))
	h.run(restoring)
	wantOutput(h.T, h.run(restoring, "2026-11-22", time.Now().Format("2006-01-02")), "restored 1 card")
	h.run(restoring)
	wantOutput(h.T, h.run(restoring), "epoch began")
	h.epochs(2)
	h.ready()
	if _, err := h.shop().GetCard(h.Context(), lost.UUID); err == nil {
		h.Error("nothing was forgotten")
	}
	h.until(txID, forgotten)
	wantOutput(h.T, h.run(forgotten), "done; applied up to block")
	wantOutput(h.T, h.run(forgotten), "shop")
	wantOutput(h.T, h.run(forgotten), "Nothing was changed")
	h.run(forgotten)
	wantOutput(h.T, h.exits(3, forgotten), "everything agrees", txID) // it waits to be attributed
	h.until(`"status":"ready"`, forgotten)
	h.payReal(net, kept)
	h.await(map[uuid.UUID]client.PaymentState{kept.UUID: client.PaymentStatePaid})
}

// offered waits until something can be ordered.
func (h *host) offered() {
	h.Helper()
	for deadline := time.Now().Add(longest); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if offers, err := h.shop().ListOffers(h.Context()); err == nil && len(offers) > 0 {
			return
		}
	}
	h.Fatal("nothing is offered")
}
