package rig

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// Fixed keys make the setup of wallets faster. They protect no real money.
const (
	merchantAddress = "49snN9s5C6n6gVTjGPKivRM4t1DbCjBQah96GqqJiBVvM43b71asFZ2NRQYuuaqG3GDDAwMb1MMVKUVjZaVDvJaX4vTQFcr"
	merchantViewKey = "feaccb9e60a89e60f34c88a9ec5d997bb707d466d7f2d7499ac5f72b805d540f"
	payerAddress    = "46kYDBLyxoM8jQYPyFfLJZSJ1FtNT4RyKSeZi71gCANkVmU1eNaj8UP64H4cQ8YCRjBsanmJtYr7mh72o5kJekKMP7zoVfZ"
	otherAddress    = "46yJvqTrUfoe8yCtWzXy1nYzgncE6qA1HJ1W9kkSv9pw3zrPutVwYEwahcKtvXjdHwZ7h3wEGn128UufYLqt8usBFQFTpmz"
	otherViewKey    = "ff6cbf1fa1a835723a868052111fa67ae566b666e524b0ef690d2be4f9b8350f"
	payerSeed       = "movement stacking dwindling unopened often sprig clue tobacco double superior tycoon square onslaught organs " +
		"knife behind hickory language verification later losing karate jabbed jubilee onslaught"
)

// firstBlocks is how many blocks a new network has. Coinbases can be spent
// after 60 blocks, so the payer starts with about 50 outputs. Each payment
// takes one output, and each mined block adds one. With about 83 to 95 blocks,
// monero-wallet-rpc searches for decoys forever.
//
// Block 1 pays the merchant. In regtest, a wallet that is stored forgets the
// blocks before its first transfer, and then can't follow a reorganization near
// it. (On other networks it only forgets blocks older than the newest
// checkpoint.)
const firstBlocks = 110

// maxNetworks is how many networks a process starts. Tests wait for each
// other, or for blocks, half of the time.
const maxNetworks = 2

var monero = struct {
	idle    chan *MoneroNet
	started chan struct{} // has an element for each network
}{make(chan *MoneroNet, maxNetworks), make(chan struct{}, maxNetworks)}

// MoneroNet is a monerod in regtest with two wallets: a merchant's view-only
// wallet, and a payer's wallet with coins. A test may stop it, reorganize it
// and so on; Monero repairs it for the next test.
type MoneroNet struct {
	DaemonURL string // of monerod, without login
	WalletURL string // of the merchant's wallet, without login
	Address   string // primary address of the merchant's wallet
	ViewKey   string // its secret view key
	Daemon    *MoneroDaemon
	Wallet    *MoneroWallet // the merchant's
	Payer     *MoneroWallet

	dir   string
	relay *relay // between the wallets and the node
}

// Monero returns a network for exclusive use until the test ends, and repairs
// it if necessary. The next test gets the same network, with its history. Two
// parallel tests may have networks at the same time; further tests wait. A test
// and its subtests must therefore request only one. Starting one takes about 1
// s, and the first one 8 s longer. Main stops them.
func Monero(tb testing.TB) *MoneroNet {
	tb.Helper()
	notShort(tb, "Monero")
	MoneroProgram(tb, "monerod")
	MoneroProgram(tb, "monero-wallet-rpc")
	n := idleMonero(tb)
	tb.Cleanup(func() { monero.idle <- n })
	n.repair(tb)
	return n
}

// idleMonero returns an idle network, or starts one.
func idleMonero(tb testing.TB) *MoneroNet {
	tb.Helper()
	select {
	case n := <-monero.idle:
		return n
	default:
	}
	select {
	case n := <-monero.idle:
		return n
	case monero.started <- struct{}{}:
	}
	var n *MoneroNet
	defer func() { // runs even if tb.Fatal ends the goroutine
		if n == nil {
			<-monero.started
		}
	}()
	n = startMonero(tb)
	return n
}

func endMonero() {
	for range len(monero.started) {
		(<-monero.idle).end()
	}
}

// startMonero starts a network with copies of the initial chain and of two
// wallets that have read it.
func startMonero(tb testing.TB) *MoneroNet {
	tb.Helper()
	n := newNet(tb)
	ready := false
	defer func() { // runs even if tb.Fatal ends the goroutine
		if !ready {
			n.end()
		}
	}()
	copyFirst(tb, n)
	n.Daemon.Start(tb)
	n.Wallet.Start(tb)
	n.Payer.Start(tb)
	n.Payer.Refresh(tb)
	ready = true
	return n
}

// newNet returns a network whose programs are not started, and have empty
// directories.
func newNet(tb testing.TB) *MoneroNet {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rig-monero")
	if err != nil {
		tb.Fatal(err)
	}
	n := &MoneroNet{dir: dir, Address: merchantAddress, ViewKey: merchantViewKey}
	n.Daemon = newRegtest(tb, n.newDir(tb))
	n.relay = newRelay(tb, n.Daemon.URL)
	n.Wallet = n.newWallet(tb, "", "")
	n.Payer = n.newWallet(tb, "", "")
	n.DaemonURL, n.WalletURL = n.Daemon.URL, n.Wallet.URL
	return n
}

func (n *MoneroNet) newDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(n.dir, "")
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func (n *MoneroNet) end() {
	for _, s := range []*MoneroWallet{n.Wallet, n.Payer} {
		if s != nil {
			s.kill()
		}
	}
	if n.relay != nil {
		n.relay.end()
	}
	if n.Daemon != nil {
		n.Daemon.kill()
	}
	_ = os.RemoveAll(n.dir)
}

// repair restarts, thaws and reopens programs that a test has stopped, frozen
// or closed. It then mines a block, so that the mempool is empty and no wallet
// is ahead of the node.
func (n *MoneroNet) repair(tb testing.TB) {
	tb.Helper()
	n.Daemon.Thaw()
	if n.Daemon.ended() {
		n.Daemon.Start(tb)
	}
	n.Wallet.repair(tb)
	n.Payer.repair(tb)
	n.Mine(tb, int(max(1, firstBlocks-n.Height(tb))))
}

// Height returns the height of the top block.
func (n *MoneroNet) Height(tb testing.TB) int64 {
	tb.Helper()
	var info struct{ Height int64 }
	n.Daemon.Call(tb, "get_info", nil, &info)
	return info.Height - 1
}

// Mine mines blocks whose coinbases pay the payer. A block takes about 0.03 s.
func (n *MoneroNet) Mine(tb testing.TB, blocks int) {
	tb.Helper()
	n.MineTo(tb, payerAddress, blocks)
}

// MineTo mines blocks whose coinbases pay a primary address.
func (n *MoneroNet) MineTo(tb testing.TB, address string, blocks int) {
	tb.Helper()
	for range blocks {
		n.submit(tb, n.template(tb, address))
	}
}

// MineAt mines a block that claims to be of another time. The node wants it to
// be after the median of the last 60 blocks.
func (n *MoneroNet) MineAt(tb testing.TB, at time.Time) {
	tb.Helper()
	blob, err := hex.DecodeString(n.template(tb, payerAddress))
	if err != nil {
		tb.Fatal(err)
	}
	const start = 2 // after the versions
	_, size := binary.Uvarint(blob[start:])
	dated := binary.AppendUvarint(bytes.Clone(blob[:start]), uint64(at.Unix()))
	dated = append(dated, blob[start+size:]...)
	n.submit(tb, hex.EncodeToString(dated))
}

// template returns a block, in hex, that the node would have mined next.
func (n *MoneroNet) template(tb testing.TB, address string) string {
	tb.Helper()
	var template struct {
		Blob string `json:"blocktemplate_blob"`
	}
	n.Daemon.Call(tb, "get_block_template", map[string]any{"wallet_address": address, "reserve_size": 1}, &template)
	return template.Blob
}

// submit makes a block the newest. At the lowest difficulty any nonce will do,
// and so only the node hashes it, to check it. With generateblocks, it hashes
// twice, which is most of the time that a block takes.
func (n *MoneroNet) submit(tb testing.TB, blob string) {
	tb.Helper()
	n.Daemon.Call(tb, "submit_block", []string{blob}, nil)
}

// Pop removes the newest blocks from the chain. Their transactions, except
// coinbases, return to the mempool.
func (n *MoneroNet) Pop(tb testing.TB, blocks int) {
	tb.Helper()
	if err := n.Daemon.post("/pop_blocks", map[string]any{"nblocks": blocks}, nil); err != nil {
		tb.Fatal(err)
	}
}

// DropMempool makes the node forget its mempool.
func (n *MoneroNet) DropMempool(tb testing.TB) {
	tb.Helper()
	n.Daemon.Call(tb, "flush_txpool", nil, nil)
}

// Reorg replaces the newest depth blocks with the given number of new ones.
// With drop, their transactions and the mempool are lost. Without drop, their
// transactions are mined again in the first new block. Transactions that were
// made after the newest remaining block stay in the mempool permanently: their
// decoys are too young, and monerod does not retry.
func (n *MoneroNet) Reorg(tb testing.TB, depth, blocks int, drop bool) {
	tb.Helper()
	n.Pop(tb, depth)
	if drop {
		n.DropMempool(tb)
	}
	n.Mine(tb, blocks)
}

// Confirm mines blocks until a transaction in the mempool has that many
// confirmations. After a reorganization the first blocks may not include it.
func (n *MoneroNet) Confirm(tb testing.TB, txID string, confirmations int) {
	tb.Helper()
	for range 20 {
		var answer struct {
			Txs []struct {
				InPool bool  `json:"in_pool"`
				Height int64 `json:"block_height"`
			}
		}
		if err := n.Daemon.post("/get_transactions", map[string]any{"txs_hashes": []string{txID}}, &answer); err != nil {
			tb.Fatal(err)
		}
		if len(answer.Txs) == 1 && !answer.Txs[0].InPool {
			if more := confirmations - int(n.Height(tb)-answer.Txs[0].Height+1); more > 0 {
				n.Mine(tb, more)
			}
			return
		}
		n.Mine(tb, 1)
	}
	tb.Fatalf("transaction %s is not mined", txID)
}

// MoneroOutput is an amount, in piconero, for an address.
type MoneroOutput struct {
	Address string `json:"address"`
	Amount  int64  `json:"amount"`
}

// Pay sends piconero from the payer's wallet and returns the transaction's id.
// The transaction is then in the mempool.
func (n *MoneroNet) Pay(tb testing.TB, address string, amount int64) (txID string) {
	tb.Helper()
	return n.PayMany(tb, MoneroOutput{address, amount})
}

// TryPay is like Pay, but returns an error if the payer has nothing to spend.
func (n *MoneroNet) TryPay(tb testing.TB, address string, amount int64) error {
	tb.Helper()
	n.Payer.Refresh(tb)
	_, err := n.transfer(tb, n.Payer, 0, MoneroOutput{address, amount})
	return err
}

// PayMany sends one transaction with up to 15 outputs, and waits until it can
// be mined. It does not work after Pop, until new blocks replace the dropped
// ones.
func (n *MoneroNet) PayMany(tb testing.TB, outputs ...MoneroOutput) (txID string) {
	tb.Helper()
	n.Payer.Refresh(tb)
	txID, err := n.transfer(tb, n.Payer, 0, outputs...)
	if err != nil {
		tb.Fatal(err)
	}
	return txID
}

func (n *MoneroNet) transfer(tb testing.TB, from *MoneroWallet, unlockTime uint64,
	outputs ...MoneroOutput) (txID string, err error) {
	tb.Helper()
	var sent struct {
		TxHash string `json:"tx_hash"`
	}
	if err := from.Ask("transfer", map[string]any{"destinations": outputs, "unlock_time": unlockTime}, &sent); err != nil {
		return "", err
	}
	n.awaitRelay(tb, sent.TxHash)
	return sent.TxHash, nil
}

// awaitRelay waits until the node marks a transaction as relayed, which is a
// condition for mining it.
func (n *MoneroNet) awaitRelay(tb testing.TB, txID string) {
	tb.Helper()
	n.Daemon.Ready(tb, 10*time.Second, func() error {
		var answer struct {
			Txs []struct {
				InPool  bool `json:"in_pool"`
				Relayed bool
			}
		}
		if err := n.Daemon.post("/get_transactions", map[string]any{"txs_hashes": []string{txID}}, &answer); err != nil {
			return err
		}
		if len(answer.Txs) == 1 && answer.Txs[0].InPool && !answer.Txs[0].Relayed {
			return errors.New("transaction is not relayed")
		}
		return nil
	})
}

// Conflict returns two transactions of the payer that spend the same output,
// one to each address. Neither is sent. Each pays the whole output of about 35
// coins, less the fee.
func (n *MoneroNet) Conflict(tb testing.TB, first, second string) [2]MoneroTx {
	tb.Helper()
	var outputs struct {
		Transfers []struct {
			KeyImage string `json:"key_image"`
			Unlocked bool
		}
	}
	n.Payer.Refresh(tb)
	n.Payer.Call(tb, "incoming_transfers", map[string]any{"transfer_type": "available"}, &outputs)
	var made [2]MoneroTx
	for _, output := range outputs.Transfers {
		if !output.Unlocked {
			continue
		}
		for i, address := range []string{first, second} {
			n.Payer.Call(tb, "sweep_single",
				map[string]any{"address": address, "key_image": output.KeyImage, "do_not_relay": true,
					"get_tx_hex": true}, &made[i])
		}
		return made
	}
	tb.Fatal("the payer has no spendable output")
	return made
}

// MoneroTx is a transaction that was not sent.
type MoneroTx struct {
	TxID   string `json:"tx_hash"`
	Blob   string `json:"tx_blob"`
	Amount int64  `json:"amount"` // piconero, without the fee
}

// Send puts a transaction into the mempool. It returns an error if another
// transaction there spends the same output.
func (n *MoneroNet) Send(tb testing.TB, tx MoneroTx) error {
	tb.Helper()
	var answer struct{ Status, Reason string }
	if err := n.Daemon.post("/send_raw_transaction", map[string]any{"tx_as_hex": tx.Blob}, &answer); err != nil {
		tb.Fatal(err)
	}
	if answer.Status != "OK" {
		return fmt.Errorf("send raw transaction: %s %s", answer.Status, answer.Reason)
	}
	n.awaitRelay(tb, tx.TxID)
	return nil
}
