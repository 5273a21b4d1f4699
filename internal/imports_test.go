// Package internal_test holds the one test that belongs to no package.
package internal_test

import (
	"go/build"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cardmint/cardmint/"

// allowed says which of our packages each of them may import: card and limit
// import none of ours; an actor imports card, perhaps limit, and no other
// actor; an adapter or server imports card and the actors whose ports it
// implements or calls; outbound imports none of ours and serves whoever calls
// strangers; docs imports the root package for its guides; failpoint, panics
// and trace import none of ours and may be imported by every package; only otlp
// imports more of OpenTelemetry than trace does; only app and cli import adapters, and
// client/clienttest, which is a module of its own, for tests.
var allowed = map[string][]string{
	"":        {},
	"openapi": {},
	"client":  {},
	"server": {"internal/account", "internal/card", "internal/limit", "internal/order", "internal/webhook",
		"openapi"},
	"cmd/cardmint": {"internal/cli"},
	"client/clienttest": {"client", "internal/account", "internal/chain", "internal/chain/simulated", "internal/issue",
		"internal/order",
		"internal/outbound", "internal/rate", "internal/settle",
		"internal/store", "internal/supplier", "internal/vault", "internal/webhook", "server"},

	"internal/batch":         {},
	"internal/card":          {},
	"internal/clock":         {},
	"internal/docs":          {},
	"internal/failpoint":     {},
	"internal/otlp":          {},
	"internal/outbound":      {},
	"internal/panics":        {},
	"internal/rig":           {},
	"internal/rig/storetest": {"internal/chain", "internal/rig", "internal/store"},
	"internal/rig/vaulttest": {"internal/vault"},
	"internal/trace":         {},

	"internal/account":   {"internal/card"},
	"internal/issue":     {"internal/card"},
	"internal/keys":      {"internal/card"},
	"internal/limit":     {},
	"internal/operator":  {"internal/card"},
	"internal/order":     {"internal/card"},
	"internal/retention": {"internal/card"},
	"internal/settle":    {"internal/card"},
	"internal/webhook":   {"internal/card", "internal/limit", "internal/outbound"},

	// The registry of coins imports the package of each protocol. These share
	// driver, which they implement, and rpc.
	"internal/chain":           {"internal/card", "internal/chain/driver", "internal/chain/monero", "internal/chain/utxo"},
	"internal/chain/driver":    {"internal/card", "internal/settle"},
	"internal/chain/monero":    {"internal/card", "internal/chain/driver", "internal/chain/rpc", "internal/settle"},
	"internal/chain/rpc":       {"internal/card"},
	"internal/chain/simulated": {"internal/card", "internal/settle"},
	"internal/chain/utxo":      {"internal/card", "internal/chain/driver"},

	"internal/rate": {"internal/card", "internal/order"},
	"internal/store": {"internal/account", "internal/batch", "internal/card", "internal/issue", "internal/keys", "internal/operator",
		"internal/order", "internal/settle", "internal/store/postgres", "internal/store/sqlite", "internal/webhook"},
	"internal/store/postgres": {},
	"internal/store/sqlite":   {},
	"internal/supplier":       {"internal/card", "internal/issue"},
	// The reference server is no adapter: it is the other side of one, and
	// shares its signatures and its cards.
	"internal/supplier/reference": {"internal/card", "internal/supplier"},
	"internal/metrics":            {"internal/card", "internal/operator", "internal/settle", "internal/webhook"},
	"internal/vault": {"internal/account", "internal/card", "internal/issue", "internal/keys",
		"internal/order", "internal/webhook"},

	"internal/app": {"internal/account", "internal/card", "internal/chain", "internal/chain/driver",
		"internal/chain/simulated", "internal/clock", "internal/docs", "internal/issue", "internal/keys", "internal/limit",
		"internal/metrics", "internal/operator", "internal/order", "internal/otlp", "internal/outbound", "internal/rate",
		"internal/retention", "internal/settle", "internal/store", "internal/supplier", "internal/vault",
		"internal/webhook", "server"},
	"internal/cli": {"client", "internal/account", "internal/app", "internal/card", "internal/chain",
		"internal/chain/driver", "internal/issue", "internal/keys", "internal/limit", "internal/operator",
		"internal/outbound", "internal/rate", "internal/settle", "internal/store", "internal/supplier",
		"internal/supplier/reference", "internal/vault", "internal/webhook", "server"},
}

func TestImports_FollowTheRule(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = filepath.WalkDir(root, func(dir string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if name := entry.Name(); dir != root &&
			(strings.HasPrefix(name, ".") || name == "testdata" || name == "tools" || name == "examples" ||
				name == "node_modules") {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(dir, 0)
		if err != nil || len(p.GoFiles) == 0 {
			return nil // no Go package, or only its tests
		}
		relative, _ := filepath.Rel(root, dir)
		name := path.Clean(filepath.ToSlash(relative))
		if name == "." {
			name = ""
		}
		may, known := allowed[name]
		if !known {
			t.Errorf("package %s is not in the table: add it with what it may import", name)
			return nil
		}
		seen++
		for _, i := range p.Imports {
			ours, is := strings.CutPrefix(i, module)
			if is && !slices.Contains([]string{"internal/failpoint", "internal/panics", "internal/trace"}, ours) &&
				!slices.Contains(may, ours) {
				t.Errorf("%s imports %s", name, ours)
			}
			if strings.HasPrefix(i, "go.opentelemetry.io/") && name != "internal/otlp" &&
				(name != "internal/trace" || strings.Contains(i, "/sdk")) {
				t.Errorf("%s imports %s", name, i)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen != len(allowed) {
		t.Errorf("%d packages were found, the table has %d", seen, len(allowed))
	}
}
