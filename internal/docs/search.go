package docs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
)

// hit is an entry of the index that the pages search: a section of a page, or
// an operation.
type hit struct {
	Path  string `json:"path"`
	Page  string `json:"page"`
	Title string `json:"title"`
	Text  string `json:"text"`
}

// searchIndex returns the index of all pages and operations. The pages show equal
// hits in its order.
func searchIndex(tags []tag, pages []page) (*file, error) {
	var hits []hit
	for _, t := range tags {
		for _, o := range t.Operations {
			hits = append(hits, hit{reference + "#" + o.Anchor(), "API reference", o.Summary,
				o.ID + " " + o.Method + " " + o.Path + " " + flat(o.text)})
		}
	}
	for _, p := range pages {
		for _, s := range p.sections {
			h := hit{p.Path + "#" + s.ID, p.Title, s.Title, flat(s.text.String())}
			if s.Level == 1 {
				h.Path = p.Path
			}
			hits = append(hits, h)
		}
	}
	text, err := json.Marshal(hits)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	f := newFile("application/json", packed.Bytes())
	f.packed = true
	return f, nil
}

// flat returns text with single spaces.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }
