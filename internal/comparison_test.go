package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the comparison of clients says of ours is proved by tests and examples
// that exist: each row names at least one. What it says of others names what it
// rests on.
func TestComparison_IsProved(t *testing.T) {
	text, err := os.ReadFile("../docs/client-comparison.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := proofs(t)
	named := regexp.MustCompile("`(?:([\\w/]+)\\.)?((?:Test|Example)(?:[A-Z_]\\w*)?)`")
	says := regexp.MustCompile("`|\\*measured\\*|^none|^nothing|README")
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 5 || strings.TrimSpace(cells[1]) == "cardmint" {
			continue
		}
		rows++
		what := strings.TrimSpace(cells[0])
		if len(cells) != 5 {
			t.Errorf("%s: %d cells", what, len(cells))
		}
		found := named.FindAllStringSubmatch(cells[1], -1)
		if len(found) == 0 {
			t.Errorf("%s: nothing proves it", what)
		}
		for _, f := range found {
			if dir, known := exists[f[2]]; !known || f[1] != "" && dir != f[1] {
				t.Errorf("%s: there is no %s", what, f[0])
			}
		}
		for i, other := range cells[2:] {
			if !says.MatchString(other) {
				t.Errorf("%s: nothing is named in column %d", what, i+3)
			}
		}
	}
	if rows < 20 {
		t.Errorf("only %d rows were found", rows)
	}
}

// proofs returns the directories of the tests and examples of the client, and
// of those about its module, by name.
func proofs(t *testing.T) map[string]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\(`)
	all := map[string]string{}
	for _, root := range []string{"../client", "../internal/modules_test.go", "../tools/apidiff"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, f := range declared.FindAllStringSubmatch(string(source), -1) {
				if dir := filepath.Dir(strings.TrimPrefix(path, "../")); all[f[1]] == "" || f[1] == "Example" &&
					dir == "client/examples/otel" {
					all[f[1]] = dir
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
