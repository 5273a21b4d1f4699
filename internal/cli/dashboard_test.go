package cli

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboardQuery is a query of the shipped dashboard.
type dashboardQuery struct{ panel, expr, legend string }

func dashboardQueries(t *testing.T) []dashboardQuery {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(page(t, "docs/operate/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []dashboardQuery
	for i, p := range dashboard.Panels {
		if p.Title == "" || p.ID != i+1 || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %d, %q, is of type %q with %d queries", p.ID, p.Title, p.Type, len(p.Targets))
		}
		for _, q := range p.Targets {
			all = append(all, dashboardQuery{p.Title, q.Expr, q.LegendFormat})
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d queries", len(all))
	}
	return all
}

var (
	selectors = regexp.MustCompile(`\b(cardmint_[a-z_]+[a-z])(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	groupings = regexp.MustCompile(`\b(?:by|without|on|ignoring) \(([^)]*)\)`)
	legends   = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// The metrics and labels that the dashboard and the alarms use are exported,
// and the dashboard shows every exported metric.
func TestDashboard_Queries_CoverExportedMetrics(t *testing.T) {
	known, shown := exported(t), map[string]bool{}
	for _, r := range rules(t) {
		checkLabels(t, known, dashboardQuery{r.name, r.expr, ""})
	}
	for _, q := range dashboardQueries(t) {
		checkLabels(t, known, q)
		for _, s := range selectors.FindAllStringSubmatch(q.expr, -1) {
			shown[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(s[1], "")] = true
		}
	}
	for name := range known {
		if len(name) == len(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")) &&
			!shown[name] &&
			!slices.Contains([]string{"cardmint_chain_lag_blocks", "cardmint_db_connections_open", "cardmint_db_waits_total"},
				name) {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}

// checkLabels fails if a query names a metric, or a label of one, that is not
// exported.
func checkLabels(t *testing.T, known map[string][]string, q dashboardQuery) {
	t.Helper()
	labels := []string{"instance", "job", "alertname"} // added by Prometheus
	found := false
	for _, s := range selectors.FindAllStringSubmatch(q.expr, -1) {
		own, there := known[s[1]]
		if !there {
			t.Errorf("%s: %s is not exported", q.panel, s[1])
		}
		for _, m := range matchers.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(own, m[1]) && !slices.Contains(labels[:2], m[1]) {
				t.Errorf("%s: %s has no label %s", q.panel, s[1], m[1])
			}
		}
		labels, found = append(labels, own...), true
	}
	if !found { // other metrics
		return
	}
	var named []string
	for _, g := range groupings.FindAllStringSubmatch(q.expr, -1) {
		named = append(named, strings.Split(strings.ReplaceAll(g[1], " ", ""), ",")...)
	}
	for _, l := range legends.FindAllStringSubmatch(q.legend, -1) {
		named = append(named, l[1])
	}
	for _, name := range named {
		if !slices.Contains(labels, name) {
			t.Errorf("%s: %q has no label %s", q.panel, q.expr, name)
		}
	}
}
