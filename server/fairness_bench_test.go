package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// BenchmarkFairness measures the responses to one account while another account
// sends 64 concurrent recoveries of a webhook, and while it reads 32 lists
// slowly. Run it with -benchtime 1x.
func BenchmarkFairness(b *testing.B) {
	for name, database := range map[string]func() string{
		"sqlite":   func() string { return databases.SQLite(b) },
		"postgres": func() string { return databases.Postgres(b) },
	} {
		b.Run("recover/"+name, func(b *testing.B) { benchmarkRecover(b, database()) })
		b.Run("lists/"+name, func(b *testing.B) { benchmarkSlowLists(b, database()) })
	}
}

// outcomes are the responses to the quiet account.
type outcomes struct {
	good int
	took []time.Duration
}

func (o *outcomes) add(status int, took time.Duration) {
	if status == http.StatusOK {
		o.good++
	}
	o.took = append(o.took, took)
}

func (o *outcomes) report(b *testing.B) {
	b.Helper()
	slices.Sort(o.took)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(100*float64(o.good)/float64(len(o.took)), "%-served")
	b.ReportMetric(milliseconds(o.took[len(o.took)/2]), "ms-median")
	b.ReportMetric(milliseconds(o.took[len(o.took)-1]), "ms-max")
	b.ReportMetric(0, "ns/op")
}

func benchmarkRecover(b *testing.B, database string) {
	const events, recoveries, cancellations = 20_000, 64, 25
	h := deployHooks(b, setup{database: database})
	missed(b, h.deployment, h.account, events)
	one, _ := h.register(b, hookURL)
	quiet := h.deployment.token(b)
	cards := make([]string, cancellations)
	for i := range cards {
		cards[i] = h.send(b, http.MethodPost, "/api/cards", quiet, orderBody("50")).want(b,
			http.StatusCreated).header.Get("Location")
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range recoveries {
		all.Go(func() {
			a := h.send(b, http.MethodPost, one+"/recover?since=2020-01-01T00:00:00Z", h.token, "")
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	var got outcomes
	time.Sleep(50 * time.Millisecond) // until the recoveries have begun
	for _, c := range cards {
		began := time.Now()
		a := h.send(b, http.MethodPost, c+"/cancel", quiet, "")
		got.add(a.status, time.Since(began))
	}
	all.Wait()
	b.Log("recoveries by status: ", fmt.Sprint(statuses))
	got.report(b)
}

// missed inserts events without deliveries.
func missed(t testing.TB, d *deployment, account uuid.UUID, n int) {
	t.Helper()
	for ; n > 0; n -= 1000 {
		es := make([]card.Event, min(n, 1000))
		for i := range es {
			id := uuid.Must(uuid.NewV7())
			es[i] = card.Event{ID: id, AccountID: account, Type: card.EventFeedReset, Since: card.TimeOf(id),
				CreatedAt: card.TimeOf(id)}
		}
		need(t, d.store.WebhookTx(t.Context(), func(tx webhook.Tx) error { return tx.InsertEvents(t.Context(), es) }))
	}
}

func benchmarkSlowLists(b *testing.B, database string) {
	d := deploy(b, setup{database: database, pool: 1600})
	quiet := d.token(b)
	d.serve(b, http.MethodPost, "/api/cards", quiet, orderBody("50")).want(b, http.StatusCreated)
	refused, reading := slowLists(b, d, 1500)
	var got outcomes
	for range 25 {
		began := time.Now()
		a := d.send(b, http.MethodGet, "/api/cards", quiet, "")
		got.add(a.status, time.Since(began))
		time.Sleep(100 * time.Millisecond)
	}
	b.Logf("slow lists: %d begun, %d refused", len(reading), refused)
	got.report(b)
}
