//go:build linux && drill

package acceptance_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// haService is three replicas on a cluster, with the workload and the supplier
// of TestChaos, and probes that order several cards per second from each
// replica.
type haService struct {
	*chaos
	cluster *haCluster
	metrics [replicas]string

	stop     context.CancelFunc
	watching sync.WaitGroup
	mu       sync.Mutex
	acks     [replicas][]time.Time // times of acknowledged orders
	samples  [replicas][]sample
}

// sample is the readiness and metrics of a replica at one time.
type sample struct {
	at      time.Time
	ready   bool
	values  map[string]float64 // metrics, summed over their labels
	scraped bool
}

// newHAService recreates the cluster's database and starts a service on it that
// connects with url.
func newHAService(t *testing.T, h *haCluster, url string) *haService {
	t.Helper()
	h.leader().Run(t,
		"runuser -u postgres -- dropdb --if-exists --force cardmint; runuser -u postgres -- createdb --owner cardmint cardmint")
	seed := rand.Uint64()
	s := &haService{cluster: h,
		chaos: &chaos{t: t, random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{},
			recovery: map[string]time.Duration{}}}
	s.externalDB = externalDatabase(h.documentedURL())
	s.program = newProgram(t, url)
	token := s.program.account(t)
	var urls []string
	for i := range s.replicas {
		address := fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
		s.replicas[i] = &replica{url: "http://" + address,
			log: filepath.Join(t.ArtifactDir(), fmt.Sprintf("replica-%d.log", i))}
		urls = append(urls, s.replicas[i].url)
	}
	s.openSupplier()
	for i, r := range s.replicas {
		s.metrics[i] = fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
		r.args = []string{"serve", "--simulated", "--rate", "monero=150", "--address-pool", "500", "--address-rate", "100",
			"--listen", strings.TrimPrefix(r.url, "http://"), "--metrics-listen", s.metrics[i],
			"--webhook-insecure", "--webhook-timeout", "2s", "--suppliers", s.supplier.config}
		s.start(i)
	}
	t.Cleanup(s.chaos.logReplicas)
	s.awaitReady()
	s.workload = startWorkload(t, urls, token, seed, nil)
	s.watch(t)
	return s
}

// watch starts the probes, and samples readiness and metrics until the service
// ends.
func (s *haService) watch(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	for i, r := range s.replicas {
		c, err := client.New(r.url, s.workload.token, client.WithRetry(1, 0), client.WithAttemptTimeout(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s.workload.buyers.Go(func() { s.probe(ctx, i, c) })
		}
		s.watching.Go(func() {
			for ctx.Err() == nil {
				s.recordSample(i)
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		s.watching.Wait()
	})
}

// probe orders cards from one replica, and never pays for them.
func (s *haService) probe(ctx context.Context, i int, c *client.Client) {
	for s.workload.pause(ctx, 500*time.Millisecond) {
		select {
		case <-s.workload.closing:
			return
		default:
		}
		b := s.workload.newOrder()
		for {
			sent := time.Now()
			card, err := c.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(b.usd), Currency: "monero"},
				client.WithIdempotencyKey(b.key))
			if !s.workload.failed(ctx, err, b.key) {
				s.workload.acknowledge(b, card, sent)
				s.mu.Lock()
				s.acks[i] = append(s.acks[i], time.Now())
				s.mu.Unlock()
				break
			}
			if !s.workload.pause(ctx, 200*time.Millisecond) {
				return
			}
		}
	}
}

var probeClient = &http.Client{Timeout: 3 * time.Second}

// recordSample samples readiness and metrics of one replica.
func (s *haService) recordSample(i int) {
	now := sample{at: time.Now(), values: map[string]float64{}}
	if res, err := probeClient.Get(s.replicas[i].url + "/readyz"); err == nil {
		_ = res.Body.Close()
		now.ready = res.StatusCode == http.StatusOK
	}
	if res, err := probeClient.Get("http://" + s.metrics[i] + "/metrics"); err == nil {
		now.scraped = res.StatusCode == http.StatusOK
		sumMetrics(res.Body, now.values)
		_ = res.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples[i] = append(s.samples[i], now)
}

// sumMetrics adds up metrics over their labels. "refusals" counts responses
// with status 503.
func sumMetrics(text io.Reader, into map[string]float64) {
	for lines := bufio.NewScanner(text); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, labels, _ := strings.Cut(name, "{")
		if !strings.HasPrefix(name, "cardmint_") {
			continue
		}
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			into[name] += number
			if name == "cardmint_requests_total" && strings.Contains(labels, `status="503"`) {
				into["refusals"] += number
			}
		}
	}
}

// longestGap returns the longest time between two acknowledged orders of a
// replica that ended after from.
func (s *haService) longestGap(from time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, acks := range s.acks {
		acks = slices.SortedFunc(slices.Values(acks), time.Time.Compare)
		for i := 1; i < len(acks); i++ {
			if acks[i].After(from) {
				longest = max(longest, acks[i].Sub(acks[i-1]))
			}
		}
	}
	return longest
}

// awaitSales waits until each replica has sold a card after since.
func (s *haService) awaitSales(since time.Time, limit time.Duration) {
	s.t.Helper()
	for ; ; time.Sleep(50 * time.Millisecond) {
		sell := 0
		s.mu.Lock()
		for _, acks := range s.acks {
			if n := len(acks); n > 0 && acks[n-1].After(since) {
				sell++
			}
		}
		s.mu.Unlock()
		if sell == replicas {
			return
		}
		if time.Since(since) > limit {
			s.t.Fatalf("only %d of %d processes sold a card within %s", sell, replicas, limit)
		}
	}
}

// finish stops the workload and verifies the result.
func (s *haService) finish() {
	s.t.Helper()
	s.awaitReady()
	s.workload.finish(s.t)
	s.stop()
	s.watching.Wait()
	if !s.t.Failed() {
		s.verify()
	}
	s.workload.report(s.t)
	for _, r := range s.replicas {
		r.Kill()
	}
	s.supplier.Kill()
}

// externalDatabase is the URL of a database that the test did not start.
type externalDatabase string

func (r externalDatabase) URL(string) string { return string(r) }

func (r externalDatabase) Exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	if _, err := rig.OpenSQL(tb, string(r)).Exec(statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func (r externalDatabase) Value(tb testing.TB, query string, args ...any) (value string) {
	tb.Helper()
	if err := rig.OpenSQL(tb, string(r)).QueryRow(query, args...).Scan(&value); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return value
}
