package monero_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
)

const (
	primary = "49snN9s5C6n6gVTjGPKivRM4t1DbCjBQah96GqqJiBVvM43b71asFZ2NRQYuuaqG3GDDAwMb1MMVKUVjZaVDvJaX4vTQFcr"
	genesis = "418015bb9ae982a1975da7d79277c2705727a56894ba0fb246adaabb1f4632e3"
)

var clock = time.Date(2026, 11, 20, 14, 46, 0, 0, time.UTC)

// script is a node and a wallet with scripted responses that real ones cannot
// be made to give.
type script struct {
	mu sync.Mutex
	// responses by method; the last one repeats. Each is the result, a whole
	// "error", or "" for the default.
	answers map[string][]string
	raw     http.HandlerFunc // answers everything, if set
	// lie, if set, changes whole responses.
	lie func(method, answer string) string
	// wallet is the primary address.
	wallet string
	made   int64 // the index of the newest address until create_address is called; 0 if it has made them all
}

func hash(digit string) string { return strings.Repeat(digit, 64) }

// newScript returns an empty node and wallet at block 100.
func newScript(t testing.TB) (*script, *monero.Chain) {
	t.Helper()
	return newScriptWith(t, monero.Config{})
}

func newScriptWith(t testing.TB, config monero.Config) (*script, *monero.Chain) {
	t.Helper()
	s := &script{wallet: primary, answers: map[string][]string{
		"get_info":              {info(nil)},
		"get_last_block_header": {header(100, "a")},
		"hard_fork_info":        {`{"status":"OK","untrusted":false,"version":16}`},
		"refresh":               {`{"blocks_fetched":0,"received_money":false}`},
		"get_height":            {`{"height":101}`},
		"get_transfers":         {`{}`},
		"create_address":        {created(1)},
		"store":                 {`{}`},
		"get_version":           {`{"version":65561}`},
		"sign_transfer":         {`"error":{"code":-29,"message":"command not supported by watch-only wallet"}`},
	}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config.WalletURL, config.DaemonURL = server.URL+"/", server.URL
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second) // for slow machines
	config.Now = func() time.Time { return clock }
	return s, newMonero(t, config)
}

const genesisBlock = `{"block_header":{"hash":"` + genesis +
	`","height":0,"timestamp":0},"status":"OK","untrusted":false}`

func header(height int64, digit string) string {
	return fmt.Sprintf(`{"block_header":{"hash":"%s","height":%d,"timestamp":%d},"status":"OK","untrusted":false}`,
		hash(digit), height, clock.Unix())
}

// info returns the result of get_info of a node at block 100, with changes.
func info(changes map[string]any) string {
	i := map[string]any{"busy_syncing": false, "height": 101, "nettype": "mainnet", "offline": false, "status": "OK",
		"synchronized": true,
		"untrusted":    false, "version": "0.18.0.0"}
	maps.Copy(i, changes)
	return encoded(i)
}

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// The first byte of an address.
const (
	mainnet, mainnetSub = 18, 42
	testnet, testnetSub = 53, 63
)

func address(kind byte, account, index int64) string { return rig.MoneroAddress(kind, account, index) }

// sub returns the script's address at an index of account 0.
func sub(index int64) string { return addressAt(0, index) }

func addressAt(account, index int64) string { return address(mainnetSub, account, index) }

// created returns the result of create_address for the indices.
func created(indices ...int64) string {
	var addresses []string
	for _, i := range indices {
		addresses = append(addresses, sub(i))
	}
	return encoded(
		map[string]any{"address": addresses[0], "address_index": indices[0], "addresses": addresses,
			"address_indices": indices})
}

// addressesOf returns the result of get_address of a wallet with every address.
func addressesOf(wallet string, account int64, indices []int64) string {
	at := func(index int64) string {
		if account == 0 && index == 0 {
			return wallet
		}
		return addressAt(account, index)
	}
	if indices == nil {
		indices = []int64{0, 1, 2, 3, 4, 5}
	}
	all := []map[string]any{}
	for _, i := range indices {
		all = append(all, map[string]any{"address": at(i), "address_index": i, "label": "", "used": false})
	}
	return encoded(map[string]any{"address": at(0), "addresses": all})
}

func (s *script) set(method string, answers ...string) { s.answers[method] = answers }

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.raw != nil {
		s.raw(w, r)
		return
	}
	var request struct {
		ID     string
		Method string
		Params struct {
			Height  int64   `json:"height"`
			Account int64   `json:"account_index"`
			Indices []int64 `json:"address_index"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/json_rpc" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := `"error":{"code":-32601,"message":"Method not found"}`
	next := s.answers[request.Method]
	if len(next) > 0 && next[0] == "" {
		next = nil
	}
	if request.Method == "create_address" {
		s.made = 0
	}
	switch p := request.Params; {
	case len(next) > 0:
		answer = next[0]
		if len(next) > 1 {
			s.answers[request.Method] = next[1:]
		}
	case request.Method == "get_address" && s.made > 0 && p.Indices != nil && slices.Max(p.Indices) > s.made:
		answer = `"error":{"code":-15,"message":"address index is out of bound"}`
	case request.Method == "get_address":
		answer = addressesOf(s.wallet, p.Account, p.Indices)
	case request.Method == "get_block_header_by_height" && p.Height == 0:
		answer = genesisBlock
	case request.Method == "get_block_header_by_height":
		answer = header(p.Height, "e")
	}
	if !strings.HasPrefix(answer, `"error"`) {
		answer = `"result":` + answer
	}
	answer = fmt.Sprintf(`{"id":%q,"jsonrpc":"2.0",%s}`, request.ID, answer)
	if s.lie != nil {
		answer = s.lie(request.Method, answer)
	}
	_, _ = io.WriteString(w, answer)
}

// entry returns an entry of get_transfers: 7 piconero to subaddress 5 in block
// 90 of 100, with changes. Dependent fields follow them.
func entry(t testing.TB, changes map[string]any) string {
	t.Helper()
	e := map[string]any{"address": sub(5), "amount": 7, "double_spend_seen": false, "fee": 1, "height": 90,
		"locked": false, "subaddr_index": map[string]any{"major": 0, "minor": 5}, "timestamp": clock.Unix() - 60,
		"txid": hash("b"),
		"type": "in", "unlock_time": 0}
	maps.Copy(e, changes)
	if height := e["height"].(int); e["type"] == "pool" {
		e["locked"] = true
	} else {
		e["confirmations"] = 101 - height
		e["locked"] = e["locked"].(bool) || height > 91
	}
	maps.Copy(e, changes)
	return encoded(e)
}
