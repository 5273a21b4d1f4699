// Package docs serves the documentation: the Markdown guides, and a reference
// page of the contract.
//
// It may import the root package, which embeds the guides, and package openapi.
// Everything is rendered when the process starts. The pages load nothing from
// other hosts, and only the reference has a script.
package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/cardmint/cardmint"
)

//go:embed assets
var assets embed.FS

// guides are the pages under /docs, in the order of the menu.
var guides = []struct{ slug, file string }{
	{"", "docs/guides/index.md"},
	{"quickstart", "docs/guides/quickstart.md"},
	{"payments", "docs/guides/payments.md"},
	{"webhooks", "docs/guides/webhooks.md"},
	{"idempotency", "docs/guides/idempotency.md"},
	{"errors", "docs/guides/errors.md"},
	{"testing", "docs/guides/testing.md"},
	{"going-live", "docs/guides/going-live.md"},
	{"changelog", "CHANGELOG.md"},
}

const (
	root      = "/docs"
	reference = "/docs/reference"
	// policy allows only the server's own files. The style sheet of the
	// reference contains its icons as data URLs.
	policy = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// page is the data of the template.
type page struct {
	Title   string
	Path    string
	Menu    []entry
	Content template.HTML
	Token   string // offered by the reference to readers on this machine
}

type entry struct{ Path, Title string }

// site contains all files, by path.
type site struct {
	files     map[string]*file
	reference struct{ open, withToken *file }
	missing   *file
}

// New returns the handler of /docs/, and redirects / to it. The reference page
// offers token, unless it is "", to readers on this machine only. Operations in
// the guides become links to the reference page, which groups them by tag: tags
// maps each operationId to its tag.
func New(token string, tags map[string]string) (http.Handler, error) {
	s := &site{files: map[string]*file{}}
	if err := s.addAssets(); err != nil {
		return nil, fmt.Errorf("read documentation: %w", err)
	}
	layout, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, fmt.Errorf("read documentation: %w", err)
	}
	operations := operationPaths(tags)
	var pages []page
	for _, g := range guides {
		text, err := fs.ReadFile(cardmint.Docs, g.file)
		if err != nil {
			return nil, fmt.Errorf("read documentation: %w", err)
		}
		p, err := render(text, operations)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", g.file, err)
		}
		p.Path = strings.TrimSuffix(root+"/"+g.slug, "/")
		pages = append(pages, p)
	}
	var menu []entry
	for i, p := range pages {
		menu = append(menu, entry{p.Path, p.Title})
		if i == 0 {
			menu = append(menu, entry{reference, "API reference"})
		}
	}
	draw := func(p page) (*file, error) {
		var text bytes.Buffer
		p.Menu = menu
		err := layout.Execute(&text, p)
		return newFile("text/html; charset=utf-8", text.Bytes()), err
	}
	for _, p := range pages {
		if s.files[p.Path], err = draw(p); err != nil {
			return nil, err
		}
	}
	if s.reference.open, err = draw(page{Title: "API reference", Path: reference}); err != nil {
		return nil, err
	}
	s.reference.withToken = s.reference.open
	if token != "" {
		if s.reference.withToken, err = draw(page{Title: "API reference", Path: reference, Token: token}); err != nil {
			return nil, err
		}
	}
	s.missing, err = draw(
		page{Title: "Not found",
			Content: "<h1>Not found</h1><p>There is no page at this address. The menu lists those that there are.</p>"})
	return s, err
}

// addAssets adds the files that the pages load.
func (s *site) addAssets() error {
	own, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return err
	}
	for _, e := range own {
		if kind := kinds[path.Ext(e.Name())]; kind != "" {
			text, err := assets.ReadFile("assets/" + e.Name())
			if err != nil {
				return err
			}
			s.files[root+"/assets/"+e.Name()] = newFile(kind, text)
		}
	}
	return s.addSwaggerUI()
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml"}

// ServeHTTP serves GET and HEAD.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	if page := strings.TrimSuffix(r.URL.Path, "/"); page != r.URL.Path {
		switch {
		case page == "":
			http.Redirect(w, r, root, http.StatusFound)
			return
		case s.files[page] != nil || page == reference:
			http.Redirect(w, r, page, http.StatusFound)
			return
		}
	}
	f, status := s.files[r.URL.Path], http.StatusOK
	switch {
	case r.URL.Path == reference && ownMachine(r):
		f = s.reference.withToken
	case r.URL.Path == reference:
		f = s.reference.open
	case f == nil:
		f, status = s.missing, http.StatusNotFound
	}
	if f == s.reference.withToken && f != s.reference.open {
		h.Set("Cache-Control", "no-store")
	} else {
		h.Set("Cache-Control", "no-cache") // revalidate: the entity tag makes that cheap
	}
	f.serve(w, r, status)
}

// ownMachine reports whether a request comes from a browser on this machine. It
// checks the host name too: a page on another host can resolve its own name to
// this machine and read the response (DNS rebinding).
func ownMachine(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || r.Header.Get("X-Forwarded-For") != "" ||
		r.Header.Get("Forwarded") != "" {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// file is a served file.
type file struct {
	kind, tag string
	text      []byte
	packed    bool // text is compressed by gzip
}

func newFile(kind string, text []byte) *file {
	sum := sha256.Sum256(text)
	return &file{kind: kind, tag: base64.RawURLEncoding.EncodeToString(sum[:12]), text: text}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	if f.packed {
		h.Set("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			if text, err := gzip.NewReader(bytes.NewReader(f.text)); err == nil {
				_, _ = io.Copy(w, text)
			}
			return
		}
		h.Set("Content-Encoding", "gzip")
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
		_, _ = w.Write(f.text)
		return
	}
	h.Set("ETag", `"`+f.tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
}
