package acceptance_test

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// deliveryBench is the part of the service that sends webhooks, on PostgreSQL,
// with its loop.
type deliveryBench struct {
	db       *sql.DB
	store    *store.Store
	webhooks *webhook.Service
	woken    chan struct{}
}

func newDeliveryBench(b *testing.B, cfg webhook.Config) *deliveryBench {
	b.Helper()
	app.Tune()
	ctx, cancel := context.WithCancel(b.Context())
	url := rig.Postgres(b)
	s, v := openStore(b, url)
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: true})
	b.Cleanup(poster.Close)
	m := &deliveryBench{db: rig.OpenSQL(b, url), store: s, woken: make(chan struct{}, 1)}
	wake := func() {
		select {
		case m.woken <- struct{}{}:
		default:
		}
	}
	var err error
	m.webhooks, err = webhook.New(s, v, poster, wake, cfg)
	must(b, err)
	sender, err := webhook.NewSender(s, v, poster, wake, slog.Default(), cfg)
	must(b, err)
	var loop sync.WaitGroup
	loop.Go(func() { // the loop of serve
		for {
			if err := sender.Tick(ctx); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
			select {
			case <-ctx.Done():
				return
			case <-m.woken:
			case <-time.After(time.Second):
			}
		}
	})
	b.Cleanup(func() {
		cancel()
		loop.Wait()
		_ = sender.Close(context.Background())
	})
	return m
}

// account creates an account with a webhook.
func (m *deliveryBench) account(b *testing.B, url string) uuid.UUID {
	b.Helper()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: uuid.NewString(), CreatedAt: time.Now()}
	must(b, m.store.InsertAccount(b.Context(), a))
	_, _, err := m.webhooks.CreateWebhook(b.Context(), a.ID, webhook.Request{URL: &url})
	must(b, err)
	return a.ID
}

func (m *deliveryBench) exec(b *testing.B, statement string) {
	b.Helper()
	_, err := m.db.Exec(statement)
	must(b, err)
}

// commit commits n events of an account. They belong to no card.
func (m *deliveryBench) commit(b *testing.B, account uuid.UUID, n int) []card.Event {
	b.Helper()
	es := make([]card.Event, n)
	for i := range es {
		es[i] = card.ExampleEvent(uuid.Must(uuid.NewV7()), account, uuid.Must(uuid.NewV7()), card.EventWebhookDisabled)
	}
	must(b, m.store.WebhookTx(b.Context(), func(tx webhook.Tx) error { return tx.InsertEvents(b.Context(), es) }))
	return es
}

// concurrency is the most requests that a sender makes to one webhook at once.
const concurrency = 8

// BenchmarkDeliveries compares how fast due events are delivered and saved as
// delivered with bare posts of the same body on as many connections.
func BenchmarkDeliveries(b *testing.B) {
	const (
		webhooks    = 16
		connections = concurrency * webhooks
		each        = 3000 // events per turn and webhook
		turns       = 11
	)
	receivers := make([]string, webhooks)
	var arrived atomic.Int64
	for i := range receivers {
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			arrived.Add(1)
		}))
		b.Cleanup(receiver.Close)
		receivers[i] = receiver.URL
	}
	m := newDeliveryBench(b, webhook.Config{Rate: 1e6}) // no limit in practice
	accounts := make([]uuid.UUID, webhooks)
	for i := range accounts {
		accounts[i] = m.account(b, receivers[i])
	}
	body := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.Nil, uuid.Must(uuid.NewV7()),
		card.EventWebhookDisabled).Payload()
	transport := &http.Transport{MaxIdleConnsPerHost: connections / webhooks}
	b.Cleanup(transport.CloseIdleConnections)
	bare := func() float64 {
		var left atomic.Int64
		left.Store(webhooks * each)
		var all sync.WaitGroup
		start := time.Now()
		for i := range connections {
			all.Go(func() {
				c := http.Client{Transport: transport}
				for left.Add(-1) >= 0 {
					res, err := c.Post(receivers[i%webhooks], "application/json", bytes.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			})
		}
		all.Wait()
		return webhooks * each / time.Since(start).Seconds()
	}
	ours := func() float64 {
		// The queue is filled before the clock starts, because only sending is
		// measured.
		m.exec(b, "UPDATE webhooks SET paused_until = 9e15")
		for _, a := range accounts {
			m.commit(b, a, each)
		}
		start := time.Now()
		m.exec(b, "UPDATE webhooks SET paused_until = 0")
		m.wake()
		for first := arrived.Load(); arrived.Load() < first+webhooks*each; {
			time.Sleep(time.Millisecond)
		}
		// Wait until the deliveries are saved. The newest are saved last. A
		// query for all of them would slow down the sender.
		for left := true; left; {
			time.Sleep(5 * time.Millisecond)
			must(b, m.db.QueryRow(`SELECT EXISTS (SELECT 1 FROM webhooks w JOIN accounts a ON a.id = w.account_id
				JOIN deliveries d ON d.webhook_id = w.id AND d.seq = a.last_seq WHERE d.due_at IS NOT NULL)`).Scan(&left))
		}
		took := time.Since(start).Seconds()
		var left bool
		if must(b, m.db.QueryRow("SELECT EXISTS (SELECT 1 FROM deliveries WHERE due_at IS NOT NULL)").Scan(&left)); left {
			b.Fatal("a delivery is still due")
		}
		return webhooks * each / took
	}
	var sent, posts, ratios []float64
	for range turns {
		p, s := bare(), ours()
		posts, sent, ratios = append(posts, p), append(sent, s), append(ratios, s/p)
	}
	b.ReportMetric(median(sent), "deliveries/s")
	b.ReportMetric(median(posts), "bare-posts/s")
	b.ReportMetric(median(ratios), "of-bare(min:0.45)")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDeliveryLatency reports how long after its commit an event arrives
// for the first time.
func BenchmarkDeliveryLatency(b *testing.B) {
	at := make(chan time.Time, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { at <- time.Now() }))
	b.Cleanup(receiver.Close)
	m := newDeliveryBench(b, webhook.Config{})
	a := m.account(b, receiver.URL)
	var took []float64
	for range 300 {
		m.commit(b, a, 1)
		committed := time.Now()
		m.wake() // like Service after each commit with events
		took = append(took, float64((<-at).Sub(committed).Microseconds())/1000)
	}
	b.ReportMetric(median(took), "ms/median(max:50)")
	b.ReportMetric(took[len(took)*95/100], "ms/p95")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHangingReceiver reports the delivery time of events of 99 webhooks,
// while 10,000 events of another webhook wait for a receiver that accepts
// connections but never responds.
func BenchmarkHangingReceiver(b *testing.B) {
	release := make(chan struct{})
	var requests atomic.Int64
	dead := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	b.Cleanup(dead.Close)
	b.Cleanup(func() { close(release) })
	var mu sync.Mutex
	arrived := map[string]time.Time{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if id := r.Header.Get("webhook-id"); arrived[id].IsZero() {
			arrived[id] = time.Now()
		}
	}))
	b.Cleanup(receiver.Close)
	m := newDeliveryBench(b, webhook.Config{})
	hanging := m.account(b, dead.URL)
	others := make([]uuid.UUID, 99)
	for i := range others {
		others[i] = m.account(b, receiver.URL)
	}
	m.commit(b, hanging, 10_000)
	m.wake()
	await(b, time.Minute, "all requests to the hanging receiver", func() bool { return requests.Load() >= concurrency })
	committed := map[string]time.Time{}
	for range 20 {
		for _, a := range others {
			for _, e := range m.commit(b, a, 1) {
				committed[e.ID.String()] = time.Now()
			}
			m.wake()
		}
		m.commit(b, hanging, 10)
	}
	for {
		mu.Lock()
		n := len(arrived)
		mu.Unlock()
		if n == len(committed) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	var took []float64
	for id, at := range committed {
		took = append(took, arrived[id].Sub(at).Seconds())
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)*95/100]*1000, "ms/p95(max:2000)")
	b.ReportMetric(took[len(took)-1]*1000, "ms/longest")
	b.ReportMetric(float64(len(took)), "events")
	b.ReportMetric(0, "ns/op")
}

func (m *deliveryBench) wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}
