package settle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

var (
	reorgs    = flag.Int("reorgs", 6, "have so many random reorganizations of a real chain")
	reorgSeed = flag.Uint64("reorg-seed", 0, "choose them by this seed; 0 for one from the clock")
)

// TestWatcher_RandomReorgs_EqualOracle pays cards at random on a chain that is
// reorganized at random. The oracle reads the payments from the node, not from
// the wallet, and adds them up independently.
func TestWatcher_RandomReorgs_EqualOracle(t *testing.T) {
	t.Parallel()
	seed := *reorgSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-reorg-seed %d", seed)
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		h := &randomPayments{moneroFixture: s, r: rand.New(rand.NewPCG(seed, 0)), made: map[*card.Card]bool{}}
		for i := range *reorgs {
			h.payments()
			depth := 1 + h.r.IntN(25)
			blocks, drop := max(1, depth-3+h.r.IntN(7)), h.r.IntN(3) == 0
			h.locate()
			s.net.Reorg(t, depth, blocks, drop)
			passes := h.catchUp()
			h.compare()
			t.Logf("%3d: depth %2d, %2d new, drop %-5t: %d passes failed, %d of %d paid, %d issued, %d reversed",
				i+1, depth, blocks, drop, passes, h.there, len(h.sent), len(h.made), h.reversed)
			if t.Failed() {
				return
			}
		}
		s.mine(few) // all of the chain is confirmed now
		h.catchUp()
		h.compare()
		for range min(h.reversed, 20) { // at most this many are logged
			s.doubts = append(s.doubts, lost)
		}
	}, fewConfirmations) // so that many cards are issued and lose their money
}

// randomPayments is a fixture with the payments that its chain may hold.
type randomPayments struct {
	*moneroFixture
	r     *rand.Rand
	cards []*card.Card
	sent  []*sentPayment
	made  map[*card.Card]bool // issued cards stay issued

	there    int  // payments that the node has
	pooled   bool // some of them are in the mempool
	reversed int  // issued cards whose payment left the chain
}

type sentPayment struct {
	txID string
	to   map[*card.Card]card.Amount // nil for none
	all  card.Amount

	known  bool
	height int64 // 0 in the mempool
	mined  bool  // was in a block before
}

// payments sends one to three payments, each in its own block or in none.
func (h *randomPayments) payments() {
	h.t.Helper()
	if h.locate(); h.pooled {
		h.mine(1)
		if h.locate(); h.pooled { // transactions that the node can no longer mine keep the payer's money
			h.net.DropMempool(h.t)
		}
	}
	for range 1 + h.r.IntN(3) {
		for len(h.cards) < 4 || h.r.IntN(3) == 0 {
			h.cards = append(h.cards, h.wantAddress())
		}
		p := &sentPayment{to: map[*card.Card]card.Amount{}}
		var outputs []rig.MoneroOutput
		pay := func(c *card.Card, amount card.Amount) {
			p.to[c] += amount
			outputs = append(outputs, rig.MoneroOutput{Address: c.Address, Amount: int64(amount)})
		}
		some := func() *card.Card { return h.cards[max(0, len(h.cards)-5+h.r.IntN(5))] }
		switch h.r.IntN(6) {
		case 0, 1:
			pay(some(), coin)
		case 2:
			pay(some(), coin/2)
		case 3:
			pay(some(), coin-1-card.Amount(h.r.Int64N(int64(coin)/2)))
		case 4:
			pay(some(), coin)
			pay(some(), coin/2)
			pay(some(), coin/2)
		case 5:
			outputs = append(outputs, rig.MoneroOutput{Address: h.net.Address, Amount: int64(coin)})
		}
		for _, o := range outputs {
			p.all += card.Amount(o.Amount)
		}
		p.txID = h.net.PayMany(h.t, outputs...)
		h.sent = append(h.sent, p)
		if n := h.r.IntN(7); n > 0 {
			h.mine(n)
		}
		if h.r.IntN(2) == 0 {
			h.settle()
			h.compare()
		}
	}
}

// catchUp mines until the watcher trusts the chain again, and returns the
// number of failed passes.
func (h *randomPayments) catchUp() (refused int) {
	h.t.Helper()
	for {
		err := h.watcher.Tick(h.t.Context())
		if err == nil {
			h.settle()
			return refused
		}
		if refused++; !errors.Is(err, card.ErrChainNotReady) || refused > 20 {
			h.t.Fatal(err)
		}
		h.mine(1)
	}
}

// locate reads the payments' blocks from the node.
func (h *randomPayments) locate() {
	h.t.Helper()
	var hashes []string
	for _, p := range h.sent {
		hashes = append(hashes, p.txID)
	}
	body, err := json.Marshal(map[string]any{"txs_hashes": hashes})
	check(h.t, err)
	res, err := http.Post(h.net.DaemonURL+"/get_transactions", "application/json", bytes.NewReader(body))
	check(h.t, err)
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Txs []struct {
			Hash   string `json:"tx_hash"`
			Pool   bool   `json:"in_pool"`
			Height int64  `json:"block_height"`
		}
	}
	check(h.t, json.NewDecoder(res.Body).Decode(&answer))
	heights := map[string]int64{}
	for _, tx := range answer.Txs {
		heights[tx.Hash] = tx.Height
		if tx.Pool {
			heights[tx.Hash] = 0
		}
	}
	h.there, h.pooled = 0, false
	for _, p := range h.sent {
		if p.height, p.known = heights[p.txID]; p.known {
			h.there++
			h.pooled = h.pooled || p.height == 0
			p.mined = p.mined || p.height > 0
		}
	}
}

// returned reports whether a reorganization returned the payment to the
// mempool, where it still is.
func (p *sentPayment) returned() bool { return p.known && p.mined && p.height == 0 }

// counted reports whether a payment counts for a card, at least as one in the
// mempool.
func (h *randomPayments) counted(p *sentPayment) bool {
	h.t.Helper()
	for c := range p.to {
		for _, x := range h.facts(c)[0].Transfers {
			if x.TxID == p.txID && x.Counted && x.Height == 0 {
				return true
			}
		}
	}
	return false
}

// compare compares every card with the node's payments.
func (h *randomPayments) compare() {
	h.t.Helper()
	h.locate()
	top, _ := h.top()
	h.reversed = 0
	foreign := h.unattributed()
	for _, p := range h.sent {
		if p.returned() { // a wallet that saw it before shows it again only once it is mined
			p.known = foreign[p.txID] > 0 || h.counted(p)
		}
		if len(p.to) == 0 && (foreign[p.txID] == p.all) != p.known {
			h.t.Errorf("of no card, %s: %d, but it is there: %t", p.txID, foreign[p.txID], p.known)
		}
	}
	for i, c := range h.cards {
		var received card.Amount
		confirmed, what := map[int64]card.Amount{}, "" // by confirmations
		for _, p := range h.sent {
			amount := p.to[c]
			if amount == 0 {
				continue
			}
			what += fmt.Sprintf(" %s: %d", p.txID[:8], amount)
			if !p.known {
				what += " is gone;"
				continue
			}
			what += fmt.Sprintf(" at %d;", p.height)
			confirmations := top - p.height + 1
			if p.height == 0 {
				confirmations = 0
			}
			received += amount
			confirmed[confirmations] += amount
		}
		fewest, enough := int64(0), card.Amount(0) // among those with the most that are enough
		for _, n := range slices.Backward(slices.Sorted(maps.Keys(confirmed))) {
			if enough < coin {
				fewest, enough = n, enough+confirmed[n]
			}
		}
		state := card.Unpaid
		switch {
		case h.made[c] && received < coin:
			state = card.Reversed
			h.reversed++
		case h.made[c] || (received >= coin && fewest >= few):
			state = card.Paid
			h.made[c] = true
		case received >= coin && fewest > 0:
			state = card.Confirming
		case received >= coin:
			state = card.Detected
		case received > 0:
			state = card.Underpaid
		}
		got, err := h.orders.GetCard(h.t.Context(), h.account, c.UUID)
		check(h.t, err)
		if got.Received != received || got.State != state || (got.Status == card.Generated) != h.made[c] ||
			got.Confirmations() != fewest {
			h.t.Errorf("card %d is %s, %s, received %d, %d confirmations; want made %t, %s, %d, %d; top %d;%s",
				i, got.Status, got.State, got.Received, got.Confirmations(), h.made[c], state, received, fewest, top, what)
		}
	}
	h.supplier.mu.Lock()
	defer h.supplier.mu.Unlock()
	for c := range h.made {
		if h.supplier.asked[c.UUID.String()] == 0 {
			h.t.Errorf("the supplier never made %s", c.UUID)
		}
	}
	if len(h.supplier.asked) != len(h.made) {
		h.t.Errorf("the supplier made %d cards, want %d", len(h.supplier.asked), len(h.made))
	}
}
