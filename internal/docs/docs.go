// Package docs serves the documentation: the Markdown guides for integrators and
// for operators, a reference page of the contract, and a search.
//
// It may import the root package, which embeds the guides, and package openapi.
// Everything is rendered at the first request, which takes about half a second.
// The pages load nothing from other hosts, and are readable without their
// scripts.
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
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cardmint/cardmint"
)

//go:embed assets
var assets embed.FS

const (
	root      = "/docs"
	reference = "/docs/reference"
	operate   = "/docs/operate"
	// policy allows only the server's own files.
	policy = "default-src 'self'; script-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	// referencePolicy also allows the styles that the reference's script adds to
	// the page. It shows the contract only.
	referencePolicy = policy + "; style-src 'self' 'unsafe-inline'"
)

// page is the data of the template.
type page struct {
	Title          string
	Path           string
	Section        string // root, reference or operate
	Menu           []group
	Contents       []*heading
	Content        template.HTML
	Previous, Next *entry
	Tags           []tag  // of the reference
	Token          string // offered by the reference to readers on this machine

	sections []*heading
}

// site contains all files, by path.
type site struct {
	files     map[string]*file
	reference struct{ open, withToken *file }
	missing   *file
}

// New returns the handler of /docs/, and redirects / to it. The reference page
// offers token, unless it is "", to readers on this machine only.
func New(token string, contract *openapi3.T) http.Handler {
	render := sync.OnceValues(func() (*site, error) { return newSite(token, contract) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := render()
		if err != nil { // the pages are embedded, and tests render all of them
			http.Error(w, "the documentation can't be rendered: "+err.Error(), http.StatusInternalServerError)
			return
		}
		s.ServeHTTP(w, r)
	})
}

// newSite renders all pages. Operations in the guides become links to the
// reference page.
func newSite(token string, contract *openapi3.T) (*site, error) {
	s := &site{files: map[string]*file{}}
	if err := s.addAssets(); err != nil {
		return nil, fmt.Errorf("read documentation: %w", err)
	}
	layout, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, fmt.Errorf("read documentation: %w", err)
	}
	tags, err := contractTags(contract)
	if err != nil {
		return nil, fmt.Errorf("read contract: %w", err)
	}
	addresses, err := s.addFiles()
	if err != nil {
		return nil, fmt.Errorf("read documentation: %w", err)
	}
	pages, err := renderAll(tags, addresses)
	if err != nil {
		return nil, err
	}
	if s.files[root+"/search.json"], err = searchIndex(tags, pages); err != nil {
		return nil, err
	}
	draw := func(p page) *file {
		var text bytes.Buffer
		if e := layout.Execute(&text, p); e != nil {
			err = e
		}
		return newFile("text/html; charset=utf-8", text.Bytes())
	}
	for _, p := range pages {
		s.files[p.Path] = draw(p)
	}
	if err := s.addPlain(pages, addresses); err != nil {
		return nil, fmt.Errorf("read documentation: %w", err)
	}
	guides := pages[0].Menu
	about := page{Title: "API reference", Path: reference, Section: reference, Menu: guides, Tags: tags}
	s.reference.open = draw(about)
	s.reference.withToken = s.reference.open
	if token != "" {
		about.Token = token
		s.reference.withToken = draw(about)
	}
	s.missing = draw(page{Title: "Not found", Menu: guides,
		Content: "<h1>Not found</h1><p>There is no page at this address. The menu lists all pages, and the search finds what is on them.</p>"})
	return s, err
}

// renderAll renders the guides for integrators, then the operators' pages.
// files maps the files that they link to, except pages, to where the service
// shows them.
func renderAll(tags []tag, files map[string]string) ([]page, error) {
	operations := map[string]string{}
	for _, t := range tags {
		for _, o := range t.Operations {
			operations[o.ID] = reference + "#" + o.Anchor()
		}
	}
	addresses := maps.Clone(files)
	addresses["openapi/openapi.yaml"] = reference
	for _, g := range slices.Concat(guides, operatorGuides) {
		addresses[g.file] = g.path()
	}
	var all []page
	for _, section := range [][]guide{guides, operatorGuides} {
		var pages []page
		for _, g := range section {
			text, err := fs.ReadFile(cardmint.Docs, g.file)
			if err != nil {
				return nil, fmt.Errorf("read documentation: %w", err)
			}
			p, err := render(g.file, text, addresses, operations)
			if err != nil {
				return nil, fmt.Errorf("render %s: %w", g.file, err)
			}
			p.Path, p.Section = g.path(), root
			if strings.HasPrefix(g.slug, "operate") {
				p.Section = operate
			}
			pages = append(pages, p)
		}
		link(pages, menu(section, pages))
		all = append(all, pages...)
	}
	return all, nil
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
	return s.addVendored()
}

// supplierContract is the contract of suppliers, which the operators' pages
// link to.
const supplierContract = "openapi/supplier.yaml"

// addFiles adds the files that the operators' pages link to, such as the rules
// of the alarms, and returns their addresses.
func (s *site) addFiles() (map[string]string, error) {
	addresses := map[string]string{}
	add := func(name, address string) error {
		text, err := cardmint.Docs.ReadFile(name)
		s.files[address] = newFile("text/plain; charset=utf-8", text)
		addresses[name] = address
		return err
	}
	err := fs.WalkDir(cardmint.Docs, "docs/operate", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(name) == ".md" {
			return err
		}
		return add(name, "/"+name)
	})
	if err != nil {
		return nil, err
	}
	return addresses, add(supplierContract, operate+"/"+path.Base(supplierContract))
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8"}

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
	case r.URL.Path == reference:
		h.Set("Content-Security-Policy", referencePolicy)
		if f = s.reference.open; ownMachine(r) {
			f = s.reference.withToken
		}
	case f == nil:
		f, status = s.missing, http.StatusNotFound
	}
	switch {
	case f == s.reference.withToken && f != s.reference.open:
		h.Set("Cache-Control", "no-store")
	case f.immutable:
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	default:
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
	immutable bool // its path names its version
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
