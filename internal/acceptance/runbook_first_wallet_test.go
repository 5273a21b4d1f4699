package acceptance_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/internal/rig"
)

// startInstalledUnit runs the command of an installed unit, with more flags for
// a private network. It waits until the process listens on address.
func (h *host) startInstalledUnit(unit, address string, more ...string) *rig.Process {
	text, err := os.ReadFile(filepath.Join(h.dir, "etc/systemd/system", unit+".service"))
	if err != nil {
		h.Error(err)
	}
	start := strings.Fields(regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/(.*)$`).FindStringSubmatch(string(text))[1])
	cmd := exec.Command(rig.MoneroProgram(h, start[0]))
	for _, arg := range append(start[1:], more...) {
		cmd.Args = append(cmd.Args, strings.Replace(arg, "/etc/monero", h.substitutions["/etc/monero"], 1))
	}
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "HOME="+h.substitutions["/var/lib/monero"])
	p := rig.Start(h, cmd)
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			break
		}
	}
	return p
}

// prepareFirstWallet prepares a host for its own node and wallet, with files of
// the package.
func (h *host) prepareFirstWallet() (node string) {
	h.Helper()
	h.write("/bin/monero-wallet-cli",
		fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", rig.MoneroProgram(h, "monero-wallet-cli")), 0o755)
	node, wallet := h.freeAddress(), h.freeAddress()
	for _, dir := range []string{"etc/monero", "etc/systemd/system", "var/lib/monero"} {
		h.substitutions["/"+dir] = filepath.Join(h.dir, dir)
		must(h, os.MkdirAll(h.substitutions["/"+dir], 0o700))
	}
	for documented, here := range map[string]string{"18081": node, "18083": wallet} {
		_, port, _ := strings.Cut(here, ":")
		h.substitutions["127.0.0.1:"+documented], h.substitutions["rpc-bind-port="+documented] = here, "rpc-bind-port="+port
	}
	h.setVariable("CARDMINT_MONERO_DAEMON_URL", "http://"+node)
	h.setVariable("CARDMINT_MONERO_WALLET_URL", "http://"+wallet)
	h.fewAddresses()
	files, err := filepath.Glob("../../docs/operate/monero/*")
	must(h, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		must(h, err)
		h.write("/"+filepath.Base(path), string(text), 0o644)
	}
	h.unit("monerod", nil, func() *rig.Process {
		return h.startInstalledUnit("monerod", node, "--regtest", "--offline", "--fixed-difficulty=1", "--no-zmq",
			"--rpc-ssl=disabled", "--check-updates=disabled",
			"--disable-dns-checkpoints", "--disable-rpc-ban")
	})
	private := []string{"--rpc-ssl=disabled", "--daemon-ssl=disabled", "--no-dns"}
	if anyFork := "--allow-mismatched-daemon-version"; rig.KnowsFlag(h, rig.MoneroProgram(h, "monero-wallet-rpc"),
		anyFork) {
		private = append(private, anyFork)
	}
	h.unit("monero-wallet-rpc", nil, func() *rig.Process { return h.startInstalledUnit("monero-wallet-rpc", wallet, private...) })
	return node
}

func (h *host) firstWallet() {
	const cold, theNode, view, login = "The wallet that can spend", "The node", "The view-only wallet",
		"Changing the login"
	node := h.prepareFirstWallet()
	h.env = append(h.env, "HOME="+h.dir)
	if out, code := h.shell("cm keys create"); code != 0 { // install.md contains this command
		h.Fatal(out)
	}
	h.run(cold)
	printed := h.run(cold)
	address := regexp.MustCompile(`\b4[1-9A-HJ-NP-Za-km-z]{94}\b`).FindString(printed)
	key := regexp.MustCompile(`secret: ([0-9a-f]{64})`).FindStringSubmatch(printed)
	if address == "" || key == nil {
		h.Fatalf("no address or view key:\n%s", printed)
	}
	h.run(theNode)
	h.runUntil(`"synchronized": true`, theNode)
	if out, code := h.shell(`curl -sS --fail http://` + node +
		`/json_rpc --data '{"method":"generateblocks","params":{"amount_of_blocks":5,"wallet_address":"` + address +
		`"}}'`); code != 0 || strings.Contains(out, "error") {
		h.Fatal(out)
	}
	net := rig.Monero(h) // provides a payer with coins
	h.setVariable("CARDMINT_MONERO_DAEMON_URL", net.DaemonURL)
	h.setVariable("CARDMINT_MONERO_CONFIRMATIONS", "2")
	h.substitutions["127.0.0.1:18081"] = strings.TrimPrefix(net.DaemonURL, "http://")
	h.run(view)
	h.run(view)
	if out := h.run(view, "ADDRESS=4...", "ADDRESS="+address, "VIEWKEY=...", "VIEWKEY="+key[1]); strings.Contains(out,
		`"error"`) {
		h.Fatal(out)
	}
	wantOutput(h.T, h.run(view), "view-only: yes", address, "has no wallet of monero yet")
	h.firstPayment(net)
	h.run(login)
	wantOutput(h.T, h.run(login), "view-only: yes", "the same wallet and network")
	h.awaitReady()
	h.order(50)
}

// firstPayment runs the commands of the section about the first payment in one
// shell, and pays from another wallet.
func (h *host) firstPayment(net *rig.MoneroNet) {
	h.Helper()
	const section, state = "The first payment", "{ declare -p TOKEN CARD; declare -f api; } >shell"
	h.setVariable("CARDMINT_RATE", "monero=150") // the page removes the fixed rate, but tests have no internet access
	out, code := h.shell(h.script(section) + h.script(section) + state)
	uri := regexp.MustCompile(`monero:(\w+)\?tx_amount=([0-9.]+)`).FindStringSubmatch(out)
	if code != 0 || uri == nil {
		h.Fatalf("exit code %d, no payment URI:\n%s", code, out)
	}
	amount := decimal.RequireFromString(uri[2])
	net.Confirm(h, net.Pay(h, uri[1], amount.Mul(decimal.New(1, 12)).IntPart()), 2)
	out, code = h.shell(". ./shell\n" + h.script(section))
	if code != 0 || !strings.Contains(out, `"state": "paid"`) {
		h.Fatalf("exit code %d, the card is not paid:\n%s", code, out)
	}
	text, err := os.ReadFile(filepath.Join(h.dir, "shell"))
	must(h, err)
	h.token = regexp.MustCompile(`TOKEN="(\w+)"`).FindStringSubmatch(string(text))[1]
}
