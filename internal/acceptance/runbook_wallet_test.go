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

// startWithMonero is like start, for a service with a real node and its own
// wallet. Both are units of the host.
func (h *host) startWithMonero() (*rig.MoneroNet, *rig.MoneroWallet) {
	h.Helper()
	net := rig.Monero(h)
	wallet := net.NewWallet(h, "", "")
	h.setVariable("CARDMINT_SIMULATED", "")
	h.setVariable("CARDMINT_MONERO_DAEMON_URL", net.DaemonURL)
	h.setVariable("CARDMINT_MONERO_WALLET_URL", wallet.URL)
	h.setVariable("CARDMINT_MONERO_WALLET_FILE", "wallet")
	h.setVariable("CARDMINT_MONERO_CONFIRMATIONS", "2")
	h.fewAddresses()
	h.substitutions["127.0.0.1:18081"], h.substitutions["127.0.0.1:18083"] = strings.TrimPrefix(net.DaemonURL, "http://"),
		strings.TrimPrefix(wallet.URL, "http://")
	h.unit("monerod", net.Daemon.Process, func() *rig.Process {
		net.Daemon.Start(h)
		return net.Daemon.Process
	})
	h.unit("monero-wallet-rpc", wallet.Process, func() *rig.Process {
		wallet.Launch(h)
		return wallet.Process
	})
	h.start()
	return net, wallet
}

// fewAddresses reduces the address pool. By default, the wallet prepares 6,000
// addresses, which would take longer than the rest of most pages.
func (h *host) fewAddresses() {
	h.Helper()
	h.setVariable("CARDMINT_ADDRESS_POOL", "20")
	h.setVariable("CARDMINT_ADDRESS_RATE", "1")
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
	net, wallet := h.startWithMonero()
	c := h.order(150)
	h.running["cardmint"].Kill()
	h.payReal(net, c)
	if _, code := h.shell(h.script(steps)); code == 0 {
		h.Error("the commands succeed although the service was killed")
	}
	wantOutput(h.T, h.run(steps), "msg=started")
	h.awaitReady()
	h.runUntil(`cardmint_chain_leading{coin="monero"} 1`, steps)
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})

	c = h.order(150)
	wallet.Kill()
	h.awaitLog("msg=failed")
	check := h.script(steps)
	if out, code := h.shell(check); code != 1 || !strings.Contains(out, "hint: ") {
		h.Errorf("wallet check without a wallet: exit code %d\n%s", code, out)
	}
	h.run(steps)
	h.run(steps)
	h.payReal(net, c)
	h.awaitLog("well again")
	wantOutput(h.T, h.run(steps), `loop="watch monero"`)
	wantOutput(h.T, h.runUntil(`"status":"ready"`, steps), "view-only: yes")
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
}

// addStock configures a stock as supplier, and writes a file with n cards of
// 150 dollars for it.
func (h *host) addStock(n int) {
	h.Helper()
	h.write("/etc/cardmint/suppliers.toml",
		"[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nlow_stock = 2\n", 0o600)
	h.setVariable("CARDMINT_SUPPLIERS", filepath.Join(h.dir, "etc/cardmint/suppliers.toml"))
	file, _ := stockFile(h, "150", 1, n)
	must(h, os.Rename(file, filepath.Join(h.dir, "cards.csv")))
}

// awaitEpochs waits until the service has begun n epochs.
func (h *host) awaitEpochs(n int) {
	h.Helper()
	for deadline := time.Now().Add(waitLimit); strings.Count(h.log("cardmint"),
		`msg="epoch began"`) < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("fewer than %d epochs began", n)
		}
	}
}

func (h *host) restore() {
	const before, restoring, forgotten = "Before it happens", "Restoring", "What was lost"
	h.addStock(5)
	net, _ := h.startWithMonero()
	if out, code := h.shell(
		"cp cards.csv /var/lib/cardmint && cm stock import cards.csv --supplier shelf --yes"); code != 0 {
		h.Fatal(out)
	}
	h.awaitOffers()
	kept := h.order(150)
	h.run(before)
	h.run(before)
	lost := h.order(150)
	txID := h.payReal(net, lost)
	h.awaitPayments(map[uuid.UUID]client.PaymentState{lost.UUID: client.PaymentStatePaid})

	h.run(restoring)
	must(h, os.Remove(filepath.Join(h.dir, "var/lib/cardmint/cardmint.keys")))
	h.run(restoring)
	wantOutput(h.T, h.run(restoring, "2026-11-22", time.Now().Format("2006-01-02")), "restored 1 card")
	h.run(restoring)
	wantOutput(h.T, h.run(restoring), "epoch began")
	h.awaitEpochs(2)
	h.awaitReady()
	if _, err := h.client().GetCard(h.Context(), lost.UUID); err == nil {
		h.Error("a card ordered after the backup survived the restore")
	}
	h.runUntil(txID, forgotten)
	wantOutput(h.T, h.run(forgotten), "done; applied up to block")
	wantOutput(h.T, h.run(forgotten), "shop")
	wantOutput(h.T, h.run(forgotten), "Nothing was changed")
	h.run(forgotten)
	wantOutput(h.T, h.runExit(3, forgotten), "everything agrees", txID) // the transfer waits to be attributed
	h.runUntil(`"status":"ready"`, forgotten)
	h.payReal(net, kept)
	h.awaitPayments(map[uuid.UUID]client.PaymentState{kept.UUID: client.PaymentStatePaid})
}

// awaitOffers waits until at least one card is offered.
func (h *host) awaitOffers() {
	h.Helper()
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if offers, err := h.client().ListOffers(h.Context()); err == nil && len(offers) > 0 {
			return
		}
	}
	h.Fatal("no card is offered")
}
