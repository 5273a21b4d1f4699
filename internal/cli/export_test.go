package cli

import "testing"

// DashboardQueries returns the queries of the dashboard, by panel.
func DashboardQueries(t *testing.T) (panels, queries []string) {
	for _, q := range dashboardQueries(t) {
		panels, queries = append(panels, q.panel), append(queries, q.expr)
	}
	return panels, queries
}
