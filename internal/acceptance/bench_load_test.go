package acceptance_test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load describes requests of one kind, sent on several connections at once.
type load struct {
	handler                   http.Handler
	method, path, token, body string
	paths                     []string // one for each connection, instead of path
	etag                      string   // sent in If-None-Match
	want                      int
	connections               int // 0 for the default
}

// alternate measures two loads in many short alternating turns. It returns the
// median requests per second of each, and the median ratio of the first to the
// second.
func alternate(b *testing.B, first, second load) (ours, theirs, ratio float64) {
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

// reportMaximum reports the request rate of a handler that does nothing: the
// most that this machine can reach.
func reportMaximum(b *testing.B, connections int) {
	b.Helper()
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	run := load{handler: nothing, method: "GET", path: "/", want: http.StatusNoContent, connections: connections}.start(b)
	run(time.Second)
	b.ReportMetric(run(time.Second), "most-req/s")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// start returns a function that sends requests for d and returns the number of
// responses per second. Clients use as little CPU as possible: each connection
// writes the same prepared request and reads the response before it writes the
// next.
func (l load) start(b *testing.B) func(time.Duration) float64 {
	b.Helper()
	web := httptest.NewServer(l.handler)
	b.Cleanup(web.Close)
	clients := make([]*loadClient, cmp.Or(l.connections, connections))
	for i := range clients {
		path := l.path
		if l.paths != nil {
			path = l.paths[i]
		}
		clients[i] = l.connect(b, web.URL+path)
	}
	return func(d time.Duration) float64 {
		var done, failed atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for _, c := range clients {
			all.Go(func() {
				for time.Since(start) < d {
					if status, err := c.send(); err != nil || status != l.want {
						failed.Add(1)
						return
					}
					done.Add(1)
				}
			})
		}
		all.Wait()
		if n := failed.Load(); n > 0 {
			b.Fatalf("%d of %d requests failed", n, n+done.Load())
		}
		return float64(done.Load()) / time.Since(start).Seconds()
	}
}

// loadClient sends the same request again and again on one connection.
type loadClient struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
}

func (l load) connect(b *testing.B, url string) *loadClient {
	b.Helper()
	r, err := http.NewRequest(l.method, url, strings.NewReader(l.body))
	must(b, err)
	r.Header.Set("Content-Type", "application/json")
	if l.token != "" {
		r.Header.Set("Authorization", "Bearer "+l.token)
	}
	if l.etag != "" {
		r.Header.Set("If-None-Match", l.etag)
	}
	var request bytes.Buffer
	must(b, r.Write(&request))
	conn, err := net.Dial("tcp", r.URL.Host)
	must(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return &loadClient{conn: conn, answers: bufio.NewReader(conn), request: request.Bytes()}
}

func (c *loadClient) send() (status int, err error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}
