package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// outdatedMonero starts a fake node and wallet of version 0.18.0, at block 100.
func outdatedMonero(t *testing.T) string {
	t.Helper()
	return fakeMonero(t, `{"version":65561}`, rig.MoneroAddress(18, 0, 0))
}

// fakeMonero starts a fake node and view-only wallet at block 100. The first
// address of the wallet is the primary one.
func fakeMonero(t *testing.T, walletVersion string, addresses ...string) string {
	t.Helper()
	return fakeWallet(t, walletVersion, true, addresses...)
}

// fakeWallet is like fakeMonero, with a wallet that can spend unless it is
// view-only.
func fakeWallet(t *testing.T, walletVersion string, viewOnly bool, addresses ...string) string {
	t.Helper()
	block := `{"block_header":{"hash":"%s","height":%d,"timestamp":1700000000},"status":"OK","untrusted":false}`
	answers := map[string]string{
		"get_info":                   `{"busy_syncing":false,"height":101,"nettype":"mainnet","offline":false,"status":"OK","synchronized":true,"untrusted":false,"version":"0.18.0.0-release"}`,
		"get_last_block_header":      fmt.Sprintf(block, strings.Repeat("a", 64), 100),
		"get_block_header_by_height": fmt.Sprintf(block, fakeGenesis, 0),
		"hard_fork_info":             `{"status":"OK","untrusted":false,"version":16}`,
		"get_version":                walletVersion,
		"get_height":                 `{"height":101}`,
		"get_balance":                `{"balance":2500000000000,"unlocked_balance":0}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Indices []int `json:"address_index"`
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&request)
		answer := `"result":` + answers[request.Method]
		switch request.Method {
		case "sign_transfer":
			if answer = `"error":{"code":-39,"message":"bad unsigned tx"}`; viewOnly {
				answer = `"error":{"code":-29,"message":"command not supported by watch-only wallet"}`
			}
		case "get_attribute":
			answer = `"error":{"code":-45,"message":"attribute not found"}`
		case "get_address":
			answer = fakeAddresses(addresses, request.Params.Indices)
		}
		_, _ = fmt.Fprintf(w, `{"id":%s,"jsonrpc":"2.0",%s}`, request.ID, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const (
	fakeGenesis   = "418015bb9ae982a1975da7d79277c2705727a56894ba0fb246adaabb1f4632e3"
	currentWallet = `{"version":65564}`
)

// fakeAddresses returns the response to get_address for the given indices, or
// for all addresses if there are none.
func fakeAddresses(addresses []string, indices []int) string {
	if len(indices) == 0 {
		for i := range addresses {
			indices = append(indices, i)
		}
	}
	var list []string
	for _, i := range indices {
		if i >= len(addresses) {
			return `"error":{"code":-15,"message":"address index is out of bound"}`
		}
		list = append(list, fmt.Sprintf(`{"address":%q,"address_index":%d}`, addresses[i], i))
	}
	return fmt.Sprintf(`"result":{"address":%q,"addresses":[%s]}`, addresses[0], strings.Join(list, ","))
}

func TestWalletCheck_OutdatedVersions_Warns(t *testing.T) {
	t.Parallel()
	p, url := newProgram(t, ""), outdatedMonero(t)
	p.must(t, "migrate")
	got := p.must(t, "wallet", "check", "--monero-daemon-url", url, "--monero-wallet-url", url)
	for _, want := range []string{"version 0.18.0.0-release, block 100", "RPC 1.25, block 100", "warning",
		"monerod 0.18.0.0-release is outdated",
		"monero-wallet-rpc is outdated, its version is RPC 1.25: upgrade to 0.18.4 (RPC 1.28) or newer"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not printed:\n%s", want, got)
		}
	}
}

func TestServe_OutdatedNodeAndWallet_LogsWarnings(t *testing.T) {
	t.Parallel()
	p, url := newProgram(t, ""), outdatedMonero(t)
	p.must(t, "keys", "create")
	cmd := exec.Command(p.path, "serve", "--listen", "127.0.0.1:0", "--rate", "monero=150", "--monero-daemon-url", url,
		"--monero-wallet-url", url)
	cmd.Env = p.env
	s := rig.Start(t, cmd)
	s.Ready(t, 30*time.Second, func() error {
		if strings.Count(s.Output(), "outdated") < 2 {
			return errors.New("no warning yet")
		}
		return nil
	})
}

// checkWallet runs wallet check with a fake node and wallet.
func (p *program) checkWallet(url string, more ...string) (stdout, stderr string, code int) {
	return p.run(append([]string{"wallet", "check", "--monero-daemon-url", url, "--monero-wallet-url", url}, more...)...)
}

func TestWalletCheck_OtherWallet_Fails(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	p.must(t, "migrate")
	primary, first, second := rig.MoneroAddress(18, 0, 0), rig.MoneroAddress(42, 0, 1), rig.MoneroAddress(42, 0, 2)
	other := rig.MoneroAddress(18, 0, 9)
	db := rig.OpenSQL(t, p.setting("CARDMINT_DATABASE_URL"))
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	own := fakeMonero(t, currentWallet, primary, first, second)

	stdout, stderr, code := p.checkWallet(own)
	if code != 0 {
		t.Errorf("database without a wallet: exit code %d\n%s%s", code, stdout, stderr)
	}
	wantOutput(t, stdout, "database", "has no wallet of monero yet")

	network := "mainnet " + fakeGenesis + " "
	run("INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', $1, 90, 'x', 1700000000000)",
		network+primary)
	run("INSERT INTO address_pools (currency, next_position, checked_at, paced_until) VALUES ('monero', 2, 0, 0)")
	run("INSERT INTO addresses (currency, position, address) VALUES ('monero', 1, $1), ('monero', 2, $2)", first, second)
	run("INSERT INTO epochs (currency, epoch, started_at, first_position, reason) VALUES ('monero', 7, 7, 1, 'x')")
	stdout, stderr, code = p.checkWallet(own)
	if code != 0 {
		t.Errorf("the wallet of the database: exit code %d\n%s%s", code, stdout, stderr)
	}
	wantOutput(t, stdout, "database", "the same wallet and network, block 90, addresses up to 2, epoch 7")

	short := func(address string) string { return address[:8] + "..." + address[len(address)-6:] }
	for _, tt := range []struct {
		name    string
		url     string
		prepare string
		want    []string
	}{
		{"another wallet", fakeMonero(t, currentWallet, other), "",
			[]string{"not the chain or wallet this database belongs to", short(other), short(primary), "hint: ",
				"--database-url"}},
		{"a lost address", fakeMonero(t, currentWallet, primary, first), "",
			[]string{"the wallet lost data", "subaddress 2", "hint: ", "cardmint wallet rescan monero"}},
		{"another database", own, "UPDATE address_pools SET conflict = 'the wallet carries epoch 9 of another database'",
			[]string{"another database uses the wallet", "epoch 9", "hint: ", "cardmint wallet claim monero"}},
		{"a simulated chain", own, "UPDATE chains SET fingerprint = 'simulated monero'",
			[]string{"simulated monero", short(primary), "hint: ", "--simulated", "new database"}},
	} {
		if tt.prepare != "" {
			run(tt.prepare)
		}
		stdout, stderr, code := p.checkWallet(tt.url)
		if code != 1 {
			t.Errorf("%s: exit code %d\n%s", tt.name, code, stdout)
		}
		wantOutput(t, stderr, tt.want...)
	}
	if stdout, _, code := p.checkWallet(own, "--json"); code != 1 || !strings.Contains(stdout, `"usable":false`) ||
		!strings.Contains(stdout, `"compared":true`) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
}

func TestWalletCheck_NoDatabase_FailsUnlessWalletOnly(t *testing.T) {
	t.Parallel()
	p, url := newProgram(t, ""), fakeMonero(t, currentWallet, rig.MoneroAddress(18, 0, 0))
	stdout, stderr, code := p.checkWallet(url)
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	wantOutput(t, stdout, "database", "not compared")
	wantOutput(t, stderr, "not compared with a database", "hint: ", "--wallet-only")
	stdout, stderr, code = p.checkWallet(url, "--wallet-only")
	if code != 0 || strings.Contains(stderr, "cardmint: ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	wantOutput(t, stdout, "not compared")
	if stdout, _, _ := p.checkWallet(url, "--wallet-only", "--json"); !strings.Contains(stdout, `"usable":true`) ||
		!strings.Contains(stdout, `"compared":false`) {
		t.Errorf("%s", stdout)
	}
}
