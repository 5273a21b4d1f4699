package docs

import "strings"

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

// operatorGuides are the pages for operators, in the order of the menu.
var operatorGuides = []guide{
	{"Operate", "operate", "docs/operate/README.md"},
	{"Before you go live", "operate/install", "docs/operate/install.md"},
	{"Before you go live", "operate/first-wallet", "docs/operate/first-wallet.md"},
	{"Before you go live", "operate/alarms", "docs/operate/alarms.md"},
	{"Before you go live", "operate/restore", "docs/operate/restore.md"},
	{"Before you go live", "operate/going-live", "docs/operate/going-live.md"},
	{"When something is wrong", "operate/worker", "docs/operate/worker.md"},
	{"When something is wrong", "operate/money", "docs/operate/money.md"},
	{"When something is wrong", "operate/wallet-lost", "docs/operate/wallet-lost.md"},
	{"When something is wrong", "operate/split-brain", "docs/operate/split-brain.md"},
	{"When something is wrong", "operate/supply", "docs/operate/supply.md"},
	{"When something is wrong", "operate/rates", "docs/operate/rates.md"},
	{"When something is wrong", "operate/failover", "docs/operate/failover.md"},
	{"When something is wrong", "operate/disk-full", "docs/operate/disk-full.md"},
	{"When something is wrong", "operate/secrets", "docs/operate/secrets.md"},
	{"When something is wrong", "operate/overload", "docs/operate/overload.md"},
	{"Set up", "operate/reverse-proxy", "docs/operate/reverse-proxy.md"},
	{"Set up", "operate/suppliers", "docs/suppliers.md"},
	{"Set up", "operate/suppliers-stock", "docs/suppliers-stock.md"},
	{"Set up", "operate/suppliers-stripe", "docs/suppliers-stripe.md"},
	{"Set up", "operate/metrics", "docs/metrics.md"},
	{"Set up", "operate/logs", "docs/operate/logs.md"},
	{"Set up", "operate/traces", "docs/operate/traces.md"},
	{"Set up", "operate/high-availability", "docs/operate/high-availability.md"},
	{"Set up", "operate/backup-pgbackrest", "docs/operate/backup-pgbackrest.md"},
	{"Keep running", "operate/reconcile", "docs/operate/reconcile.md"},
	{"Keep running", "operate/keys", "docs/operate/keys.md"},
	{"Keep running", "operate/upgrade", "docs/operate/upgrade.md"},
	{"Keep running", "operate/capacity", "docs/operate/capacity.md"},
	{"Keep running", "operate/growth", "docs/operate/growth.md"},
	{"Understand", "operate/flags", "docs/flags.md"},
	{"Understand", "operate/security", "docs/operate/security.md"},
	{"Understand", "operate/reporting", "docs/SECURITY.md"},
	{"Understand", "operate/epochs", "docs/operate/epochs.md"},
	{"Understand", "operate/measurements", "docs/design/measurements.md"},
	{"Understand", "operate/sharding", "docs/design/sharding.md"},
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

// menu returns the menu of pages, in groups.
func menu(guides []guide, pages []page) []group {
	var all []group
	for i, g := range guides {
		if len(all) == 0 || all[len(all)-1].Title != g.group {
			all = append(all, group{Title: g.group})
		}
		last := &all[len(all)-1]
		last.Entries = append(last.Entries, entry{pages[i].Path, pages[i].Title})
	}
	return all
}

// link sets the menu of each page, and its previous and next page.
func link(pages []page, menu []group) {
	for i := range pages {
		pages[i].Menu = menu
		if i > 0 {
			pages[i].Previous = &entry{pages[i-1].Path, pages[i-1].Title}
			pages[i-1].Next = &entry{pages[i].Path, pages[i].Title}
		}
	}
}
