package cli_test

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is requests of one kind, from several connections at once.
type load struct {
	handler                   http.Handler
	method, path, token, body string
	paths                     []string // one for each connection, instead of path
	etag                      string   // that the client knows
	want                      int
	connections               int // 0 for the usual number
}

// inTurns returns requests per second of two loads, and how much of the second the first reaches: the medians of many short turns,
// in which they go first by turns too.
func inTurns(b *testing.B, first, second load) (ours, theirs, ratio float64) {
	b.Helper()
	const turns, turn = 30, 250 * time.Millisecond
	run := [2]func(time.Duration) float64{first.start(b), second.start(b)}
	for _, warm := range run {
		warm(time.Second)
	}
	var rates [2][]float64
	var ratios []float64
	for i := range turns {
		var got [2]float64
		for _, k := range [2]int{i % 2, 1 - i%2} {
			got[k] = run[k](turn)
			rates[k] = append(rates[k], got[k])
		}
		ratios = append(ratios, got[0]/got[1])
	}
	return median(rates[0]), median(rates[1]), median(ratios)
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func (l load) start(b *testing.B) func(time.Duration) float64 {
	b.Helper()
	web := httptest.NewServer(l.handler)
	b.Cleanup(web.Close)
	connections := cmp.Or(l.connections, connections)
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	b.Cleanup(transport.CloseIdleConnections)
	return func(d time.Duration) float64 {
		var done, failed atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for i := range connections {
			path := l.path
			if l.paths != nil {
				path = l.paths[i]
			}
			all.Go(func() {
				for time.Since(start) < d {
					r, _ := http.NewRequest(l.method, web.URL+path, strings.NewReader(l.body))
					r.Header.Set("Content-Type", "application/json")
					if l.token != "" {
						r.Header.Set("Authorization", "Bearer "+l.token)
					}
					if l.etag != "" {
						r.Header.Set("If-None-Match", l.etag)
					}
					response, err := transport.RoundTrip(r)
					if err != nil {
						failed.Add(1)
						continue
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					if response.StatusCode != l.want {
						failed.Add(1)
						continue
					}
					done.Add(1)
				}
			})
		}
		all.Wait()
		if n := failed.Load(); n > 0 {
			b.Errorf("%d of %d requests failed", n, n+done.Load())
		}
		return float64(done.Load()) / time.Since(start).Seconds()
	}
}
