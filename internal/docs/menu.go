package docs

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/cardmint/cardmint"
)

// guide is a Markdown file and its place under /docs.
type guide struct{ group, slug, file string }

// guides are the pages for integrators, in the order of the menu.
var guides = []guide{
	{"Start", "quickstart", "docs/guides/quickstart.md"},
	{"Start", "", "docs/guides/index.md"},
	{"Start", "testing", "docs/guides/testing.md"},
	{"Guides", "payments", "docs/guides/payments.md"},
	{"Guides", "webhooks", "docs/guides/webhooks.md"},
	{"Guides", "idempotency", "docs/guides/idempotency.md"},
	{"Guides", "errors", "docs/guides/errors.md"},
	{"Production", "going-live", "docs/guides/going-live.md"},
	{"Production", "changelog", "CHANGELOG.md"},
}

// settings are the pages for operators outside of docs/operate.
var settings = []guide{
	{"Settings", "operate/flags", "docs/flags.md"},
	{"Settings", "operate/metrics", "docs/metrics.md"},
	{"Settings", "operate/suppliers", "docs/suppliers.md"},
	{"Settings", "operate/suppliers-stock", "docs/suppliers-stock.md"},
	{"Settings", "operate/suppliers-stripe", "docs/suppliers-stripe.md"},
}

// operatorGuides returns the pages for operators: the entry page first.
func operatorGuides() ([]guide, error) {
	files, err := fs.Glob(cardmint.Docs, "docs/operate/*.md")
	if err != nil {
		return nil, err
	}
	all := []guide{{"Operate", "operate", "docs/operate/README.md"}}
	for _, file := range files {
		if file != all[0].file {
			all = append(all, guide{"Procedures", "operate/" + strings.TrimSuffix(path.Base(file), ".md"), file})
		}
	}
	return append(all, settings...), nil
}

// path returns where the service shows a guide.
func (g guide) path() string { return strings.TrimSuffix(root+"/"+g.slug, "/") }

// entry is a link to a page.
type entry struct{ Path, Title string }

// group is a part of the menu.
type group struct {
	Title   string
	Entries []entry
}

// menu returns the menu of pages, in groups. Procedures are sorted by title.
func menu(guides []guide, pages []page) []group {
	var all []group
	for i, g := range guides {
		if len(all) == 0 || all[len(all)-1].Title != g.group {
			all = append(all, group{Title: g.group})
		}
		last := &all[len(all)-1]
		last.Entries = append(last.Entries, entry{pages[i].Path, pages[i].Title})
	}
	for _, g := range all {
		if g.Title == "Procedures" {
			slices.SortFunc(g.Entries, func(a, b entry) int {
				return cmp.Compare(strings.ToLower(a.Title), strings.ToLower(b.Title))
			})
		}
	}
	return all
}

// link sets the previous and the next page of each page, in the menu's order.
func link(pages []page, menu []group) {
	var order []entry
	for _, g := range menu {
		order = append(order, g.Entries...)
	}
	for i := range pages {
		at := slices.IndexFunc(order, func(e entry) bool { return e.Path == pages[i].Path })
		pages[i].Menu = menu
		if at > 0 {
			pages[i].Previous = &order[at-1]
		}
		if at < len(order)-1 {
			pages[i].Next = &order[at+1]
		}
	}
}
