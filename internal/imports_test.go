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

// allowed says which of our packages each of them may import: every package may import card, card imports none of ours,
// adapters never import each other, cli wires.
var allowed = map[string][]string{
	"":                  {},
	"openapi":           {},
	"client":            {},
	"server":            {"internal/account", "internal/card", "internal/webhook", "openapi"},
	"cmd/cardmint":      {"internal/cli"},
	"internal/card":     {},
	"internal/account":  {"internal/card"},
	"internal/rig":      {},
	"internal/chain":    {"internal/card"},
	"internal/issue":    {"internal/card"},
	"internal/supplier": {"internal/card", "internal/issue"},
	"internal/rate":     {"internal/card"},
	"internal/store":    {"internal/account", "internal/card", "internal/issue", "internal/webhook"},
	"internal/vault":    {"internal/card"},
	"internal/watcher":  {"internal/card"},
	"internal/outbound": {},
	"internal/webhook":  {"internal/card", "internal/outbound"},
	"internal/cli": {"client", "internal/account", "internal/card", "internal/chain", "internal/issue", "internal/supplier", "internal/outbound", "internal/rate", "internal/store", "internal/vault",
		"internal/watcher", "internal/webhook", "server"},
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
		if name := entry.Name(); dir != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tools" || name == "node_modules") {
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
			if is && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s", name, ours)
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
