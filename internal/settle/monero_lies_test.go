package settle_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

// fakeNode is a Monero node and its wallet, honest except for one lie at a
// time.
type fakeNode struct {
	t       *testing.T
	now     int64
	blocks  int64 // newest block
	in      []map[string]any
	pool    []map[string]any
	made    []string // addresses; the first is the primary one
	lie     rig.Lie
	told    bool
	rescans int
}

func newFakeNode(t *testing.T, s *fixture) (*fakeNode, *monero.Chain) {
	t.Helper()
	m := &fakeNode{t: t, now: s.now.Unix(), blocks: 100, made: []string{rig.MoneroAddress(18, 0, 0)}}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	wallet, err := monero.New(
		monero.Config{Coin: pebble, DaemonURL: server.URL, WalletURL: server.URL, Now: s.clock})
	check(t, err)
	t.Cleanup(wallet.Close)
	return m, wallet
}

// pay adds a payment in block height; 0 for the mempool.
func (m *fakeNode) pay(address string, amount card.Amount, height, unlock int64) {
	e := map[string]any{"address": address, "amount": int64(amount), "amounts": []int64{int64(amount)},
		"double_spend_seen": false, "height": height,
		"subaddr_index": map[string]any{"major": 0, "minor": slices.Index(m.made, address)}, "timestamp": m.now, "type": "in",
		"txid": fmt.Sprintf("%064x", len(m.in)+len(m.pool)+1), "unlock_time": unlock}
	if height == 0 {
		e["type"], e["locked"] = "pool", true
		m.pool = append(m.pool, e)
		return
	}
	m.in = append(m.in, e)
}

func (m *fakeNode) header(height int64) map[string]any {
	at := m.now
	if height == 0 {
		at = 0
	}
	return map[string]any{
		"block_header": map[string]any{"hash": fmt.Sprintf("%064x", height+1), "height": height, "timestamp": at},
		"status":       "OK",
		"untrusted":    false}
}

// received returns the result of get_transfers.
func (m *fakeNode) received(above int64) map[string]any {
	in := []map[string]any{}
	for _, e := range m.in {
		height, unlock := e["height"].(int64), e["unlock_time"].(int64)
		e["confirmations"], e["locked"] = m.blocks+1-height, height+10 > m.blocks+1 || unlock > m.blocks+1
		if height > above {
			in = append(in, e)
		}
	}
	return map[string]any{"in": in, "pool": append([]map[string]any{}, m.pool...)}
}

func (m *fakeNode) addresses(indices []int64) any {
	all := []map[string]any{}
	for _, i := range indices {
		if i >= int64(len(m.made)) {
			return errors.New("address index is out of bound")
		}
		all = append(all, map[string]any{"address": m.made[i], "address_index": i})
	}
	return map[string]any{"address": m.made[0], "addresses": all}
}

func (m *fakeNode) create(n int64) any {
	var indices []int64
	for range n {
		indices = append(indices, int64(len(m.made)))
		m.made = append(m.made, rig.MoneroAddress(42, 0, int64(len(m.made))))
	}
	return map[string]any{"addresses": m.made[indices[0]:], "address_indices": indices}
}

func (m *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		ID, Method string
		Params     struct {
			Above   int64   `json:"min_height"`
			Height  int64   `json:"height"`
			Indices []int64 `json:"address_index"`
			Count   int64   `json:"count"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		m.t.Error(err)
		return
	}
	answer := map[string]any{"id": asked.ID, "jsonrpc": "2.0", "result": map[string]any{}}
	switch p := asked.Params; asked.Method {
	case "get_info":
		answer["result"] = map[string]any{"busy_syncing": false, "height": m.blocks + 1, "nettype": "mainnet",
			"offline": false, "status": "OK",
			"synchronized": true, "untrusted": false, "version": ""}
	case "get_last_block_header":
		answer["result"] = m.header(m.blocks)
	case "get_block_header_by_height":
		answer["result"] = m.header(p.Height)
	case "get_height":
		answer["result"] = map[string]any{"height": m.blocks + 1}
	case "get_transfers":
		answer["result"] = m.received(p.Above)
	case "get_address":
		answer["result"] = m.addresses(p.Indices)
	case "create_address":
		answer["result"] = m.create(p.Count)
	case "sign_transfer":
		answer["result"] = errors.New("watch-only")
	case "rescan_blockchain":
		m.rescans++
	}
	if err, failed := answer["result"].(error); failed {
		code := map[string]int{"get_address": -15, "sign_transfer": -29}[asked.Method]
		answer = map[string]any{"id": asked.ID, "error": map[string]any{"code": code, "message": err.Error()}}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		m.t.Error(err)
	}
	if m.lie.Method == asked.Method {
		var told bool
		text, told = m.lie.Tell(text)
		m.told = m.told || told
	}
	_, _ = w.Write(text)
}

// mintLies returns lies about the entries of get_transfers at the indices in,
// about one in the mempool, and about the other responses of a pass.
func mintLies(entries ...int) []rig.Lie {
	var lies []rig.Lie
	about := func(method, path string, fields map[string]any) {
		for name, honest := range fields {
			lies = append(lies, rig.LiesAbout(method, path+name, honest)...)
		}
	}
	entry := map[string]any{"address": "", "amount": 1, "double_spend_seen": true, "height": 1, "locked": true,
		"subaddr_index":       map[string]any{},
		"subaddr_index.major": 1, "subaddr_index.minor": 1, "timestamp": 1, "txid": "", "type": "", "unlock_time": 1}
	for _, i := range entries {
		path := fmt.Sprintf("in.%d.", i)
		about("get_transfers", path, entry)
		about("get_transfers", path, map[string]any{"confirmations": 1})
		for _, height := range []int{1, 50, 97} {
			lies = append(lies, rig.LieThat("get_transfers", path+"height", height))
		}
		lies = append(lies, rig.LieThat("get_transfers", path+"amount", 0),
			rig.LieThat("get_transfers", path+"amount", 1<<60))
	}
	about("get_transfers", "pool.0.", entry)
	about("get_info", "",
		map[string]any{"height": 1, "nettype": "", "status": "", "synchronized": true, "busy_syncing": true, "offline": true,
			"untrusted": true})
	for _, method := range []string{"get_last_block_header", "get_block_header_by_height"} {
		about(method, "",
			map[string]any{"block_header.hash": "", "block_header.height": 1, "block_header.timestamp": 1, "status": "",
				"untrusted": true})
	}
	about("get_height", "", map[string]any{"height": 1})
	about("get_address", "", map[string]any{"address": "", "addresses.0.address": "", "addresses.0.address_index": 1})
	for _, method := range []string{"get_info", "get_last_block_header", "get_block_header_by_height", "get_height",
		"get_address", "get_transfers", "refresh"} {
		lies = append(lies, rig.LiesOf(method)...)
	}
	slices.SortFunc(lies, func(a, b rig.Lie) int { return strings.Compare(a.Name, b.Name) })
	// valid: the transfer is locked
	return slices.DeleteFunc(lies, func(l rig.Lie) bool { return strings.HasSuffix(l.Name, "unlock_time is huge") })
}

// every returns every n-th lie.
func every(n int, lies []rig.Lie) []rig.Lie {
	var few []rig.Lie
	for i := 0; i < len(lies); i += n {
		few = append(few, lies[i])
	}
	return few
}

func TestWatcher_MoneroWrongAnswer_NeitherIssuesNorReverses(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.coins(append(chain.Currencies(), pebble))
		m, wallet := newFakeNode(t, s)
		w := s.watch(wallet, settle.Config{FillBatch: 200, LeaseTTL: time.Hour}) // longer than all its lies
		check(t, w.Tick(t.Context()))
		var cards []*card.Card
		for range 13 {
			cards = append(cards, s.orderPebbles())
		}
		issued, rest := cards[:9], cards[9:]
		ready, locked, partly, detected := rest[0], rest[1], rest[2], rest[3]
		for _, c := range issued {
			m.pay(c.Address, c.Amount, 99, 0)
		}
		m.pay(ready.Address, ready.Amount, 100, 0) // one more block is enough
		m.pay(locked.Address, locked.Amount, 90, 700)
		m.pay(partly.Address, partly.Amount-1, 90, 0)
		m.pay(detected.Address, detected.Amount, 0, 0)
		check(t, w.Tick(t.Context()))
		issue := func() (n int) {
			for {
				more, err := s.issuer.IssueDue(t.Context())
				check(t, err)
				if n += more; more == 0 {
					return n
				}
			}
		}
		if n := issue(); n != 9 {
			t.Fatalf("issued %d cards", n)
		}
		facts := func() []operator.CardDetail {
			var all []operator.CardDetail
			for _, c := range append(cards[:1:1], rest...) {
				r, err := s.store.CardDetail(t.Context(), c.UUID)
				check(t, err)
				all = append(all, r)
			}
			return all
		}
		m.blocks++ // from now on ready's card is due
		before := facts()
		lies := every(4, mintLies(0, 9, 10)) // the tests of package monero use all of them
		if testing.Short() || strings.HasPrefix(s.url, "postgres") {
			lies = every(3, lies)
		}
		for _, lie := range lies {
			m.lie, m.told = lie, false
			err := w.Tick(t.Context())
			if err == nil || !m.told || w.Health() == nil {
				t.Errorf("%s: applied %t, error %v, health %v", lie.Name, m.told, err, w.Health())
			}
			if n := issue(); n != 0 {
				t.Fatalf("%s: issued %d cards", lie.Name, n)
			}
			if diff := cmp.Diff(before, facts()); diff != "" {
				t.Fatalf("%s: %s", lie.Name, diff)
			}
		}
		t.Logf("%d lies", len(lies))
		m.lie = rig.Lie{}
		check(t, w.Tick(t.Context()))
		check(t, w.Health())
		if n := issue(); n != 1 || m.rescans != 0 {
			t.Errorf("then issued %d cards, after %d rescans", n, m.rescans)
		}
		for _, c := range append(issued, ready) {
			if got, err := s.orders.GetCard(t.Context(), s.account, c.UUID); err != nil || got.Status != card.Generated ||
				got.State != card.Paid {
				t.Errorf("card is %s, %s (%v)", got.Status, got.State, err)
			}
		}
		s.want(locked, card.AwaitingPayment, card.Confirming, locked.Amount, 12)
		s.want(partly, card.AwaitingPayment, card.Underpaid, partly.Amount-1, 12)
		s.want(detected, card.AwaitingPayment, card.Detected, detected.Amount, 0)
		s.wantIssued(10)
	})
}
