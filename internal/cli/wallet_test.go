package cli_test

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

// oldMonero plays a node and a wallet of 0.18.0, at block 100.
func oldMonero(t *testing.T) string {
	t.Helper()
	answers := map[string]string{
		"get_info":              `{"busy_syncing":false,"height":101,"nettype":"mainnet","offline":false,"status":"OK","synchronized":true,"untrusted":false,"version":"0.18.0.0-release"}`,
		"get_last_block_header": `{"block_header":{"hash":"` + strings.Repeat("a", 64) + `","height":100,"timestamp":1700000000},"status":"OK","untrusted":false}`,
		"hard_fork_info":        `{"status":"OK","untrusted":false,"version":16}`,
		"get_version":           `{"version":65561}`,
		"get_address":           `{"address":"` + rig.MoneroAddress(18, 0, 0) + `","addresses":[{"address_index":0}]}`,
		"get_height":            `{"height":101}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&request)
		answer := `"result":` + answers[request.Method]
		if request.Method == "sign_transfer" {
			answer = `"error":{"code":-29,"message":"command not supported by watch-only wallet"}`
		}
		_, _ = fmt.Fprintf(w, `{"id":%s,"jsonrpc":"2.0",%s}`, request.ID, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWalletCheck_PrintsVersionsAndWarnsOfOldOnes(t *testing.T) {
	t.Parallel()
	p, url := newProgram(t, ""), oldMonero(t)
	got := p.must(t, "wallet", "check", "--monero-daemon-url", url, "--monero-wallet-url", url)
	for _, want := range []string{"version 0.18.0.0-release, block 100", "RPC 1.25, block 100", "warning", "monerod 0.18.0.0-release is outdated",
		"monero-wallet-rpc is outdated, its version is RPC 1.25: upgrade to 0.18.4 (RPC 1.28) or newer"} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
}

func TestServe_LogsThatNodeAndWalletAreOld(t *testing.T) {
	t.Parallel()
	p, url := newProgram(t, ""), oldMonero(t)
	p.must(t, "keys", "create")
	cmd := exec.Command(p.path, "serve", "--listen", "127.0.0.1:0", "--rate", "monero=150", "--monero-daemon-url", url, "--monero-wallet-url", url)
	cmd.Env = p.env
	s := rig.Start(t, cmd)
	s.Ready(t, 30*time.Second, func() error {
		if strings.Count(s.Output(), "outdated") < 2 {
			return errors.New("no warning yet")
		}
		return nil
	})
}
