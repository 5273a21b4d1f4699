package acceptance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// startWithDocumentedWallet is like start, with a node of the rig, and a
// view-only wallet that is created with the commands of first-wallet.md.
func (h *host) startWithDocumentedWallet() *rig.MoneroNet {
	h.Helper()
	net := rig.Monero(h)
	h.prepareFirstWallet()
	h.setVariable("CARDMINT_MONERO_DAEMON_URL", net.DaemonURL)
	h.setVariable("CARDMINT_MONERO_CONFIRMATIONS", "2")
	h.substitutions["127.0.0.1:18081"] = strings.TrimPrefix(net.DaemonURL, "http://")
	h.unit("monerod", net.Daemon.Process, func() *rig.Process { return net.Daemon.Process })
	h.runFrom("first-wallet.md", "The node", 0)
	for i := range 2 {
		h.runFrom("first-wallet.md", "The view-only wallet", i)
	}
	h.makeWallet(net, 0)
	if out, code := h.shell("cm keys create"); code != 0 {
		h.Fatal(out)
	}
	h.runFrom("first-wallet.md", "The view-only wallet", 3)
	h.setVariable("CARDMINT_RATE", "monero=150") // the page removes the fixed rate, but tests have no internet access
	h.start()
	return net
}

// makeWallet creates the view-only wallet, which scans the chain from the given
// height.
func (h *host) makeWallet(net *rig.MoneroNet, height int64) {
	h.Helper()
	if out := h.runFrom("first-wallet.md", "The view-only wallet", 2, "ADDRESS=4...", "ADDRESS="+net.Address, "VIEWKEY=...",
		"VIEWKEY="+net.ViewKey,
		"HEIGHT=0", fmt.Sprintf("HEIGHT=%d", height)); strings.Contains(out, `"error"`) {
		h.Fatal(out)
	}
}

// loseWallet deletes the wallet's files.
func (h *host) loseWallet() {
	h.Helper()
	if out, code := h.shell(
		"systemctl stop monero-wallet-rpc && rm /var/lib/monero/wallets/view* && systemctl start monero-wallet-rpc"); code != 0 {
		h.Fatal(out)
	}
}

func (h *host) walletLost() {
	const cache, gone, vanished, leaked = "The wallet's cache is damaged", "The wallet's files are gone",
		"The log says that a transfer has vanished", "The spend key has leaked"
	net := h.startWithDocumentedWallet()
	first, second := h.order(50), h.order(50)
	h.payReal(net, first)
	paid := func(c *client.Card) {
		h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
	}
	paid(first)
	h.run(cache)
	h.payReal(net, second)
	wantOutput(h.T, h.run(cache), "done; applied up to block")
	paid(second)
	h.run(cache)

	if out, code := h.shell("systemctl restart cardmint"); code != 0 { // a worker requests at most one rescan per minute
		h.Fatal(out)
	}
	h.awaitReady()
	third := h.order(50)
	h.loseWallet()
	h.makeWallet(net, 0)
	h.runUntil("view-only: yes", gone)
	wantOutput(h.T, h.run(gone), "done; applied up to block")
	h.payReal(net, third)
	paid(third)

	h.loseWallet()
	h.makeWallet(net, net.Height(h))
	h.awaitLog("it no longer shows transaction")
	wantOutput(h.T, h.run(vanished), "done; applied up to block")
	h.awaitPayments(map[uuid.UUID]client.PaymentState{first.UUID: client.PaymentStateReversed})
	wantOutput(h.T, h.run(vanished), first.UUID.String())

	for _, c := range []*client.Card{first, second, third} {
		if out, code := h.shell("cm card resolve " + c.UUID.String() + " write-off --note gone --amount $(cm card resolve " +
			c.UUID.String() + " write-off --note gone | sed -n 's/.*--amount \\([^ ]*\\) .*/\\1/p') --yes"); code != 0 {
			h.Fatal(out)
		}
	}
	h.run(leaked)
	h.run(leaked)
	h.runExit(0, leaked)
}

// awaitLog waits until the log of the service contains want.
func (h *host) awaitLog(want string) {
	h.Helper()
	for deadline := time.Now().Add(waitLimit); !strings.Contains(h.log("cardmint"),
		want); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("the log never contained %q", want)
		}
	}
}

// copyHost returns another host with a copy of the database, the keys and the
// configuration.
func (h *host) copyHost() *host {
	h.Helper()
	other := newHost(h.T, h.page)
	text, err := os.ReadFile(filepath.Join(h.dir, "etc/cardmint/cardmint.env"))
	must(h, err)
	moved := strings.NewReplacer(h.dir, other.dir, h.address, other.address, h.substitutions["127.0.0.1:9464"],
		other.substitutions["127.0.0.1:9464"]).Replace(string(text))
	other.write("/etc/cardmint/cardmint.env", moved, 0o600)
	keys, err := os.ReadFile(filepath.Join(h.dir, "var/lib/cardmint/cardmint.keys"))
	must(h, err)
	other.write("/var/lib/cardmint/cardmint.keys", string(keys), 0o600)
	backup := filepath.Join(h.TempDir(), "copy")
	h.service().must(h, "backup", backup)
	other.service().must(h, "restore", backup)
	other.token = h.token
	return other
}

func (h *host) splitBrain() {
	const steps = "What to do"
	net, _ := h.startWithMonero()
	c := h.order(50)
	other := h.copyHost()
	if out, code := other.shell("systemctl start cardmint"); code != 0 {
		h.Fatal(out)
	}
	both := []*host{h, other}
	for _, x := range both {
		x.awaitNotReady("wallet claim")
	}
	h.payReal(net, c)
	question, cards := h.script(steps), h.script(steps)
	for _, x := range both {
		out, code := x.shell(question)
		if code != 0 {
			h.Errorf("exit code %d", code)
		}
		wantOutput(h.T, out, "wallet claim", "sqlite:"+x.dir)
		out, _ = x.shell(cards)
		wantOutput(h.T, out, c.UUID.String())
	}
	if out, code := other.shell(h.script(steps)); code != 0 {
		h.Fatal(out)
	}
	wantOutput(h.T, h.run(steps), "another database", "--yes")
	wantOutput(h.T, h.run(steps), "claimed")
	h.awaitReady()
	h.run(steps)
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
	wantOutput(h.T, h.run(steps), net.Address) // the first block of the chain pays the wallet
	if out, code := other.shell(h.script(steps, "ADDRESS", c.Payment.Address)); code != 0 ||
		!strings.Contains(out, c.UUID.String()) {
		h.Errorf("exit code %d\n%s", code, out)
	}
	h.runUntil(`cardmint_chain_leading{coin="monero"} 1`, steps)
	h.order(50)
}
