package monero_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/settle"
)

func TestChain_NotReady(t *testing.T) {
	for name, tc := range map[string]struct{ method, answer, says string }{
		"node synchronizes":    {"get_info", info(map[string]any{"synchronized": false}), "synchronizing"},
		"node is busy syncing": {"get_info", info(map[string]any{"busy_syncing": true}), "synchronizing"},
		"node is offline":      {"get_info", info(map[string]any{"offline": true}), "offline"},
		"node asks another":    {"get_info", info(map[string]any{"untrusted": true}), "bootstrap"},
		"block of another": {"get_last_block_header",
			strings.Replace(header(100, "a"), `"untrusted":false`, `"untrusted":true`, 1), "bootstrap"},
		"node says busy": {"get_info",
			info(map[string]any{"status": "BUSY", "height": 0, "nettype": "", "version": ""}), "BUSY"},
		"node fails busy": {"get_last_block_header", `"error":{"code":-9,"message":"Core is busy"}`, "Core is busy"},
		"header says busy": {"get_last_block_header",
			`{"block_header":{"hash":"","height":0,"timestamp":0},"status":"BUSY","untrusted":false}`, "BUSY"},
		"wallet is ahead":      {"get_height", `{"height":104}`, "block 103, node only at 100"},
		"wallet is behind":     {"get_height", `{"height":100}`, "block 99, node at 100"},
		"wallet is closed":     {"refresh", `"error":{"code":-13,"message":"No wallet file"}`, "--wallet-file"},
		"wallet lost its node": {"refresh", `"error":{"code":-38,"message":"no connection to daemon"}`, "--daemon-address"},
		"transfer above the tip": {"get_transfers", `{"in":[` + entry(t, map[string]any{"height": 101}) + `]}`,
			"node is at 100"},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			s.set(tc.method, tc.answer)
			view, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
			if !errors.Is(err, card.ErrChainNotReady) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %+v, %v; want ErrChainNotReady with %q", view, err, tc.says)
			}
		})
	}
}

func TestChain_BlockDuringPass_RescansOnce(t *testing.T) {
	before, next := header(100, "a"), header(101, "c")
	for name, tt := range map[string]struct {
		headers []string
		wallet  []string // result of get_height
		want    string   // the hash of the tip; "" for an error
	}{
		"at its end":                      {[]string{before, next}, []string{`{"height":101}`, `{"height":102}`}, hash("c")},
		"before the wallet was refreshed": {[]string{before, next}, []string{`{"height":102}`}, hash("c")},
		"in place of the newest":          {[]string{before, header(100, "c")}, []string{`{"height":101}`}, hash("c")},
		"and back": {[]string{before, header(100, "c"), before}, []string{`{"height":101}`},
			hash("a")},
		"twice": {[]string{before, next, next, before},
			[]string{`{"height":101}`, `{"height":102}`}, ""},
		"never, and the wallet is ahead": {[]string{before}, []string{`{"height":102}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			s.set("get_last_block_header", tt.headers...)
			s.set("get_height", tt.wallet...)
			view, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
			if tt.want == "" {
				if !errors.Is(err, card.ErrChainNotReady) {
					t.Errorf("got %+v, %v; want ErrChainNotReady", view, err)
				}
			} else if err != nil || view.Tip.Hash != tt.want {
				t.Errorf("tip %+v, error %v", view.Tip, err)
			}
		})
	}
}

func TestChain_Fingerprint_DistinguishesNetworksAndWallets(t *testing.T) {
	s, m := newScript(t)
	seen := map[string]bool{scan(t, m, 0).Fingerprint: true}
	differs := func(what string) {
		t.Helper()
		if f := scan(t, m, 0).Fingerprint; seen[f] {
			t.Errorf("%s: fingerprint is still %s", what, f)
		} else {
			seen[f] = true
		}
	}
	s.set("get_info", info(map[string]any{"offline": true, "nettype": "fakechain"})) // same genesis block
	differs("regtest")
	s.set("get_block_header_by_height", strings.Replace(genesisBlock, genesis, hash("d"), 1))
	differs("genesis block")
	s.wallet = address(mainnet, 0, 7)
	differs("wallet")
}

func TestChain_OtherWalletOpened(t *testing.T) {
	s, m := newScript(t)
	scan(t, m, 0)
	newAddress(t, m)
	s.wallet = address(mainnet, 0, 7)
	if as, err := m.NewAddresses(t.Context(), settle.NoPosition, 1); !errors.Is(err, card.ErrWrongChain) {
		t.Errorf("got %v, %v; want ErrWrongChain", as, err)
	}
}

func TestChain_Transfers(t *testing.T) {
	long := uint64(math.MaxUint64)
	base := card.Transfer{Currency: "monero", TxID: hash("b"), Output: 5, Address: sub(5), Amount: 7, Height: 90,
		FirstSeenAt: clock.Add(-time.Minute)}
	with := func(change func(*card.Transfer)) []card.Transfer {
		t := base
		change(&t)
		return []card.Transfer{t}
	}
	pool := map[string]any{"type": "pool", "height": 0}
	for name, tc := range map[string]struct {
		answer string
		want   []card.Transfer
	}{
		"nothing": {`{}`, []card.Transfer{}},
		"in":      {`{"in":[` + entry(t, nil) + `]}`, with(func(*card.Transfer) {})},
		"mempool": {`{"pool":[` + entry(t, pool) + `]}`, with(func(t *card.Transfer) { t.Height = 0 })},
		"in, locked": {`{"in":[` + entry(t, map[string]any{"locked": true, "unlock_time": long}) + `]}`,
			with(func(t *card.Transfer) { t.Locked = true })},
		"unlocked": {`{"in":[` + entry(t, map[string]any{"unlock_time": 80}) + `]}`,
			with(func(*card.Transfer) {})},
		"young": {`{"in":[` + entry(t, map[string]any{"height": 92, "locked": true}) + `]}`,
			with(func(t *card.Transfer) { t.Height = 92 })},
		"locked until a time": {`{"in":[` + entry(t, map[string]any{"locked": true, "unlock_time": clock.Unix() + 60}) +
			`]}`, with(func(t *card.Transfer) { t.Locked = true })},
		"unlocked by its time": {`{"in":[` + entry(t, map[string]any{"unlock_time": clock.Unix() + 60}) + `]}`,
			with(func(*card.Transfer) {})},
		"two outputs": {`{"in":[` + entry(t, map[string]any{"amounts": []int{3, 4}}) + `]}`,
			with(func(*card.Transfer) {})},
		"an old wallet's": {`{"in":[` + entry(t, map[string]any{"amounts": []int{}}) + `]}`,
			with(func(*card.Transfer) {})},
		"a key used before": {`{"in":[` + entry(t, map[string]any{"amounts": []int{9}}) + `]}`,
			with(func(*card.Transfer) {})},
		"account 1": {`{"in":[` +
			entry(t, map[string]any{"subaddr_index": map[string]any{"major": 1, "minor": 5}, "address": addressAt(1, 5)}) + `]}`,
			with(func(t *card.Transfer) { t.Output, t.Address = 1<<32|5, addressAt(1, 5) })},
		"most": {`{"in":[` + entry(t, map[string]any{"amount": 1 << 62}) + `]}`,
			with(func(t *card.Transfer) { t.Amount = 1 << 62 })},
		"above 2^53": {`{"in":[` + entry(t, map[string]any{"amount": 1<<53 + 1}) + `]}`,
			with(func(t *card.Transfer) { t.Amount = 1<<53 + 1 })},
		"future": {`{"in":[` + entry(t, map[string]any{"timestamp": clock.Unix() + 7200}) + `]}`,
			with(func(t *card.Transfer) { t.FirstSeenAt = clock })},
		"spent twice": {`{"pool":[` +
			entry(t, map[string]any{"type": "pool", "height": 0, "double_spend_seen": true}) + `]}`, []card.Transfer{}},
		"in block and mempool": {`{"in":[` + entry(t, nil) + `],"pool":[` + entry(t, pool) + `]}`,
			with(func(*card.Transfer) {})},
		"less in the block": {`{"in":[` + entry(t, nil) + `],"pool":[` +
			entry(t, map[string]any{"type": "pool", "height": 0, "amount": 9}) + `]}`, with(func(*card.Transfer) {})},
		"same money twice": {`{"in":[` + entry(t, nil) + `,` + entry(t, nil) + `]}`, with(func(*card.Transfer) {})},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			s.set("get_transfers", tc.answer)
			view := scan(t, m, 80)
			want := settle.View{Fingerprint: "mainnet " + genesis + " " + primary,
				Tip:   card.Tip{Height: 100, Hash: hash("a"), Time: clock},
				Since: 80, Transfers: tc.want}
			if diff := cmp.Diff(want, view); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Two transactions may pay to the same one-time key, but only one can ever be
// spent. The wallet keeps the larger; the get_transfers here are its entries
// for the other, and spendable is its get_balance.
func TestChain_BurningBug_CreditedOnce(t *testing.T) {
	paid := func(digit string, height, amount int) string {
		return entry(t, map[string]any{"txid": hash(digit), "height": height, "amount": amount})
	}
	for name, tc := range map[string]struct {
		answers   []string // of get_transfers, after each block
		spendable []card.Amount
	}{
		"larger first, second of no amount": {
			[]string{`{"in":[` + paid("b", 90, 500) + `]}`, `{"in":[` + paid("b", 90, 500) + `,` + paid("c", 91, 0) + `]}`},
			[]card.Amount{500, 500}},
		"larger first, second is absent": {
			[]string{`{"in":[` + paid("b", 90, 500) + `]}`, `{"in":[` + paid("b", 90, 500) + `]}`},
			[]card.Amount{500, 500}},
		"equal": {
			[]string{`{"in":[` + paid("b", 90, 500) + `]}`, `{"in":[` + paid("b", 90, 500) + `,` + paid("c", 91, 0) + `]}`},
			[]card.Amount{500, 500}},
		"smaller first, second is the difference": {
			[]string{`{"in":[` + paid("b", 90, 200) + `]}`, `{"in":[` + paid("b", 90, 200) + `,` + paid("c", 91, 300) + `]}`},
			[]card.Amount{200, 500}},
		"growing three times": {
			[]string{`{"in":[` + paid("b", 90, 200) + `]}`, `{"in":[` + paid("b", 90, 200) + `,` + paid("c", 91, 300) + `]}`,
				`{"in":[` + paid("b", 90, 200) + `,` + paid("c", 91, 300) + `,` + paid("d", 92, 1) + `]}`},
			[]card.Amount{200, 500, 501}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			for i, answer := range tc.answers {
				s.set("get_transfers", answer)
				var credited card.Amount
				for _, got := range scan(t, m, 80).Transfers {
					credited += got.Amount
				}
				if credited > tc.spendable[i] {
					t.Errorf("after %d blocks: credited %d of %d that can be spent", i+1, credited, tc.spendable[i])
				}
			}
		})
	}
}

func FuzzChain_Transfers(f *testing.F) {
	f.Add(`{"in":[` + entry(f, nil) + `],"pool":[` + entry(f, map[string]any{"type": "pool", "height": 0}) + `]}`)
	f.Add(`{"in":[` + entry(f, map[string]any{"amount": uint64(math.MaxUint64), "unlock_time": uint64(math.MaxUint64)}) +
		`]}`)
	f.Add(`{"in":[` + entry(f, map[string]any{"subaddr_index": map[string]any{"major": 1, "minor": 1}}) + `]}`)
	s, m := newScript(f)
	f.Fuzz(func(t *testing.T, answer string) {
		s.set("get_transfers", answer)
		view, err := m.Scan(t.Context(), settle.Query{Since: 80, Newest: settle.NoPosition})
		if err != nil {
			return
		}
		type key struct {
			txID   string
			output int64
		}
		seen := map[key]bool{}
		for _, got := range view.Transfers {
			k := key{got.TxID, got.Output}
			if seen[k] || got.Output < 0 || got.Amount < 0 || got.Height < 0 || got.Height > 100 || got.Counted ||
				got.Address == "" ||
				got.FirstSeenAt.After(clock) {
				t.Errorf("got %+v", got)
			}
			seen[k] = true
		}
	})
}

func TestChain_BadTransport(t *testing.T) {
	write := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	for name, tc := range map[string]struct {
		says string
		raw  http.HandlerFunc
	}{
		"200 with error": {`error -1: "no"`, write(`{"id":"0","jsonrpc":"2.0","error":{"code":-1,"message":"no"}}`)},
		"500 with error": {`error -1: "no"`, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			write(`{"error":{"code":-1,"message":"no"}}`)(w, r)
		}},
		"truncated": {"not JSON-RPC", write(`{"id":"0","jsonrpc":"2.0","result":{"height":1`)},
		"trailing":  {"not JSON-RPC", write(`{"result":{}}{}`)},
		"HTML":      {"not JSON-RPC", write("<html><body>It works!</body></html>")},
		"empty":     {"not JSON-RPC", write("")},
		"neither":   {"neither result nor error", write(`{"id":"0","jsonrpc":"2.0"}`)},
		"oversized": {"longer than 1048576 bytes", write(`{"result":{"status":"` + strings.Repeat("x", 1<<20) + `"}}`)},
		"bad gateway": {"HTTP status 502", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "proxy", http.StatusBadGateway)
		}},
		"redirect": {"HTTP status 308", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
		}},
		"cut": {"unexpected EOF", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}},
		"hangs": {"no answer within 1s", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"hangs half-way": {"no answer within 1s", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		"long error text": {"...", write(`{"error":{"code":-1,"message":"` + strings.Repeat("x", 10_000) + `"}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, m := newScriptWith(t, monero.Config{Timeout: time.Second})
			s.raw = func(w http.ResponseWriter, r *http.Request) {
				// otherwise the server does not notice a lost connection
				_, _ = http.MaxBytesReader(w, r.Body, 1<<20).Read(make([]byte, 4096))
				if r.URL.Path == "/elsewhere" {
					t.Error("redirect was followed")
				}
				tc.raw(w, r)
			}
			_, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition})
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "get info: ") ||
				len(err.Error()) > 500 {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestChain_ContextCanceled(t *testing.T) {
	s, m := newScript(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.raw = func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices a lost connection
		cancel()
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
	}
	if _, err := m.Scan(ctx, settle.Query{Newest: settle.NoPosition}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestChain_Inspect_Rejects(t *testing.T) {
	for name, tc := range map[string]struct {
		method, answer string
		is             error
	}{
		"signs": {"sign_transfer", `{}`, monero.ErrSpendKey},
		"could sign": {"sign_transfer", `"error":{"code":-39,"message":"cannot load unsigned_txset"}`,
			monero.ErrSpendKey},
		"can't tell":     {"sign_transfer", `"error":{"code":-7,"message":"Command unavailable in restricted mode."}`, nil},
		"testnet wallet": {"get_address", addressesOf(address(testnet, 0, 0), 0, []int64{0}), card.ErrWrongChain},
		"stagenet node":  {"get_info", info(map[string]any{"nettype": "stagenet"}), card.ErrWrongChain},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			s.set(tc.method, tc.answer)
			if report, err := m.Inspect(t.Context()); err == nil || (tc.is != nil && !errors.Is(err, tc.is)) {
				t.Errorf("got %+v, %v; want %v", report, err, tc.is)
			}
		})
	}
}

// A wallet with the same address and a spend key may be opened at any time.
func TestChain_SpendingWalletOpenedLater_EveryPassFails(t *testing.T) {
	s, m := newScript(t)
	if _, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition}); err != nil {
		t.Fatal(err)
	}
	s.set("sign_transfer", `"error":{"code":-39,"message":"cannot load unsigned_txset"}`)
	for range 2 {
		if _, err := m.Scan(t.Context(), settle.Query{Newest: settle.NoPosition}); !errors.Is(err, monero.ErrSpendKey) ||
			!errors.Is(err, card.ErrWrongChain) {
			t.Errorf("error %v", err)
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	for name, tc := range map[string]struct {
		config monero.Config
		says   string
	}{
		"defaults": {monero.Config{}, ""},
		"path and login": {
			monero.Config{WalletURL: "https://node.example/wallet/", WalletUser: "u", WalletPassword: "p"}, ""},
		"no scheme":           {monero.Config{WalletURL: "127.0.0.1:18083"}, "wallet URL"},
		"other scheme":        {monero.Config{DaemonURL: "tcp://127.0.0.1:18081"}, "daemon URL"},
		"no host":             {monero.Config{DaemonURL: "http://:18081"}, "daemon URL"},
		"login in address":    {monero.Config{DaemonURL: "http://u:hunter2@127.0.0.1:18081"}, "must not hold a login"},
		"unreadable address":  {monero.Config{DaemonURL: "http://u:hunter2@127.0.0.1:port"}, "daemon URL"},
		"query":               {monero.Config{WalletURL: "http://127.0.0.1:18083/?a"}, "wallet URL"},
		"user alone":          {monero.Config{WalletUser: "u"}, "both a user and a password"},
		"password alone":      {monero.Config{DaemonPassword: "hunter2"}, "both a user and a password"},
		"negative time limit": {monero.Config{Timeout: -1}, "timeouts"},
		"no limit to look":    {monero.Config{RescanTimeout: -1}, "timeouts"},
		"any age of the tip":  {monero.Config{MaxTipAge: -1}, ""},
		"wallet to open":      {monero.Config{WalletFile: "wallet", WalletFilePassword: "p"}, ""},
		"path of a wallet":    {monero.Config{WalletFile: "../wallet"}, "wallet file"},
		"wallet without name": {monero.Config{WalletFilePassword: "hunter2"}, "wallet file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := monero.New(tc.config)
			if (err == nil) != (tc.says == "") ||
				(err != nil && (!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "hunter2"))) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}
