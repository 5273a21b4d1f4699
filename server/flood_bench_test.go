package server_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/limit"
)

// BenchmarkFlood measures how long one account waits for its card while another
// account floods createCard: not at all, at 1000 requests per second, as fast
// as possible over many connections, and at 1000 requests per second without
// limits. Run it with -benchtime 1x.
func BenchmarkFlood(b *testing.B) {
	ten := limit.Policy{Quota: 10, Window: time.Second}
	all := limit.Policy{Quota: 1000, Window: time.Second}
	limited := newFlooded(b, &limit.Config{Token: all, Account: all, Create: ten})
	open := newFlooded(b, &limit.Config{})
	steady, greedy := flood{connections: 10, perSecond: 1000}, flood{connections: 64}
	const turns = 10
	var alone, flooded, greedily, unlimited []time.Duration
	var refused, greedyRefused int64
	for range turns {
		alone = append(alone, limited.measure(b, flood{})...)
		flooded = append(flooded, limited.measure(b, steady)...)
		refused += limited.refused.Swap(0)
		greedily = append(greedily, limited.measure(b, greedy)...)
		greedyRefused += limited.refused.Swap(0)
		unlimited = append(unlimited, open.measure(b, steady)...)
	}
	report := func(name string, took []time.Duration) float64 {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99-"+name)
		median := float64(took[len(took)/2].Microseconds())
		b.ReportMetric(median, "µs-median-"+name)
		return median
	}
	quiet := report("alone", alone)
	b.ReportMetric(report("flooded", flooded)/quiet, "ratio(max:1.1)")
	b.ReportMetric(report("greedily", greedily)/quiet, "greedy-ratio(max:1.1)")
	report("unlimited", unlimited)
	b.ReportMetric(float64(refused)/turns, "refused/s")
	b.ReportMetric(float64(greedyRefused)/turns, "greedy-refused/s")
	b.ReportMetric(float64(open.sent.Load())/turns, "unlimited-flood/s")
	b.ReportMetric(0, "ns/op")
}

// flooded is a service with two accounts. One of them floods it.
type flooded struct {
	*deployment
	loud, quiet, card string
	sent, refused     *atomic.Int64 // by the loud one
}

func newFlooded(b *testing.B, requests *limit.Config) flooded {
	b.Helper()
	d := deploy(b, setup{requests: requests, pool: 50_000})
	f := flooded{deployment: d, loud: d.token(b), quiet: d.token(b), sent: &atomic.Int64{}, refused: &atomic.Int64{}}
	c, err := client.New(d.web.URL, f.quiet)
	need(b, err)
	made, err := c.CreateCard(b.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
	need(b, err)
	f.card = made.UUID.String()
	return f
}

// flood sends the requests of the loud account.
type flood struct {
	connections int // none for no flood
	perSecond   int // over all connections; 0 for the next request as soon as the last one is answered
}

// measure returns the durations of the quiet account's requests within a second
// of the flood.
func (f flooded) measure(b *testing.B, by flood) (took []time.Duration) {
	b.Helper()
	const second = time.Second
	transport := &http.Transport{MaxIdleConnsPerHost: by.connections + 1}
	defer transport.CloseIdleConnections()
	var flood sync.WaitGroup
	start := time.Now()
	for range by.connections {
		flood.Go(func() {
			next := func() {}
			if by.perSecond > 0 {
				tick := time.NewTicker(second * time.Duration(by.connections) / time.Duration(by.perSecond))
				defer tick.Stop()
				next = func() { <-tick.C }
			}
			for next(); time.Since(start) < second; next() {
				f.sent.Add(1)
				if f.request(b, transport, http.MethodPost, "/api/cards", f.loud, orderBody("50")) == http.StatusTooManyRequests {
					f.refused.Add(1)
				}
			}
		})
	}
	for time.Since(start) < second {
		begun := time.Now()
		if status := f.request(b, transport, http.MethodGet, "/api/cards/"+f.card, f.quiet, ""); status != http.StatusOK {
			b.Errorf("status %d", status)
		}
		took = append(took, time.Since(begun))
		time.Sleep(5 * time.Millisecond)
	}
	flood.Wait()
	return took
}

// request sends a request and returns the status of the response.
func (f flooded) request(b *testing.B, over http.RoundTripper, method, path, token, body string) int {
	r, err := http.NewRequestWithContext(b.Context(), method, f.web.URL+path, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return 0
	}
	setHeaders(r, token, body, nil)
	res, err := over.RoundTrip(r)
	if err != nil {
		b.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}
