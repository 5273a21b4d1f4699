package docs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cardmint/cardmint"
	"github.com/cardmint/cardmint/openapi"
)

// body returns the page at a path.
func body(t *testing.T, s *site, path string) string {
	t.Helper()
	w := get(s, path)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d", path, w.Code)
	}
	return w.Body.String()
}

func TestMenu_QuickStartIsFirst(t *testing.T) {
	page := body(t, open(t), "/docs")
	menu := page[strings.Index(page, `class="menu-group"`):]
	first := links.FindStringSubmatch(menu)
	if first == nil || first[1] != "/docs/quickstart" {
		t.Errorf("the menu begins with %v", first)
	}
}

func TestPages_LinkToPreviousAndNext(t *testing.T) {
	s := open(t)
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	for _, start := range []string{"/docs/quickstart", "/docs/operate"} {
		seen := []string{start}
		for {
			found := next.FindStringSubmatch(body(t, s, seen[len(seen)-1]))
			if found == nil {
				break
			}
			if slices.Contains(seen, found[1]) {
				t.Fatalf("%s leads back to %s", seen[len(seen)-1], found[1])
			}
			if !strings.Contains(body(t, s, found[1]), `rel="prev" href="`+seen[len(seen)-1]+`"`) {
				t.Errorf("%s does not lead back to %s", found[1], seen[len(seen)-1])
			}
			seen = append(seen, found[1])
		}
		if len(seen) < len(guides) {
			t.Errorf("only %d pages follow %s", len(seen), start)
		}
	}
}

// Each file of the operators' documentation is a page, with a place in the menu.
func TestOperate_ShowsAllPages(t *testing.T) {
	s := open(t)
	entry := body(t, s, "/docs/operate")
	files, err := cardmint.Docs.ReadDir("docs/operate")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".md") {
			continue
		}
		path := "/docs/operate/" + strings.TrimSuffix(file.Name(), ".md")
		if file.Name() == "README.md" {
			path = "/docs/operate"
		}
		if !strings.Contains(entry, `<li><a href="`+path+`"`) {
			t.Errorf("the menu does not list %s", path)
		}
		body(t, s, path)
	}
}

func TestOperate_ServesItsFiles(t *testing.T) {
	s := open(t)
	const path = "/docs/operate/alarms.rules.yaml"
	if w := get(s, path); !strings.Contains(w.Body.String(), "CardmintInstanceDown") ||
		w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%s: %d %v", path, w.Code, w.Header())
	}
	for page, to := range map[string]string{
		"/docs/operate/alarms":            path,
		"/docs/operate/suppliers":         "/docs/operate/supplier.yaml",
		"/docs/operate/high-availability": "/docs/operate/ha/patroni.yml",
	} {
		if !strings.Contains(body(t, s, page), `href="`+to+`"`) {
			t.Errorf("%s does not link to %s", page, to)
		}
		body(t, s, to)
	}
}

// Nothing is published yet, so a link to the repository leads nowhere.
func TestPages_DoNotNeedTheRepository(t *testing.T) {
	for path, text := range pages(open(t)) {
		for _, found := range links.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(found[1], "https://github.com/cardmint/") {
				t.Errorf("%s links to %s", path, found[1])
			}
		}
	}
}

func TestReference_ListsOperationsInTheContractsOrder(t *testing.T) {
	var listed, want []string
	for _, found := range regexp.MustCompile(`<section id="tag/\w+/(\w+)"`).FindAllStringSubmatch(body(t, open(t), reference), -1) {
		listed = append(listed, found[1])
	}
	for _, found := range regexp.MustCompile(`(?m)^      operationId: (\w+)$`).FindAllSubmatch(openapi.YAML, -1) {
		want = append(want, string(found[1]))
	}
	if len(want) < 15 || !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
}

func TestRender_ConsecutiveLanguages_BecomeTabs(t *testing.T) {
	p, err := render("docs/guides/x.md", []byte("# A\n\n```sh\ncurl x\n```\n\n```go\nx()\n```\n\ntext\n\n```sh\na\n```\n\n```sh\nb\n```\n"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	html := string(p.Content)
	if strings.Count(html, `<div class="tabs">`) != 1 || strings.Count(html, `<div class="tab">`) != 2 ||
		strings.Count(html, `<div class="code">`) != 2 {
		t.Error(html)
	}
	for _, label := range []string{`<p class="language">curl</p>`, `<p class="language">Go</p>`} {
		if !strings.Contains(html, label) {
			t.Errorf("no %s in %s", label, html)
		}
	}
}

func TestRender_HeadingsCellsAndLinks(t *testing.T) {
	source := "# A <b>\n\n## The & price\n\n| State | To do |\n|---|---|\n| `paid` | `read` it |\n\n" +
		"[x](payments.md#a) [y](../../openapi/supplier.yaml) [z](#the--price) `createCard`\n"
	p, err := render("docs/guides/x.md", []byte(source), map[string]string{"docs/guides/payments.md": "/docs/payments"},
		map[string]string{"createCard": "/docs/reference#createCard"})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`<h2 id="the--price">The &amp; price <a class="anchor" href="#the--price" aria-label="Link to “The &amp; price”">#</a></h2>`,
		`<td><code>paid</code></td>`,
		`<td data-label="To do"><code>read</code> it</td>`,
		`<a href="/docs/payments#a">x</a>`,
		`<a href="` + repository + `openapi/supplier.yaml">y</a>`,
		`<a href="#the--price">z</a>`,
		`<a href="/docs/reference#createCard"><code>createCard</code></a>`,
	} {
		if !strings.Contains(string(p.Content), part) {
			t.Errorf("no %s in\n%s", part, p.Content)
		}
	}
	if len(p.Contents) != 1 || p.Contents[0].ID != "the--price" || p.Contents[0].Title != "The & price" {
		t.Errorf("contents: %+v", p.Contents)
	}
}

func TestRender_Code_IsEscapedAndColored(t *testing.T) {
	html, err := highlight("go", "if a < b {} // <script>\n")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(html), `<span class="k">if</span>`) || strings.Contains(string(html), "<script>") ||
		!strings.Contains(string(html), "&lt;") {
		t.Error(html)
	}
	if html, err = highlight("", "a < b\n"); err != nil || !strings.Contains(string(html), "a &lt; b") {
		t.Error(html, err)
	}
}

func TestSearch_IndexLeadsToSectionsAndOperations(t *testing.T) {
	s := open(t)
	all := pages(s)
	var hits []hit
	if err := json.Unmarshal(get(s, "/docs/search.json").Body.Bytes(), &hits); err != nil {
		t.Fatal(err)
	}
	found := map[string]hit{}
	for _, h := range hits {
		path, anchor, _ := strings.Cut(h.Path, "#")
		if h.Title == "" || anchor != "" && !strings.Contains(all[path], ` id="`+anchor+`"`) || all[path] == "" {
			t.Errorf("%q leads to %s", h.Title, h.Path)
		}
		found[h.Path] = h
	}
	for path, word := range map[string]string{
		"/docs/reference#tag/Cards/createCard": "createCard POST /api/cards",
		"/docs/payments#refunds":               "refund_address",
		"/docs/errors#rate_limited":            "Retry-After",
		"/docs/operate/install":                "",
		"/docs/quickstart":                     "",
	} {
		if h, ok := found[path]; !ok || !strings.Contains(h.Text, word) {
			t.Errorf("%s: %+v", path, h)
		}
	}
}

func TestVendored_IsImmutableAndLicensed(t *testing.T) {
	s := open(t)
	files, err := vendored.ReadDir("vendored")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		name := file.Name()
		if strings.HasPrefix(name, "LICENSE") {
			continue
		}
		n++
		project, _, _ := strings.Cut(name, ".")
		project = project[:strings.LastIndex(project, "-")] // the version
		if !slices.ContainsFunc(files, func(f fs.DirEntry) bool { return strings.HasPrefix(f.Name(), "LICENSE-"+project+".") }) {
			t.Errorf("%s has no license", name)
		}
		path := "/docs/assets/" + strings.TrimSuffix(strings.Replace(name, ".gen.", ".", 1), ".gz")
		if w := get(s, path); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		if !strings.HasSuffix(name, ".gz") {
			continue
		}
		packed, _ := vendored.ReadFile("vendored/" + name)
		plain, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, plain); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 3 {
		t.Errorf("only %d files", n)
	}
}
