//go:build drill

package acceptance_test

import (
	"flag"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/internal/rig"
)

var chaosMonero = flag.Bool("chaos-monero", false,
	"have TestChaos use a real monerod and monero-wallet-rpc, which fail too")

// chaosConfirmations is the number of confirmations that payments need. It
// exceeds the depth of any reorganization here.
const chaosConfirmations = 4

// moneroNodes are a real monerod, two wallets and a miner. Payments, blocks and
// faults of the node exclude each other, so that the result of each payment is
// known.
type moneroNodes struct {
	t   *testing.T
	net *rig.MoneroNet

	mu   sync.Mutex
	sent ledger // payments by the workload
}

func newMoneroNodes(t *testing.T) *moneroNodes {
	t.Helper()
	n := &moneroNodes{t: t, net: rig.Monero(t), sent: ledger{}}
	stop := make(chan struct{})
	var mining sync.WaitGroup
	mining.Go(func() {
		for again := time.NewTicker(time.Second); ; {
			select {
			case <-stop:
				return
			case <-again.C:
				n.mu.Lock()
				n.net.Mine(t, 1)
				n.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		mining.Wait()
	})
	return n
}

// flags returns the flags of a service that watches the node.
func (n *moneroNodes) flags() []string {
	return []string{"serve", "--rate", "monero=150", "--address-pool", "100", "--monero-daemon-url", n.net.DaemonURL,
		"--monero-wallet-url", n.net.WalletURL,
		"--monero-confirmations", "4"}
}

// pay pays, and reports false if the wallet has no unlocked money.
func (n *moneroNodes) pay(address string, amount decimal.Decimal) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	piconeros := amount.Mul(piconero).IntPart()
	if err := n.net.TryPay(n.t, address, piconeros); err != nil {
		return false
	}
	if n.sent[address] == nil {
		n.sent[address] = map[int64]int{}
	}
	n.sent[address][piconeros]++
	return true
}

// chainFault picks a fault of the node or of the service's wallet.
func (c *chaos) chainFault() fault {
	n := c.nodes
	return []fault{
		{"wallet killed", targetChain, c.between(0, 4*time.Second), func() { n.net.Wallet.Kill() }, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.net.Wallet.Start(c.t)
		}},
		{"wallet suspended", targetChain, c.between(time.Second, 10*time.Second), func() {
			n.net.Wallet.Signal(c.t, syscall.SIGSTOP)
		}, n.net.Wallet.Thaw},
		{"node suspended", targetChain, c.between(time.Second, 8*time.Second), func() {
			n.mu.Lock()
			n.net.Daemon.Freeze(c.t)
		}, func() {
			n.net.Daemon.Thaw()
			n.mu.Unlock()
		}},
		{"reorganization", targetChain, 0, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			depth := 1 + c.random.IntN(chaosConfirmations-1)
			n.net.Reorg(c.t, depth, depth+1, false)
		}, func() {}},
	}[c.random.IntN(4)]
}
