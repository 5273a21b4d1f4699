package docs

import (
	"go/format"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/openapi"
	"github.com/cardmint/cardmint/server"
)

const token = "cm_test_token"

// contract returns what the process gives New.
func contract(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := server.Contract()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// open returns the site of a service for development.
func open(t *testing.T) *site {
	t.Helper()
	s, err := newSite(token, contract(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// get asks a site as a browser on this machine would; change may change the
// request.
func get(s *site, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080"+path, nil)
	r.RemoteAddr = "127.0.0.1:50000"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestNew_ServesPages(t *testing.T) {
	w := httptest.NewRecorder()
	New("", contract(t)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/docs", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Overview") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestDocs_Root_Redirects(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := get(open(t), "/", func(r *http.Request) { r.Method = method })
		if w.Code != http.StatusFound || w.Header().Get("Location") != "/docs" {
			t.Errorf("%s /: %d %v", method, w.Code, w.Header())
		}
	}
}

// pages returns what is served as HTML, by path.
func pages(s *site) map[string]string {
	all := map[string]string{reference: string(s.reference.withToken.text)}
	for path, f := range s.files {
		if strings.HasPrefix(f.kind, "text/html") {
			all[path] = string(f.text)
		}
	}
	return all
}

var (
	links   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	loads   = regexp.MustCompile(`<(?:script|link|img|iframe|source|object|embed|use)[^>]*(?:href|src|data)="([^"]*)"`)
	urls    = regexp.MustCompile(`url\("([^"]*)"\)`)
	targets = regexp.MustCompile(` id="([^"]*)"`)
)

func TestDocs_LinksResolve(t *testing.T) {
	s := open(t)
	all := pages(s)
	if len(all) < 10 {
		t.Fatalf("only %d pages", len(all))
	}
	seen := 0
	for from, text := range all {
		for _, found := range links.FindAllStringSubmatch(text, -1) {
			to := html.UnescapeString(found[1])
			if strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "/openapi") {
				continue
			}
			seen++
			path, anchor, _ := strings.Cut(to, "#")
			if path == "" {
				path = from
			}
			if s.files[path] == nil && path != reference {
				t.Errorf("%s links to %s, which is not there", from, to)
			}
			if anchor != "" && path != reference && !strings.Contains(all[path], ` id="`+anchor+`"`) {
				t.Errorf("%s links to %s, which has no such anchor", from, to)
			}
		}
		ids := targets.FindAllString(text, -1)
		slices.Sort(ids)
		if n := len(ids); n != len(slices.Compact(ids)) {
			t.Errorf("%s has an id twice", from)
		}
	}
	if seen < 100 {
		t.Errorf("only %d links were looked at", seen)
	}
}

func TestDocs_LoadNothingFromOtherHosts(t *testing.T) {
	s := open(t)
	for path, text := range pages(s) {
		for _, found := range loads.FindAllStringSubmatch(text, -1) {
			if s.files[found[1]] == nil {
				t.Errorf("%s loads %s", path, found[1])
			}
		}
		for _, inline := range []string{"<style", " style=", "javascript:", " onclick=", "<script>"} {
			if strings.Contains(text, inline) {
				t.Errorf("%s contains %s", path, inline)
			}
		}
		w := get(s, path)
		p := w.Header().Get("Content-Security-Policy")
		if path == reference { // its script adds styles
			p = strings.Replace(p, "; style-src 'self' 'unsafe-inline'", "", 1)
		}
		if !strings.HasPrefix(p, "default-src 'self'; script-src 'self';") || strings.Contains(p, "unsafe") ||
			strings.Contains(p, "http") {
			t.Errorf("%s may load by its policy: %s", path, p)
		}
	}
	for path, f := range s.files {
		if !strings.HasSuffix(path, ".css") {
			continue
		}
		if strings.Contains(string(f.text), "@import") || strings.Count(string(f.text), "url(") != len(urls.FindAll(f.text, -1)) {
			t.Errorf("%s loads something", path)
		}
		for _, found := range urls.FindAllStringSubmatch(string(f.text), -1) {
			if s.files[root+"/assets/"+found[1]] == nil {
				t.Errorf("%s loads %s", path, found[1])
			}
		}
	}
}

func TestDocs_Token_OnlyOnThisMachine(t *testing.T) {
	s := open(t)
	for path := range pages(s) {
		w := get(s, path)
		if has := strings.Contains(w.Body.String(), token); has != (path == reference) {
			t.Errorf("%s shows the token: %t", path, has)
		}
	}
	w := get(s, reference)
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %s", got)
	}
	for name, change := range map[string]func(*http.Request){
		"another machine":       func(r *http.Request) { r.RemoteAddr = "192.0.2.7:50000" },
		"no address":            func(r *http.Request) { r.RemoteAddr = "@" },
		"another name for here": func(r *http.Request) { r.Host = "evil.example:8080" },
		"a name like ours":      func(r *http.Request) { r.Host = "localhost.evil.example" },
		"through a proxy":       func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") },
	} {
		if w := get(s, reference, change); w.Code != http.StatusOK || strings.Contains(w.Body.String(), token) ||
			w.Header().Get("Cache-Control") == "no-store" {
			t.Errorf("%s: %d, the page is that with the token", name, w.Code)
		}
	}
	for _, host := range []string{"127.0.0.1:8080", "[::1]:8080", "localhost"} {
		if w := get(s, reference, func(r *http.Request) { r.Host = host }); !strings.Contains(w.Body.String(), token) {
			t.Errorf("%s is not offered the token", host)
		}
	}
	none, err := newSite("", contract(t))
	if err != nil {
		t.Fatal(err)
	}
	if w := get(none, reference); strings.Contains(w.Body.String(), "cardmint-token") {
		t.Error("a token is offered where there is none")
	}
}

func TestDocs_ServesFiles(t *testing.T) {
	s := open(t)
	const bundle = "/docs/assets/scalar-1.72.1.js"
	plain := get(s, bundle)
	packed := get(s, bundle, func(r *http.Request) { r.Header.Set("Accept-Encoding", "br, gzip") })
	if !strings.Contains(plain.Body.String(), "createApiReference") || plain.Header().Get("Content-Encoding") != "" {
		t.Errorf("without compression: %v", plain.Header())
	}
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() >= plain.Body.Len() {
		t.Errorf("with compression: %v, %d bytes of %d", packed.Header(), packed.Body.Len(), plain.Body.Len())
	}
	tag := packed.Header().Get("ETag")
	again := get(s, bundle, func(r *http.Request) {
		r.Header.Set("Accept-Encoding", "gzip")
		r.Header.Set("If-None-Match", tag)
	})
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("the same again: %d", again.Code)
	}
	for _, path := range []string{"/docs/none", "/docs/none/", "/docs/assets/", "/docs/assets/page.html",
		"/docs/reference/x"} {
		if w := get(s, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestDocs_TrailingSlash_Redirects(t *testing.T) {
	s := open(t)
	for path, to := range map[string]string{"/": "/docs", "/docs/": "/docs", "/docs/errors/": "/docs/errors",
		"/docs/reference/": "/docs/reference", "/docs/operate/": "/docs/operate"} {
		if w := get(s, path); w.Code != http.StatusFound || w.Header().Get("Location") != to {
			t.Errorf("%s: %d, %s", path, w.Code, w.Header().Get("Location"))
		}
	}
}

// The guides explain everything that the contract lists.
func TestGuides_NameAllStatesEventsAndCodes(t *testing.T) {
	s := open(t)
	text := func(path string) string { return string(s.files[path].text) }
	for _, state := range card.PaymentStates() {
		if !strings.Contains(text("/docs/payments"), "<td><code>"+string(state)+"</code></td>") {
			t.Errorf("payments: no row for %s", state)
		}
		if !strings.Contains(text("/docs/payments"), ">"+string(state)+"</text>") {
			t.Errorf("payments: %s is not in the drawing", state)
		}
	}
	doc, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range doc.Components.Schemas["EventType"].Value.Enum {
		if !strings.Contains(text("/docs/webhooks"), "<td><code>"+kind.(string)+"</code></td>") {
			t.Errorf("webhooks: no row for %s", kind)
		}
	}
	for _, e := range card.PublicErrors() {
		if !strings.Contains(text("/docs/errors"), `<h2 id="`+e.Code+`">`) {
			t.Errorf("errors: no anchor for %s", e.Code)
		}
	}
}

// A word that looks like an operation, but does not exist, was probably
// renamed.
func TestGuides_NameExistingOperations(t *testing.T) {
	operations := map[string]bool{}
	for _, item := range contract(t).Paths.Map() {
		for _, o := range item.Operations() {
			operations[o.OperationID] = true
		}
	}
	for _, g := range guides {
		if g.file == "CHANGELOG.md" {
			continue
		}
		file, err := os.Open("../../" + g.file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(
			"`((?:create|get|list|reveal|update|delete|rotate|test|recover|simulate)[A-Z]\\w*)`").FindAllStringSubmatch(
			string(text), -1) {
			if !operations[found[1]] {
				t.Errorf("%s names %s", g.file, found[1])
			}
		}
	}
}

func TestGuides_GoCodeCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	n := 0
	for _, g := range guides {
		text, err := os.ReadFile("../../" + g.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1) {
			n++
			if tidy, err := format.Source(found[1]); err != nil || string(tidy) != string(found[1]) {
				t.Errorf("%s: not formatted, or not Go: %v", g.file, err)
			}
			program := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(program, found[1], 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("go", "vet", program).CombinedOutput(); err != nil {
				t.Errorf("%s: %s", g.file, out)
			}
		}
	}
	if n < 2 {
		t.Errorf("only %d programs were found", n)
	}
}
