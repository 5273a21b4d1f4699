package monero_test

import (
	"strings"
	"testing"
)

func TestChain_Inspect_WarnsOfOldVersions(t *testing.T) {
	const oldWallet, newWallet = `{"version":65561}`, `{"version":65564}` // 0.18.0 and 0.18.4
	for name, tc := range map[string]struct {
		node, wallet, fork string
		says               []string
	}{
		"oldest that is tested": {"0.18.0.0-release", oldWallet, `{"status":"OK","untrusted":false,"version":16}`,
			[]string{"monerod 0.18.0.0-release", "RPC 1.25"}},
		"last that is outdated": {"0.18.3.4", newWallet, `{"status":"OK","untrusted":false,"version":16}`,
			[]string{"monerod 0.18.3.4"}},
		"old wallet": {"0.18.5.3", `{"version":65563}`, `{"status":"OK","untrusted":false,"version":16}`,
			[]string{"RPC 1.27"}},
		"recommended":         {"0.18.4.0-unknown", newWallet, `{"status":"OK","untrusted":false,"version":16}`, nil},
		"next minor version":  {"0.19.0.0", `{"version":65600}`, `{"status":"OK","untrusted":false,"version":16}`, nil},
		"next major versions": {"1.0.0.0", `{"version":131072}`, `{"status":"OK","untrusted":false,"version":16}`, nil},
		"next hard fork": {"0.19.0.0", `{"version":65600}`, `{"status":"OK","untrusted":false,"version":17}`,
			[]string{"hard fork 17"}},
		"version not told":     {"", newWallet, `{"status":"OK","untrusted":false,"version":16}`, nil},
		"version not readable": {"master", newWallet, `{"status":"OK","untrusted":false,"version":16}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := newScript(t)
			s.set("get_info", info(map[string]any{"version": tc.node}))
			s.set("get_version", tc.wallet)
			s.set("hard_fork_info", tc.fork)
			report, err := m.Inspect(t.Context())
			if err != nil || report.DaemonVersion != tc.node || len(report.Warnings) != len(tc.says) {
				t.Fatalf("%v: %+v", err, report)
			}
			for i, want := range tc.says {
				if !strings.Contains(report.Warnings[i], want) {
					t.Errorf("warning %q does not say %q", report.Warnings[i], want)
				}
			}
		})
	}
}
