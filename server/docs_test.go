package server_test

import (
	"io"
	"net/http"
	"testing"
)

// The documentation needs no token. Its handler decides which pages exist.
func TestDocs_AreServed(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{docs: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "page "+r.URL.Path)
	})})
	for _, path := range []string{"/", "/docs", "/docs/", "/docs/errors", "/docs/assets/docs.css", "/docs.md", "/docs/errors.md", "/llms.txt"} {
		res, err := http.Get(d.web.URL + path)
		need(t, err)
		text, err := io.ReadAll(res.Body)
		need(t, err)
		need(t, res.Body.Close())
		equal(t, path, string(text), "page "+path)
		equal(t, path+": X-Content-Type-Options", res.Header.Get("X-Content-Type-Options"), "nosniff")
		res, err = http.Head(d.web.URL + path)
		need(t, err)
		need(t, res.Body.Close())
		equal(t, "HEAD "+path, res.StatusCode, http.StatusOK)
		res, err = http.Post(d.web.URL+path, "", nil)
		need(t, err)
		need(t, res.Body.Close())
		equal(t, "POST "+path, res.StatusCode, http.StatusMethodNotAllowed)
	}
	for _, path := range []string{"/doc", "/docsx", "/index.html"} {
		d.send(t, http.MethodGet, path, "", "").refused(t, http.StatusNotFound, "not_found")
	}
}
