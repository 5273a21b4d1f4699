// Package metrics counts events in a process, and serves the counts to
// Prometheus.
//
// It may import package card and the actors whose ports it implements. Actors do
// not import it: they declare the functions that they call. It stores nothing: a
// crash loses the counts of the process. No label contains a card, a token, an
// account or an address, and the number of values of every label is bounded. An
// unknown value is absent, never 0.
package metrics

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/webhook"
)

const (
	maxScrapes    = 4 // concurrent
	scrapeTimeout = 10 * time.Second
	none          = "none" // unknown label value
)

// Metrics are the metrics of one process. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	statuses [600]string // by HTTP status

	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	shed     *prometheus.CounterVec
	changed  prometheus.Counter

	leading   *prometheus.GaugeVec
	trouble   *prometheus.GaugeVec
	passes    *prometheus.CounterVec
	pass      *prometheus.HistogramVec
	lastPass  *prometheus.GaugeVec
	tip       *prometheus.GaugeVec
	height    *prometheus.GaugeVec
	behind    *prometheus.GaugeVec
	transfers *prometheus.CounterVec

	calls    *prometheus.CounterVec
	call     *prometheus.HistogramVec
	issued   prometheus.Histogram
	attempts *prometheus.CounterVec
	attempt  prometheus.Histogram
	lowStock *prometheus.GaugeVec
	ahead    *prometheus.GaugeVec
	wrong    *prometheus.GaugeVec
	doubts   *prometheus.GaugeVec
	booksAt  *prometheus.GaugeVec
	keyFile  *prometheus.GaugeVec
}

// New returns the metrics of a process with the given version.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	for status := range m.statuses {
		m.statuses[status] = strconv.Itoa(status)
	}
	m.addRequests()
	m.addChains()
	m.addIssuing()
	m.addBooks()
	m.ahead = m.gauge("cardmint_clock_ahead_seconds",
		"This machine's clock minus another one. A block's time may be two hours off.", "other")
	m.wrong = m.gauge("cardmint_clock_wrong",
		"1 if this machine's clock is minutes off from other clocks, 0 otherwise.")
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "cardmint_panics_total",
		Help: "Recovered panics. Each is a bug in cardmint, or an unusable row."},
		func() float64 { return float64(panics.Recovered()) }))
	build := m.gauge("cardmint_build_info",
		"Always 1. The labels are the versions of cardmint and of the Go that built it.", "version",
		"go_version")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) addRequests() {
	m.requests = m.counter("cardmint_requests_total",
		"API requests by operationId and status. The operation none means that no operation matched.",
		"operation", "status")
	m.inFlight = m.gauge("cardmint_requests_in_flight",
		"Requests in progress, including event streams.").WithLabelValues()
	m.duration = m.histogram("cardmint_request_duration_seconds",
		"Request duration by operation. Event streams and long polls include waiting; refusals exclude their delay.",
		quick(), "operation")
	m.refused = m.counter("cardmint_requests_refused_total",
		"Requests refused by a limit: token, account, create or address.", "limit")
	for _, kind := range []string{"token", "account", "create", "address"} {
		m.refused.WithLabelValues(kind)
	}
	m.shed = m.counter("cardmint_requests_shed_total",
		"Requests refused because too many of their kind were in progress: create, read, manage, bulk or authenticate.",
		"kind")
	for _, kind := range []string{"create", "read", "manage", "authenticate"} {
		m.shed.WithLabelValues(kind)
	}
	m.changed = m.counter("cardmint_tokens_changed_total",
		"Token lookups refused because the row was changed without the keys.").WithLabelValues()
}

func (m *Metrics) addChains() {
	m.leading = m.gauge("cardmint_chain_leading", "1 if this process watches the chain, 0 if it stands by.", "coin")
	m.trouble = m.gauge("cardmint_chain_trouble",
		"1 while passes over the chain fail, with the cause as label. Absent otherwise.", "coin", "cause")
	m.passes = m.counter("cardmint_chain_passes_total", "Passes over the chain, by outcome: ok or failed.", "coin",
		"outcome")
	m.pass = m.histogram("cardmint_chain_pass_duration_seconds",
		"Duration of passes over the chain, failed ones included.", slow(), "coin")
	m.lastPass = m.gauge("cardmint_chain_last_good_pass_timestamp_seconds",
		"End of this process's last successful pass.", "coin")
	m.tip = m.gauge("cardmint_chain_tip_timestamp_seconds",
		"Time of the newest applied block, by its miner. Its age is the lag in seconds.", "coin")
	m.height = m.gauge("cardmint_chain_height_blocks", "Height of the newest applied block.", "coin")
	m.behind = m.gauge("cardmint_chain_lag_blocks",
		"New blocks in the last applied pass: how far behind the database was.", "coin")
	m.transfers = m.counter("cardmint_chain_transfers_total", "New, changed and vanished transfers found by passes.",
		"coin")
}

func (m *Metrics) addIssuing() {
	m.calls = m.counter("cardmint_supplier_calls_total",
		"Supplier calls by call (submit or lookup) and outcome: issued, pending, declined, unknown, busy, or error for unclear answers.", "supplier", "call", "outcome")
	m.call = m.histogram("cardmint_supplier_call_duration_seconds", "Duration of supplier calls.", quick(),
		"supplier", "call")
	m.issued = m.histogram("cardmint_issue_duration_seconds",
		"Time from the pass that found a payment confirmed until its card was issued, by the clocks of the database and this process.", slow()).
		WithLabelValues().(prometheus.Histogram)
	m.attempts = m.counter("cardmint_webhook_attempts_total",
		"Attempts to deliver an event, by outcome: delivered, refused (not 2xx), overloaded (408, 429 or 5xx), gone (410) or unreachable (no answer).", "outcome")
	for _, outcome := range []string{"delivered", "refused", "overloaded", "gone", "unreachable"} {
		m.attempts.WithLabelValues(outcome)
	}
	m.attempt = m.histogram("cardmint_webhook_attempt_duration_seconds", "Duration of attempts to deliver an event.",
		quick()).WithLabelValues().(prometheus.Histogram)
}

func (m *Metrics) addBooks() {
	m.lowStock = m.gauge("cardmint_stock_low_cards",
		"Configured number of cards per amount below which a supplier's stock is low.", "supplier")
	m.keyFile = m.gauge("cardmint_key_file_usable",
		"1 if this process's key file was usable when last read. 0 if it is lost or damaged: the process can't be restarted.")
	m.doubts = m.gauge("cardmint_reconcile_doubts",
		"Doubts in the last reading of the books, at most 20 of a kind. Absent unless this process reads them.")
	m.booksAt = m.gauge("cardmint_reconcile_timestamp_seconds",
		"Time of the last reading of the books, by the database's clock. Absent unless this process reads them.")
}

// collect registers a collector. The registry runs collectors in its own
// goroutines, where a panic would end the process.
func (m *Metrics) collect(c prometheus.Collector) { m.registry.MustRegister(guarded{c}) }

// guarded is a collector whose panics are errors.
type guarded struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (g guarded) Collect(to chan<- prometheus.Metric) {
	err := panics.Call(func() error { g.Collector.Collect(to); return nil })
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err) // the handler logs it
	}
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// histogram returns a histogram with classic buckets, and with native ones for
// servers that request them.
func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour},
		labels)
	m.registry.MustRegister(v)
	return v
}

// quick returns buckets, in seconds, for durations of milliseconds.
func quick() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
}

// slow returns buckets, in seconds, for durations of seconds or longer.
func slow() []float64 {
	return []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}
}

// Handler serves the metrics at /metrics. It omits metrics that can't be read.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout, EnableOpenMetrics: true}))
	return mux
}

// Started implements server.Metrics.
func (m *Metrics) Started() { m.inFlight.Inc() }

// Ended implements server.Metrics.
func (m *Metrics) Ended(operation string, status int, took time.Duration) {
	text := none
	if status >= 100 && status < len(m.statuses) {
		text = m.statuses[status]
	}
	m.inFlight.Dec()
	m.requests.WithLabelValues(operation, text).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
}

// Limited implements server.Metrics.
func (m *Metrics) Limited(limit string) { m.refused.WithLabelValues(limit).Inc() }

// Shed implements server.Metrics.
func (m *Metrics) Shed(kind string) { m.shed.WithLabelValues(kind).Inc() }

// TokenChanged counts a token that was rejected because its row was changed
// without the keys.
func (m *Metrics) TokenChanged() { m.changed.Inc() }

// Pass records the result of a Tick of a coin's watcher.
func (m *Metrics) Pass(coin string, now time.Time, r settle.Report) {
	m.trouble.DeletePartialMatch(prometheus.Labels{"coin": coin})
	if r.Err != nil {
		m.trouble.WithLabelValues(coin, cmp.Or(r.Cause, "not known")).Set(1)
	}
	m.leading.WithLabelValues(coin).Set(0)
	if r.Leads {
		m.leading.WithLabelValues(coin).Set(1)
	} else if r.Err == nil { // it is a standby
		return
	}
	outcome := "ok"
	if r.Err != nil {
		outcome = "failed"
	} else {
		m.lastPass.WithLabelValues(coin).Set(unix(now))
	}
	m.passes.WithLabelValues(coin, outcome).Inc()
	m.pass.WithLabelValues(coin).Observe(r.Took.Seconds())
	if !r.Applied {
		return
	}
	m.tip.WithLabelValues(coin).Set(unix(r.Tip.Time))
	m.height.WithLabelValues(coin).Set(float64(r.Tip.Height))
	m.behind.WithLabelValues(coin).Set(float64(r.Behind))
	m.transfers.WithLabelValues(coin).Add(float64(r.Transfers))
}

// Call counts a request to a supplier.
func (m *Metrics) Call(supplier, call, outcome string, took time.Duration) {
	m.calls.WithLabelValues(supplier, call, outcome).Inc()
	m.call.WithLabelValues(supplier, call).Observe(took.Seconds())
}

// Clock records the differences between this machine's clock and other clocks,
// by their names, and whether they show that it is wrong.
func (m *Metrics) Clock(ahead map[string]time.Duration, wrong bool) {
	m.ahead.Reset()
	for other, by := range ahead {
		m.ahead.WithLabelValues(other).Set(by.Seconds())
	}
	m.wrong.WithLabelValues().Set(0)
	if wrong {
		m.wrong.WithLabelValues().Set(1)
	}
}

// LowStock records the number of cards per amount below which a supplier's stock
// is low.
func (m *Metrics) LowStock(supplier string, cards int64) {
	m.lowStock.WithLabelValues(supplier).Set(float64(cards))
}

// Books records the number of discrepancies that a reading of the books found,
// and its time.
func (m *Metrics) Books(discrepancies int, at time.Time) {
	m.doubts.WithLabelValues().Set(float64(discrepancies))
	m.booksAt.WithLabelValues().Set(unix(at))
}

// KeyFile records whether the key file is usable.
func (m *Metrics) KeyFile(usable bool) {
	value := 0.0
	if usable {
		value = 1
	}
	m.keyFile.WithLabelValues().Set(value)
}

// ForgetBooks removes the metrics of Books, once another process reads the books.
func (m *Metrics) ForgetBooks() {
	m.doubts.Reset()
	m.booksAt.Reset()
}

// Issued records how long it took to issue a card.
func (m *Metrics) Issued(took time.Duration) { m.issued.Observe(took.Seconds()) }

// Attempt counts an attempt to deliver an event.
func (m *Metrics) Attempt(a webhook.Attempt) {
	outcome := "refused"
	switch {
	case a.OK():
		outcome = "delivered"
	case a.Gone():
		outcome = "gone"
	case a.Status == 0:
		outcome = "unreachable"
	case a.Unreachable():
		outcome = "overloaded"
	}
	m.attempts.WithLabelValues(outcome).Inc()
	m.attempt.Observe(a.Took.Seconds())
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
