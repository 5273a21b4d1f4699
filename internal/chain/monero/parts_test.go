package monero_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/settle"
)

// busy is a wallet at block tip that received a payment in every block. It
// responds for the blocks first to last unless it hangs; asked counts the
// calls.
func busy(t *testing.T, tip int64, hangs func(first, last int64) bool) (m *monero.Chain, asked func() int) {
	t.Helper()
	var config monero.Config
	if testing.Short() {
		// tests wait for the timeout; machines with -short are fast
		config.Timeout = 2 * time.Second
	}
	s, m := newScriptWith(t, config)
	s.set("get_info", info(map[string]any{"height": tip + 1}))
	s.set("get_last_block_header", header(tip, "a"))
	s.set("get_height", fmt.Sprintf(`{"height":%d}`, tip+1))
	var mu sync.Mutex
	calls := 0
	rest := &script{wallet: s.wallet, answers: s.answers}
	s.raw = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var request struct {
			ID     string
			Method string
			Params struct {
				Min  int64 `json:"min_height"`
				Max  int64 `json:"max_height"`
				Pool bool
			}
		}
		if err := json.Unmarshal(body, &request); err != nil || request.Method != "get_transfers" {
			rest.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		calls++
		mu.Unlock()
		first, last := request.Params.Min+1, request.Params.Max
		if request.Params.Pool {
			last = tip
		}
		if hangs(first, last) {
			<-r.Context().Done()
			return
		}
		var entries []string
		for h := first; h <= last; h++ {
			entries = append(entries, entryAt(t, h, tip))
		}
		_, _ = fmt.Fprintf(w, `{"id":%q,"jsonrpc":"2.0","result":{"in":[%s]}}`, request.ID, strings.Join(entries, ","))
	}
	return m, func() int {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
}

// entryAt returns the entry of the payment in a block.
func entryAt(t *testing.T, height, tip int64) string {
	t.Helper()
	return entry(t,
		map[string]any{"height": int(height), "txid": fmt.Sprintf("%064x", height), "confirmations": tip + 1 - height,
			"locked": height > tip-9})
}

func never(int64, int64) bool { return false }

// wantBlocks fails unless there is exactly one transfer of each block up to
// tip.
func wantBlocks(t *testing.T, v settle.View, tip int64) {
	t.Helper()
	seen := map[int64]int{}
	for _, x := range v.Transfers {
		seen[x.Height]++
	}
	for h := int64(1); h <= tip; h++ {
		if seen[h] != 1 {
			t.Fatalf("%d transfers of block %d", seen[h], h)
		}
	}
	if len(seen) != int(tip) {
		t.Errorf("transfers of %d blocks, want %d", len(seen), tip)
	}
}

func TestChain_ResponseTooLong_ReadInSmallerParts(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: writes and reads thousands of payments")
	}
	const tip = 3000
	one := int64(len(entryAt(t, tip/2, tip)) + 1)
	for _, fit := range []int64{200, 500, tip - 1} { // many payments in one response
		m, _ := busy(t, tip, never)
		m.SetMaxReply(fit*one + 60)
		wantBlocks(t, scan(t, m, 0), tip)
	}
	m, asked := busy(t, tip, never)
	m.SetMaxReply(one)
	if _, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition}); err == nil ||
		!strings.Contains(err.Error(), "get transfers: answer is longer than") {
		t.Errorf("few blocks with a long response: error %v", err)
	}
	if n := asked(); n > 5 {
		t.Errorf("%d calls, although no response is short enough", n)
	}
}

func TestChain_ResponseTooSlow_ReadInSmallerParts(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for timeouts")
	}
	t.Parallel()
	const tip = 5000
	m, asked := busy(t, tip, func(first, last int64) bool { return first < 600 && last-first >= 700 })
	wantBlocks(t, scan(t, m, 0), tip)
	if n := asked(); n > 8 {
		t.Errorf("%d calls, although only the oldest blocks are slow", n)
	}
}

func TestChain_WalletHangs_NoRepeatedCalls(t *testing.T) {
	t.Parallel()
	m, asked := busy(t, 5000, func(int64, int64) bool { return true })
	if _, err := m.Scan(t.Context(), settle.Query{Since: 4880, Newest: settle.NoPosition}); !errors.Is(err,
		card.ErrChainNotReady) {
		t.Errorf("error %v", err)
	}
	if n := asked(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A pass reads old and new blocks in as few calls as there are ranges, and
// discards all of them if a block is replaced during the pass.
func TestChain_OlderBlocks_InSameView(t *testing.T) {
	const tip = 3000
	q := settle.Query{Known: []card.Tip{{Height: tip, Hash: hash("a")}}, Since: tip, Newest: settle.NoPosition}
	for name, tt := range map[string]struct {
		again []settle.Blocks
		asked int
		want  []int64
	}{
		"nothing":          {nil, 1, nil},
		"a slice":          {[]settle.Blocks{{First: 2001, Last: 2003}}, 2, []int64{2001, 2002, 2003}},
		"the newest slice": {[]settle.Blocks{{First: tip - 1, Last: tip}}, 1, []int64{tip - 1, tip}},
		"a slice, and others": {[]settle.Blocks{{First: 5, Last: 5}, {First: 9, Last: 10}, {First: tip, Last: tip}}, 3,
			[]int64{5, 9, 10, tip}},
	} {
		t.Run(name, func(t *testing.T) {
			m, asked := busy(t, tip, never)
			q.Again = tt.again
			v, err := m.Scan(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, x := range v.Transfers {
				got = append(got, x.Height)
			}
			if !slices.Equal(got, tt.want) || asked() != tt.asked {
				t.Errorf("blocks %v in %d calls, want %v in %d", got, asked(), tt.want, tt.asked)
			}
			for h := int64(1); h <= tip; h++ {
				if v.Covers(h) != slices.Contains(tt.want, h) {
					t.Errorf("covers block %d: %t", h, v.Covers(h))
				}
			}
		})
	}

	s, m := newScript(t)
	s.set("get_transfers", `{}`)
	s.set("get_last_block_header", header(100, "a"), header(100, "b"), header(100, "c"), header(100, "d"))
	q = settle.Query{Known: []card.Tip{{Height: 100, Hash: hash("a")}}, Since: 100,
		Again: []settle.Blocks{{First: 50, Last: 60}}, Newest: settle.NoPosition}
	if v, err := m.Scan(t.Context(), q); !errors.Is(err, card.ErrChainNotReady) {
		t.Errorf("the top block changed in both scans: %+v, %v", v, err)
	}
}

func TestChain_TransferOutsideQuery_IsRejected(t *testing.T) {
	s, m := newScript(t)
	s.set("get_transfers", `{"in":[`+entry(t, nil)+`]}`) // of block 90
	known := []card.Tip{{Height: 100, Hash: hash("a")}}
	for _, b := range []settle.Blocks{{First: 80, Last: 89}, {First: 91, Last: 95}} {
		_, err := m.Scan(t.Context(),
			settle.Query{Known: known, Since: 100, Again: []settle.Blocks{b}, Newest: settle.NoPosition})
		if !errors.Is(err, card.ErrWrongAnswer) {
			t.Errorf("%v: error %v", b, err)
		}
	}
}
