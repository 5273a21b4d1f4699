package acceptance_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// BenchmarkIfNoneMatch compares conditional reads of unchanged cards with full
// reads.
func BenchmarkIfNoneMatch(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite:" + t.TempDir() + "/x.db" },
		"postgres": rig.Postgres,
	} {
		s := newBench(b, url(b), 200)
		unpaid, err := create(b.Context(), s.orders, s.account, "50")
		must(b, err)
		paid, err := create(b.Context(), s.orders, s.account, "150.50")
		must(b, err)
		_, err = s.chain.Pay(b.Context(), paid.Address, paid.Amount, paid.ConfirmationsRequired)
		must(b, err)
		must(b, s.watcher.Tick(b.Context()))
		must(b, s.issuer.Tick(b.Context()))
		for range 98 {
			_, err = create(b.Context(), s.orders, s.account, "50")
			must(b, err)
		}
		for what, path := range map[string]string{"unpaid": "/api/cards/" + unpaid.UUID.String(),
			"generated":   "/api/cards/" + paid.UUID.String(),
			"page of 100": "/api/cards?limit=100"} {
			b.Run(name+", "+what, func(b *testing.B) {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Authorization", "Bearer "+s.token)
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, r)
				again, full, ratio := alternate(b,
					load{handler: s.handler, method: "GET", path: path, token: s.token, etag: w.Header().Get("ETag"),
						want: http.StatusNotModified},
					load{handler: s.handler, method: "GET", path: path, token: s.token, want: http.StatusOK})
				b.ReportMetric(again, "unchanged-req/s")
				b.ReportMetric(full, "full-req/s")
				b.ReportMetric(ratio, "times-full")
				reportMaximum(b, connections)
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
