package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns every page with commands, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"README.md", "CHANGELOG.md", "client/README.md", "client/typescript/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/guides/*.md", "docs/operate/*.md", "docs/design/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		for _, path := range found {
			paths = append(paths, strings.TrimPrefix(path, "../../"))
		}
	}
	pages := map[string]string{}
	for _, path := range paths {
		if _, err := os.Stat("../../" + path); err == nil {
			pages[path] = page(t, path)
		}
	}
	return pages
}

var (
	fenced     = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")
	programRun = regexp.MustCompile(`(?m)(?:^|[|(;&])\s*(?:[A-Z_]+=\S+ )*(?:sudo )?(?:bin/)?(cardmint [a-z_-][^\n]*)`)
	commandEnd = regexp.MustCompile(`\s*(?:#.*|\)"?( .*)?|[|;<>&].*|\\)$`)
)

// commandLines returns the command lines of this program in the blocks of a
// page and in its text.
func commandLines(text string) (lines []string) {
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		for _, found := range programRun.FindAllStringSubmatch(strings.ReplaceAll(block[1], "\\\n", " "), -1) {
			lines = append(lines, commandEnd.ReplaceAllString(found[1], ""))
		}
	}
	for _, found := range regexp.MustCompile("`(cardmint [a-z][^`]*[^` ])`").FindAllStringSubmatch(text, -1) {
		lines = append(lines, found[1])
	}
	return lines
}

func TestDocuments_CommandLines_Parse(t *testing.T) {
	n := 0
	for path, text := range documents(t) {
		for _, line := range commandLines(text) {
			parses(t, path, line)
			n++
		}
	}
	if n < 60 {
		t.Errorf("only %d command lines were found", n)
	}
}

// Without the tag, the program is larger, and compiled again for the tests.
func TestDocuments_GoRunAndBuild_SetTag(t *testing.T) {
	for path, text := range documents(t) {
		for _, line := range regexp.MustCompile("go (?:run|build|install) [^\n`]*cmd/cardmint").FindAllString(text, -1) {
			if !strings.Contains(line, "-tags nomsgpack ") && !strings.Contains(line, "-tags=nomsgpack ") {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
}
