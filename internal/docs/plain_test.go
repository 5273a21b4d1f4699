package docs

import (
	"regexp"
	"strings"
	"testing"
)

// plainPages returns what is served as Markdown, by path.
func plainPages(s *site) map[string]string {
	all := map[string]string{}
	for path, f := range s.files {
		if strings.HasPrefix(f.kind, "text/markdown") {
			all[path] = string(f.text)
		}
	}
	return all
}

func TestPlain_EachPageIsMarkdown(t *testing.T) {
	s := open(t)
	for path := range pages(s) {
		if path == reference {
			continue
		}
		w := get(s, path+".md")
		if w.Code != 200 || w.Header().Get("Content-Type") != "text/markdown; charset=utf-8" ||
			!strings.HasPrefix(w.Body.String(), "# ") && !strings.HasPrefix(w.Body.String(), "<!--") {
			t.Errorf("%s.md: %d %v\n%.80s", path, w.Code, w.Header(), w.Body)
		}
		if html := get(s, path).Body.String(); !strings.Contains(html, `rel="alternate" href="`+path+`.md"`) {
			t.Errorf("%s does not name its Markdown", path)
		}
	}
}

func TestPlain_LinksResolve(t *testing.T) {
	s := open(t)
	all := plainPages(s)
	all["/llms.txt"] = string(s.files["/llms.txt"].text)
	html := pages(s)
	seen := 0
	for from, text := range all {
		for _, part := range regexp.MustCompile("(?s)```.*?```").Split(text, -1) {
			for _, found := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(part, -1) {
				path, anchor, _ := strings.Cut(found[1], "#")
				switch {
				case strings.HasPrefix(path, "https://"), strings.HasPrefix(path, "/openapi"):
					continue
				case path == "":
					path = from
				}
				seen++
				if s.files[path] == nil {
					t.Errorf("%s links to %s, which is not there", from, path)
				}
				if anchor != "" && !strings.Contains(html[strings.TrimSuffix(path, ".md")], ` id="`+anchor+`"`) {
					t.Errorf("%s links to %s, which has no anchor %s", from, path, anchor)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d links were looked at", seen)
	}
}

func TestPlain_ListsEachPage(t *testing.T) {
	s := open(t)
	w := get(s, "/llms.txt")
	text := w.Body.String()
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.HasPrefix(text, "# cardmint\n\n> cardmint sells prepaid cards for cryptocurrency.") {
		t.Errorf("%d %v\n%.200s", w.Code, w.Header(), text)
	}
	for path := range plainPages(s) {
		if n := strings.Count(text, "]("+path+")"); n != 1 {
			t.Errorf("%s is listed %d times", path, n)
		}
	}
	for _, document := range []string{"/openapi-3.1.yaml", "/openapi.yaml", "/openapi.json"} {
		if !strings.Contains(text, "]("+document+")") {
			t.Errorf("%s is not listed", document)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "- [") && !regexp.MustCompile(`\): \S.{5,}`).MatchString(line) {
			t.Errorf("not explained: %s", line)
		}
	}
}
