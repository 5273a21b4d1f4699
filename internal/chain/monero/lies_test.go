package monero_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

// actions are the chain's calls, by name.
var actions = map[string]func(ctx context.Context, m *monero.Chain) (any, error){
	"scan": func(ctx context.Context, m *monero.Chain) (any, error) {
		return m.Scan(ctx, settle.Query{Known: []card.Tip{{Height: 95, Hash: hash("e")}}, Since: 80, Newest: 5})
	},
	"first addresses": func(ctx context.Context, m *monero.Chain) (any, error) {
		return m.NewAddresses(ctx, settle.NoPosition, 2)
	},
	"new addresses": func(ctx context.Context, m *monero.Chain) (any, error) { return m.NewAddresses(ctx, 5, 2) },
	"holds": func(ctx context.Context, m *monero.Chain) (any, error) {
		return nil, m.Holds(ctx, settle.Address{Currency: "monero", Address: sub(5), Position: 5})
	},
	"reserve":      func(ctx context.Context, m *monero.Chain) (any, error) { return m.Reserve(ctx, 5, 2) },
	"reserve more": func(ctx context.Context, m *monero.Chain) (any, error) { return m.Reserve(ctx, 6, 2) },
	"beacon":       func(ctx context.Context, m *monero.Chain) (any, error) { return m.Beacon(ctx) },
	"check":        func(ctx context.Context, m *monero.Chain) (any, error) { return m.Inspect(ctx) },
	"recover": func(ctx context.Context, m *monero.Chain) (any, error) {
		return nil, m.Recover(ctx, "", &settle.Address{Currency: "monero", Address: sub(5), Position: 5}, func(string) {})
	},
}

// honest returns a wallet with three payments: one in a block, a locked one in
// a block, and one in the mempool.
func honest(t *testing.T) (*script, *monero.Chain) {
	t.Helper()
	s, m := newScript(t)
	transfers := fmt.Sprintf(`{"in":[%s,%s],"pool":[%s]}`,
		entry(t, map[string]any{"amounts": []int{3, 4}}),
		entry(t, map[string]any{"txid": hash("c"), "address": sub(4),
			"subaddr_index": map[string]any{"major": 0, "minor": 4}, "locked": true, "unlock_time": 700}),
		entry(t, map[string]any{"txid": hash("d"), "type": "pool", "height": 0}))
	s.set("get_transfers", transfers)
	s.set("create_address", created(6, 7))
	s.set("store", `{}`)
	s.set("rescan_blockchain", `{}`)
	s.set("get_attribute", `{"value":`+encoded(`{"epoch":3,"position":5,"paced_until":9,"marked_at":8}`)+`}`)
	return s, m
}

// decisive lists the fields that decisions need, with a wrong value, by action
// and method.
var decisive = []struct {
	do, method string
	fields     map[string]any
}{
	{"scan", "get_info",
		map[string]any{"height": 1, "nettype": "", "status": "", "synchronized": true, "busy_syncing": true, "offline": true,
			"untrusted": true}},
	{"scan", "get_last_block_header",
		map[string]any{"block_header": map[string]any{}, "block_header.hash": "", "block_header.height": 1,
			"block_header.timestamp": 1, "status": "", "untrusted": true}},
	{"scan", "get_block_header_by_height",
		map[string]any{"block_header": map[string]any{}, "block_header.hash": "", "block_header.height": 1,
			"block_header.timestamp": 1, "status": "", "untrusted": true}},
	{"scan", "get_height", map[string]any{"height": 1}},
	{"scan", "get_address",
		map[string]any{"address": "", "addresses": []any{}, "addresses.0.address": "", "addresses.0.address_index": 1}},
	{"holds", "get_address",
		map[string]any{"address": "", "addresses": []any{}, "addresses.0.address": "", "addresses.0.address_index": 1}},
	{"reserve", "get_address",
		map[string]any{"address": "", "addresses": []any{}, "addresses.0.address": "", "addresses.0.address_index": 1}},
	{"new addresses", "get_address",
		map[string]any{"address": "", "addresses": []any{}, "addresses.0.address": "", "addresses.0.address_index": 1}},
	{"first addresses", "create_address", map[string]any{"addresses": []any{}, "address_indices": []any{}}},
	{"beacon", "get_attribute", map[string]any{"value": ""}},
	{"check", "get_version", map[string]any{"version": 1}},
	{"check", "get_address", map[string]any{"address": "", "addresses": []any{}, "addresses.0.address_index": 1}},
	{"scan", "get_transfers", entryFields("in.0")},
	{"scan", "get_transfers", entryFields("in.1")},
	{"scan", "get_transfers", entryFields("pool.0")},
	{"scan", "get_transfers",
		map[string]any{"in": []any{}, "pool": []any{}, "in.0.amounts": []any{}, "in.0.confirmations": 1}},
}

func entryFields(path string) map[string]any {
	fields := map[string]any{}
	for name, value := range map[string]any{"address": "", "amount": 1, "double_spend_seen": true, "height": 1,
		"locked": true, "subaddr_index": map[string]any{},
		"subaddr_index.major": 1, "subaddr_index.minor": 1, "timestamp": 1, "txid": "", "type": "", "unlock_time": 1} {
		fields[path+"."+name] = value
	}
	return fields
}

// harmless lists lies that can't be detected, with the reason why they do no
// harm.
var harmless = map[string]string{
	"get_transfers: in is missing": "an empty list is left out; a stored transfer can't vanish from a block that is still there: " +
		"see TestWatcher_Reorg_OlderMoneyMissing_Fails",
	"get_transfers: pool is missing":                         "an empty list is left out, and no card is issued for what is in no block",
	"get_transfers: in.0.amounts is missing":                 "a wallet that is older than the list does not have it; the amount itself is required",
	"get_transfers: in.1.unlock_time is huge":                "it is locked either way",
	"get_transfers: pool.0.unlock_time is huge":              "it is locked until a block has taken it",
	"the answer of sign_transfer is without result":          "it still has the error that is asked for",
	"the answer of sign_transfer is a result that is a list": "it still has the error that is asked for",
}

func TestChain_NeededFieldMissing_IsRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: tries hundreds of lies")
	}
	t.Parallel()
	var lies int
	for _, d := range decisive {
		for field, value := range d.fields {
			for _, lie := range rig.LiesAbout(d.method, field, value) {
				lies++
				tell(t, d.do, lie)
			}
		}
	}
	for do, methods := range map[string][]string{
		"scan": {"get_info", "get_last_block_header", "get_block_header_by_height", "get_height", "get_address",
			"get_transfers", "refresh", "sign_transfer"},
		"new addresses":   {"get_address", "create_address", "store"},
		"first addresses": {"create_address", "get_address", "store"},
		"holds":           {"get_address"}, "reserve": {"get_address"}, "reserve more": {"create_address", "store"},
		"beacon": {"get_attribute"}, "check": {"get_version", "get_address"},
		"recover": {"rescan_blockchain", "store"},
	} {
		for _, method := range methods {
			for _, lie := range rig.LiesOf(method) {
				lies++
				tell(t, do, lie)
			}
		}
	}
	t.Logf("%d lies", lies)
}

// Values with the right form may still contradict other values.
func TestChain_ContradictoryResponses_AreRejected(t *testing.T) {
	t.Parallel()
	const in0, in1, pool0 = "in.0.", "in.1.", "pool.0."
	broken := strings.Replace(sub(5), "1111", "1112", 1)
	for _, tt := range []struct {
		do, method, field string
		is                any
	}{
		{"scan", "get_transfers", in0 + "amount", 8}, // more than its outputs have
		{"scan", "get_transfers", in0 + "amount", 0},
		{"scan", "get_transfers", in0 + "amount", 1<<62 + 1},
		{"scan", "get_transfers", in0 + "amounts", []any{1 << 62, 1 << 62}},
		{"scan", "get_transfers", in0 + "amounts", []any{json.Number("18446744073709551615"), 8}},
		{"scan", "get_transfers", in0 + "locked", true}, // nothing locks it
		{"scan", "get_transfers", in1 + "locked", false},
		{"scan", "get_transfers", in1 + "unlock_time", 0},
		{"scan", "get_transfers", in1 + "unlock_time", 101}, // already reached
		{"scan", "get_transfers", in0 + "unlock_time", 102},
		{"scan", "get_transfers", in0 + "unlock_time", clock.Unix() + 11_000},
		{"scan", "get_transfers", in0 + "unlock_time", json.Number("9223372036854775807")},
		{"scan", "get_transfers", in0 + "height", 89}, // other confirmations
		{"scan", "get_transfers", in0 + "height", 91},
		{"scan", "get_transfers", in0 + "height", 80}, // outside the query
		{"scan", "get_transfers", in0 + "height", 0},
		{"scan", "get_transfers", in0 + "height", 101},
		{"scan", "get_transfers", in0 + "confirmations", 10},
		{"scan", "get_transfers", in0 + "confirmations", 0},
		{"scan", "get_transfers", in0 + "type", "pool"},
		{"scan", "get_transfers", in0 + "type", "out"},
		{"scan", "get_transfers", in0 + "txid", hash("b")[1:]},
		{"scan", "get_transfers", in0 + "txid", hash("b") + "b"},
		{"scan", "get_transfers", in0 + "txid", hash("B")},
		{"scan", "get_transfers", in0 + "txid", hash("g")},
		{"scan", "get_transfers", in0 + "address", sub(4)}, // another of our addresses
		{"scan", "get_transfers", in0 + "address", sub(999)},
		{"scan", "get_transfers", in0 + "address", primary},
		{"scan", "get_transfers", in0 + "address", address(testnetSub, 0, 5)},
		{"scan", "get_transfers", in0 + "address", address(19, 0, 5)}, // integrated
		{"scan", "get_transfers", in0 + "address", broken},
		{"scan", "get_transfers", in0 + "address", sub(5)[1:]},
		{"scan", "get_transfers", in0 + "address", sub(5) + "1"},
		{"scan", "get_transfers", pool0 + "address", sub(4)},
		{"scan", "get_transfers", in0 + "timestamp", 1_397_000_000},
		{"scan", "get_transfers", in0 + "timestamp", clock.Unix() + 90_000},
		{"scan", "get_transfers", in0 + "timestamp", clock.UnixMilli()},
		{"scan", "get_transfers", pool0 + "height", 90},
		{"scan", "get_transfers", pool0 + "locked", false},
		{"scan", "get_transfers", pool0 + "type", "in"},
		{"scan", "get_info", "nettype", "mars"},
		{"scan", "get_info", "height", 0},
		{"scan", "get_last_block_header", "block_header.hash", hash("A")},
		{"scan", "get_last_block_header", "block_header.hash", hash("a")[1:]},
		{"scan", "get_last_block_header", "block_header.timestamp", clock.Unix() + 90_000},
		{"scan", "get_last_block_header", "block_header.timestamp", 0},
		{"scan", "get_block_header_by_height", "block_header.height", 3},
		{"scan", "get_height", "height", 0},
		{"scan", "get_address", "address", address(mainnet, 0, 7)},
		{"scan", "get_address", "addresses.0.address", address(mainnet, 0, 7)},
		{"scan", "get_address", "addresses.0.address", sub(1)},
		{"scan", "get_address", "addresses.0.address_index", 1},
		{"scan", "get_address", "addresses.1.address", sub(999)}, // of a transfer
		{"holds", "get_address", "addresses", []any{}},
		{"new addresses", "get_address", "addresses.0.address", primary},
		{"new addresses", "get_address", "addresses.0.address", sub(7)}, // that of index 7, too
		{"new addresses", "get_address", "addresses.0.address", address(testnetSub, 0, 6)},
		{"new addresses", "get_address", "addresses.0.address_index", 7},
		{"new addresses", "get_address", "addresses", []any{map[string]any{"address": sub(6), "address_index": 6}}},
		{"new addresses", "create_address", "address_indices", []any{7, 6}},
		{"new addresses", "create_address", "address_indices", []any{6, 8}},
		{"new addresses", "create_address", "address_indices", []any{6, 6}},
		{"new addresses", "create_address", "address_indices", []any{0, 1}},
		{"new addresses", "create_address", "address_indices", []any{6}},
		{"new addresses", "create_address", "address_indices", []any{6, 7, 8}},
		{"first addresses", "create_address", "addresses", []any{sub(6), sub(6)}},
		{"first addresses", "create_address", "addresses", []any{sub(6), primary}},
		{"first addresses", "create_address", "addresses", []any{sub(6), broken}},
		{"first addresses", "create_address", "addresses", []any{sub(6)}},
		{"beacon", "get_attribute", "value", `{"epoch":0,"position":5,"paced_until":9,"marked_at":8}`},
		{"beacon", "get_attribute", "value", `{"epoch":3,"position":-2,"paced_until":9,"marked_at":8}`},
		{"beacon", "get_attribute", "value", `{"epoch":3,"paced_until":9,"marked_at":8}`},
		{"beacon", "get_attribute", "value", `{"epoch":3,"position":5,"paced_until":null,"marked_at":8}`},
		{"check", "get_address", "address", sub(5)},
	} {
		tell(t, tt.do, rig.LieThat(tt.method, tt.field, tt.is))
	}
}

func TestChain_ContradictoryEntries_AreRejected(t *testing.T) {
	in, pool := map[string]any{}, map[string]any{"type": "pool", "height": 0}
	with := func(e map[string]any, changes map[string]any) string {
		all := maps.Clone(e)
		maps.Copy(all, changes)
		return entry(t, all)
	}
	for name, tt := range map[string]struct{ answer, says string }{
		"amounts": {`{"in":[` + with(in, nil) + `,` + with(in, map[string]any{"amount": 8}) + `]}`,
			"amount"},
		"heights": {`{"in":[` + with(in, nil) + `,` + with(in, map[string]any{"height": 91}) + `]}`,
			"height"},
		"locks": {`{"in":[` + with(in, nil) + `,` +
			with(in, map[string]any{"locked": true, "unlock_time": 700}) + `]}`, "locked"},
		"amounts in the mempool": {`{"pool":[` + with(pool, nil) + `,` + with(pool, map[string]any{"amount": 8}) + `]}`,
			"amount"},
		"more in the block": {`{"in":[` + with(in, map[string]any{"amount": 8}) + `],"pool":[` + with(pool, nil) +
			`]}`, "amount"},
		"more than there is together": {`{"in":[` + with(in, map[string]any{"amount": 1 << 62}) + `,` +
			with(in, map[string]any{"amount": 1 << 62, "txid": hash("c")}) + `]}`, "amount"},
		"addresses": {`{"in":[` + with(in, nil) + `,` + with(in, map[string]any{"address": sub(4)}) + `]}`,
			"address"},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			s.set("get_transfers", tt.answer)
			view, err := m.Scan(t.Context(), settle.Query{Since: 80, Newest: settle.NoPosition})
			if !errors.Is(err, card.ErrWrongAnswer) || !strings.Contains(err.Error(), "get transfers") ||
				!strings.Contains(err.Error(), tt.says+" of ") {
				t.Errorf("got %+v, %v", view, err)
			}
		})
	}
}

// A node that lacks a block below its newest one changed during the pass. That
// must not be mistaken for another block at that height.
func TestChain_NodeLacksOldBlock_NotReady(t *testing.T) {
	s, m := newScript(t)
	s.set("get_block_header_by_height", genesisBlock,
		`"error":{"code":-2,"message":"Requested block height: 95 greater than current top block height: 94"}`)
	view, err := m.Scan(t.Context(),
		settle.Query{Known: []card.Tip{{Height: 95, Hash: hash("e")}}, Since: 80, Newest: settle.NoPosition})
	notReady(t, err, "shorter during the pass")
	if !cmp.Equal(view, settle.View{}) {
		t.Errorf("got %+v", view)
	}
}

// A wallet that lost its addresses shows a payment in the mempool to an address
// that it lacks. The scan must succeed, so that Holds runs.
func TestChain_MempoolPaymentToLostAddress_IsReturned(t *testing.T) {
	s, m := newScript(t)
	s.made = 2
	s.set("get_transfers", `{"pool":[`+entry(t, map[string]any{"type": "pool", "height": 0})+`]}`)
	if view := scan(t, m, 80); len(view.Transfers) != 1 {
		t.Errorf("got %+v", view)
	}
	if err := m.Holds(t.Context(), settle.Address{Address: sub(5), Position: 5}); !errors.Is(err, card.ErrWalletLost) {
		t.Errorf("error %v", err)
	}
	s.set("get_transfers", `{"in":[`+entry(t, nil)+`]}`)
	if _, err := m.Scan(t.Context(), settle.Query{Since: 80, Newest: settle.NoPosition}); err == nil {
		t.Error("accepted although it is in a block")
	}
}

// The address cache does not mix up two wallets that are opened in turn.
func TestChain_OtherWalletOpenBriefly_AddressesForgotten(t *testing.T) {
	s, m := honest(t)
	other := false
	s.lie = func(method, answer string) string {
		if other = other || method == "get_transfers"; !other {
			return answer
		}
		return strings.NewReplacer(sub(5), sub(50), sub(4), sub(40), primary, address(mainnet, 0, 7)).Replace(answer)
	}
	_, err := m.Scan(t.Context(), settle.Query{Since: 80, Newest: settle.NoPosition})
	notReady(t, err, "another wallet was opened")
	s.lie = nil
	if view := scan(t, m, 80); len(view.Transfers) != 3 {
		t.Errorf("got %+v", view)
	}
}

// Each address is compared only once, so later passes need no calls for it.
func TestChain_WalletAddress_ReadOnce(t *testing.T) {
	s, m := honest(t)
	asked := 0
	s.lie = func(method, answer string) string {
		if method == "get_address" {
			asked++
		}
		return answer
	}
	for _, want := range []int{3, 2, 2} { // two are for its primary address
		asked = 0
		scan(t, m, 80)
		if asked != want {
			t.Errorf("%d calls, want %d", asked, want)
		}
	}
	s.wallet = address(mainnet, 0, 7)
	asked = 0
	if scan(t, m, 80); asked != 3 {
		t.Errorf("%d calls to another wallet", asked)
	}
}

// tell makes an honest wallet lie once, and fails the test unless the action
// returns an error that names the field.
func tell(t *testing.T, do string, lie rig.Lie) {
	t.Helper()
	t.Run(do+", "+lie.Name, func(t *testing.T) {
		s, m := honest(t)
		if do == "reserve more" || do == "new addresses" || do == "first addresses" {
			s.made = 5
		}
		told := false
		s.lie = func(method, answer string) string {
			if method != lie.Method {
				return answer
			}
			lied, ok := lie.Tell([]byte(answer))
			told = told || ok
			return string(lied)
		}
		got, err := actions[do](t.Context(), m)
		if !told {
			t.Fatal("the action did not use the field")
		}
		if reason := harmless[lie.Name]; reason != "" {
			if err != nil {
				t.Errorf("error %v, although the lie is harmless: %s", err, reason)
			}
			return
		}
		if err == nil {
			t.Fatalf("believed: %+v", got)
		}
		for _, name := range []string{strings.ReplaceAll(lie.Method, "_", " "), lie.Field} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q is not named in: %v", name, err)
			}
		}
		if view, ok := got.(settle.View); ok && !cmp.Equal(view, settle.View{}) {
			t.Errorf("with the error came %+v", view)
		}
		s.lie = nil
		if _, err := actions[do](t.Context(), m); err != nil {
			t.Errorf("after the lie, an honest response fails: %v", err)
		}
		if addresses, _ := got.([]settle.Address); len(addresses) > 0 && !errors.Is(err, card.ErrWrongChain) {
			t.Errorf("with the error came %+v", addresses)
		}
	})
}
