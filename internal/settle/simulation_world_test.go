package settle_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// world is the truth of a history: a chain of blocks, a mempool and the
// wallet's addresses. It keeps everything in slices, so that the seed alone
// determines the history.
type world struct {
	r      *rand.Rand
	now    time.Time
	blocks []*block       // the best chain; blocks[i] has the height i+1
	txs    []*transaction // including replaced ones
	wallet []string       // addresses that the wallet made, by position
	known  int            // the number it currently knows
	latest time.Time      // of all blocks, replaced ones included; block times never go back
	top    int64          // height of the longest chain so far
	serial int
	dustTo string // gets one unit in each of the next dust blocks
	dust   int
	frozen bool // time is frozen while goroutines read the clock
}

type block struct {
	hash string
	at   time.Time
	txs  []*transaction
}

// transaction is in a block, in the mempool, or nowhere.
type transaction struct {
	id        string
	spends    int // at most one transaction with the same inputs exists at a time
	outputs   []output
	unlock    int64 // height at which the outputs become spendable
	height    int64
	minedAt   time.Time
	pooled    bool
	pooledAt  time.Time // when it was first in the mempool, as the wallet knows; zero if never
	remembers bool      // the wallet still knows pooledAt once the transaction is mined
	forgotten bool      // the wallet lost it
	lingers   bool      // the mempool still lists it for a while after a block took it
}

type output struct {
	address string
	amount  card.Amount
}

const (
	primary  = "primary"  // an address of the wallet without a card
	stranger = "stranger" // an address of another wallet
)

// firstBlocks is more than the deepest reorganization.
const firstBlocks = 30

// lingering is how many blocks long the mempool may list a mined transaction.
const lingering = 6

// deepest is the maximum depth of a fork below the longest chain so far.
const deepest = 28

func newWorld(r *rand.Rand) *world {
	w := &world{r: r, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for range firstBlocks {
		w.mine(nil)
	}
	return w
}

func (w *world) height() int64 { return int64(len(w.blocks)) }

// chance returns true with a probability in percent.
func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }

// between returns a number from low to high.
func (w *world) between(low, high int) int { return low + w.r.IntN(high-low+1) }

func (w *world) newTransaction(outputs ...output) *transaction {
	w.serial++
	tx := &transaction{id: fmt.Sprintf("t%d", w.serial), spends: w.serial, outputs: outputs, remembers: w.chance(70),
		lingers: w.chance(20)}
	w.txs = append(w.txs, tx)
	return tx
}

// rival returns an existing transaction with the same inputs.
func (w *world) rival(tx *transaction) *transaction {
	i := slices.IndexFunc(w.txs, func(x *transaction) bool {
		return x != tx && x.spends == tx.spends && (x.pooled || x.height > 0)
	})
	if i < 0 {
		return nil
	}
	return w.txs[i]
}

// relay adds a transaction to the mempool, where it replaces one with the same
// inputs.
func (w *world) relay(tx *transaction) bool {
	if tx.height > 0 || tx.pooled {
		return false
	}
	if other := w.rival(tx); other != nil {
		if other.height > 0 {
			return false
		}
		other.pooled = false
	}
	if tx.pooledAt.IsZero() || !tx.remembers {
		tx.pooledAt = w.now
	}
	tx.pooled = true
	return true
}

// mine adds a block. Transactions that cannot be in it are omitted.
func (w *world) mine(txs []*transaction) {
	w.serial++
	at := w.now
	if w.chance(10) { // miners' clocks are not exact
		at = at.Add(time.Duration(w.between(-20, 60)) * time.Minute)
	}
	if at.Before(w.latest) {
		at = w.latest
	}
	w.latest = at
	if w.chance(15) { // nodes accept a block older than the newest ones
		at = at.Add(-time.Duration(w.between(1, 180)) * time.Minute)
	}
	if w.dust > 0 {
		w.dust--
		txs = append(txs, w.newTransaction(output{w.dustTo, 1}))
	}
	b := &block{hash: fmt.Sprintf("b%d", w.serial), at: at}
	for _, tx := range txs {
		other := w.rival(tx)
		if tx.height > 0 || other != nil && other.height > 0 {
			continue
		}
		if other != nil {
			other.pooled = false
		}
		tx.pooled, tx.height, tx.minedAt = false, w.height()+1, at
		b.txs = append(b.txs, tx)
	}
	w.blocks = append(w.blocks, b)
	w.top = max(w.top, w.height())
}

// mineSome adds n blocks with some of the mempool, in random order.
func (w *world) mineSome(n, percent int) {
	for range n {
		var some []*transaction
		for _, tx := range w.txs {
			if tx.pooled && w.chance(percent) {
				some = append(some, tx)
			}
		}
		w.r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		w.mine(some)
		if w.chance(50) && !w.frozen {
			w.now = w.now.Add(time.Duration(w.between(5, 240)) * time.Second)
		}
	}
}

// drop removes the newest blocks and returns their transactions, which are then
// nowhere.
func (w *world) drop(depth int) []*transaction {
	var out []*transaction
	for _, b := range w.blocks[len(w.blocks)-depth:] {
		for _, tx := range b.txs {
			tx.height = 0
			out = append(out, tx)
		}
	}
	w.blocks = w.blocks[:len(w.blocks)-depth]
	return out
}

// conflict makes a transaction that spends the same money as tx, for another
// recipient or a smaller amount.
func (w *world) conflict(tx *transaction) *transaction {
	outputs := slices.Clone(tx.outputs)
	switch w.r.IntN(4) {
	case 0:
		outputs[0].amount = max(1, outputs[0].amount/2)
	case 1: // the same again under another id
	default:
		for i := range outputs {
			outputs[i].address = stranger
		}
	}
	other := w.newTransaction(outputs...)
	other.spends = tx.spends
	return other
}

// fact is an output as shown by the wallet.
type fact struct {
	tx      string
	output  int64
	address string
	amount  card.Amount
	height  int64
	locked  bool
	seenAt  time.Time
	unread  bool // it is in a block that was not read
	listed  bool // not read, and the mempool still lists it
}

func (f fact) key() string { return fmt.Sprint(f.tx, "/", f.output) }

// observation is the result of one scan, and the true state of the blocks that
// were not read.
type observation struct {
	tip    card.Tip
	facts  []fact
	hidden []fact // transactions in the read blocks that the wallet did not show
	forgot []fact // hidden ones that are stored only if the wallet showed them before
	bad    string // reason not to apply it
}

// look returns the view of node and wallet that are some blocks behind.
func (w *world) look(q settle.Query, behind int64) (settle.View, *observation) {
	height := w.height() - behind
	tip := w.blocks[height-1]
	kept := int64(0)
	if i := slices.IndexFunc(q.Known, func(t card.Tip) bool {
		return t.Height <= height && w.blocks[t.Height-1].hash == t.Hash
	}); i >= 0 {
		kept = q.Known[i].Height
	}
	v := q.View(kept)
	v.Fingerprint, v.Tip = "world", card.Tip{Height: height, Hash: tip.hash, Time: tip.at}
	s := &observation{tip: v.Tip}
	if s.tip.Time.After(w.now) {
		s.tip.Time = w.now
	}
	for _, tx := range w.txs {
		if !tx.pooled && tx.height == 0 || tx.height > height && tx.pooledAt.IsZero() {
			continue
		}
		f := fact{tx: tx.id, height: tx.height, seenAt: tx.minedAt}
		if tx.height > height {
			f.height = 0 // not yet mined as the node sees it
		}
		if f.height == 0 || tx.remembers && !tx.pooledAt.IsZero() {
			f.seenAt = tx.pooledAt
		}
		if f.seenAt.After(w.now) {
			f.seenAt = w.now
		}
		f.locked = tx.unlock > height
		for i, out := range tx.outputs {
			position := slices.Index(w.wallet, out.address)
			if position < 0 && out.address != primary {
				continue
			}
			f.output, f.address, f.amount = int64(i), out.address, out.amount
			shown := card.Transfer{Currency: "monero", TxID: f.tx, Output: f.output, Address: f.address, Amount: f.amount,
				Height: f.height, Locked: f.locked, FirstSeenAt: f.seenAt}
			if f.unread = !v.Covers(f.height); f.unread {
				shown.Height = 0
				if f.listed = tx.lingers && position < w.known && height-f.height < lingering; f.listed {
					v.Transfers = append(v.Transfers, shown)
				}
				s.facts = append(s.facts, f) // shown before; only its lock can have changed
				continue
			}
			if position >= w.known {
				s.hidden = append(s.hidden, f)
				continue
			}
			if tx.forgotten && f.height > 0 && f.height <= v.Kept {
				s.forgot = append(s.forgot, f)
				continue
			}
			s.facts = append(s.facts, f)
			v.Transfers = append(v.Transfers, shown)
		}
	}
	// Nothing may depend on the order of a wallet's transfers.
	w.r.Shuffle(len(v.Transfers), func(i, j int) { v.Transfers[i], v.Transfers[j] = v.Transfers[j], v.Transfers[i] })
	return v, s
}

// newAddresses makes n addresses after those the wallet knows. A wallet that
// lost some makes them again.
func (w *world) newAddresses(n int) []settle.Address {
	made := make([]settle.Address, n)
	for i := range made {
		if w.known == len(w.wallet) {
			w.wallet = append(w.wallet, fmt.Sprintf("a%d", w.known))
		}
		made[i] = settle.Address{Currency: "monero", Address: w.wallet[w.known], Position: int64(w.known)}
		w.known++
	}
	return made
}

// recover makes the wallet find everything again.
func (w *world) recover() {
	w.known = len(w.wallet)
	for _, tx := range w.txs {
		tx.forgotten = false
	}
}
