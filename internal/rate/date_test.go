package rate_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rate"
)

func TestLive_ClocksAhead_ComparesDates(t *testing.T) {
	for name, tt := range map[string]struct {
		header map[string]string
		ahead  time.Duration
		known  bool
	}{
		"the same":             {map[string]string{"Date": "now"}, 0, true},
		"two hours ahead":      {map[string]string{"Date": "later"}, -2 * time.Hour, true},
		"from a cache":         {map[string]string{"Date": "later", "Age": "7200"}, -4 * time.Hour, true},
		"an unreadable Age":    {map[string]string{"Date": "now", "Age": "x"}, 0, false},
		"an unreadable Date":   {map[string]string{"Date": "yesterday"}, 0, false},
		"without an HTTP date": {map[string]string{"Date": ""}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				times := map[string]time.Time{"now": time.Now(), "later": time.Now().Add(2 * time.Hour)}
				for key, value := range tt.header {
					if at, ok := times[value]; ok {
						value = at.UTC().Format(http.TimeFormat)
					}
					w.Header().Set(key, value)
				}
				w.WriteHeader(http.StatusServiceUnavailable) // its Date counts too
			}))
			defer web.Close()
			sources, err := rate.Sources([]string{"kraken"}, map[string]string{"kraken": web.URL},
				map[string]map[string]string{"monero": {"kraken": "XMRUSD"}})
			if err != nil {
				t.Fatal(err)
			}
			live, err := rate.New(sources, slog.New(slog.DiscardHandler), rate.Config{Coins: []string{"monero"}, Quorum: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got := live.ClocksAhead(time.Hour); len(got) != 0 {
				t.Errorf("before the first response: %v", got)
			}
			_ = live.Tick(t.Context())
			got, known := live.ClocksAhead(time.Hour)["kraken"]
			if known != tt.known || (got-tt.ahead).Abs() > 30*time.Second {
				t.Errorf("%s ahead, known: %v; want %s, %v", got, known, tt.ahead, tt.known)
			}
		})
	}
}
