// Package internal_test tests the repository as a whole: its pages and its
// modules.
package internal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestREADME_NamedFiles_Exist(t *testing.T) {
	path := regexp.MustCompile("`((?:openapi|server|client|internal|cmd|tools|docs)(?:/[A-Za-z0-9_.-]+)+)`")
	n := 0
	for _, page := range []string{"README.md", "docs/CONTRIBUTING.md"} {
		for _, found := range path.FindAllStringSubmatch(text(t, page), -1) {
			n++
			if _, err := os.Stat(filepath.Join("..", found[1])); err != nil {
				t.Errorf("%s names %s: %v", page, found[1], err)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d names were found", n)
	}
}

// The README and the quick start show whole programs, which other tests run.
func TestREADME_Programs_AreTheTestedExamples(t *testing.T) {
	examples := map[string]string{
		"go": "client/examples/quickstart/main.go",
		"ts": "client/typescript/example/quickstart.ts",
	}
	for _, page := range []string{"README.md", "docs/guides/quickstart.md"} {
		for language, path := range examples {
			if !strings.Contains(text(t, page), "```"+language+"\n"+text(t, path)+"```\n") {
				t.Errorf("%s does not show %s", page, path)
			}
		}
	}
}

// text returns a file of the repository.
func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
