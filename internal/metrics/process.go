package metrics

import (
	"database/sql"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cardmint/cardmint/internal/card"
)

// pools exports the statistics of connection pools.
type pools struct {
	read func() map[string]sql.DBStats

	most, open, inUse, waits, waited *prometheus.Desc
}

// WatchPools exports the statistics of database connection pools, by name.
func (m *Metrics) WatchPools(read func() map[string]sql.DBStats) {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, []string{"pool"}, nil) }
	m.collect(&pools{read,
		describe("cardmint_db_connections_max", "Maximum connections of a pool. Absent without a limit."),
		describe("cardmint_db_connections_open", "Open connections of a pool."),
		describe("cardmint_db_connections_in_use", "Connections of a pool that are in use."),
		describe("cardmint_db_waits_total", "Waits for a connection of a pool."),
		describe("cardmint_db_wait_seconds_total", "Total time spent waiting for a connection of a pool."),
	})
}

// Describe implements prometheus.Collector.
func (p *pools) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.most, p.open, p.inUse, p.waits, p.waited} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (p *pools) Collect(to chan<- prometheus.Metric) {
	for name, s := range p.read() {
		if s.MaxOpenConnections > 0 {
			to <- prometheus.MustNewConstMetric(p.most, prometheus.GaugeValue, float64(s.MaxOpenConnections), name)
		}
		to <- prometheus.MustNewConstMetric(p.open, prometheus.GaugeValue, float64(s.OpenConnections), name)
		to <- prometheus.MustNewConstMetric(p.inUse, prometheus.GaugeValue, float64(s.InUse), name)
		to <- prometheus.MustNewConstMetric(p.waits, prometheus.CounterValue, float64(s.WaitCount), name)
		to <- prometheus.MustNewConstMetric(p.waited, prometheus.CounterValue, s.WaitDuration.Seconds(), name)
	}
}

// Rate is the rate of a coin, with its sources.
type Rate struct {
	Coin   string
	USD    card.Decimal // for one coin; 0 if there is no fresh rate
	At     time.Time
	Median card.Decimal // of the sources' quotes; 0 if there are none
	Quotes []Quote
	// Agreeing is the number of agreeing sources, Quorum how many must agree.
	Agreeing, Quorum int
}

// Quote is the answer of a source.
type Quote struct {
	Source string
	USD    card.Decimal
	At     time.Time
}

// rates exports live rates.
type rates struct {
	read func() []Rate

	usd, at, agreeing, quorum, quote, quoteAt, deviation *prometheus.Desc
}

// WatchRates exports live rates.
func (m *Metrics) WatchRates(read func() []Rate) {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"coin"}, labels...), nil)
	}
	m.collect(&rates{read,
		describe("cardmint_rate_dollars",
			"US dollars per coin quoted by this process, before the markup. Absent without a fresh rate."),
		describe("cardmint_rate_timestamp_seconds", "Time of the quoted rate, by its sources. Absent without a fresh rate."),
		describe("cardmint_rate_sources_agreeing",
			"Sources with usable, agreeing answers at this process."),
		describe("cardmint_rate_quorum_sources", "Sources that must agree."),
		describe("cardmint_rate_source_dollars",
			"US dollars per coin in a source's last answer. Absent without a quote.", "source"),
		describe("cardmint_rate_source_timestamp_seconds",
			"Time of a source's last quote, by the source. Absent without a quote.", "source"),
		describe("cardmint_rate_source_spread_ratio",
			"Relative distance of a source's quote from the median of usable quotes: 0.01 is 1 percent above. Absent without a quote.",
			"source"),
	})
}

// Describe implements prometheus.Collector.
func (r *rates) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.usd, r.at, r.agreeing, r.quorum, r.quote, r.quoteAt, r.deviation} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r *rates) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, x := range r.read() {
		if x.USD.Units != 0 {
			gauge(r.usd, number(x.USD.String()), x.Coin)
			gauge(r.at, unix(x.At), x.Coin)
		}
		gauge(r.agreeing, float64(x.Agreeing), x.Coin)
		gauge(r.quorum, float64(x.Quorum), x.Coin)
		for _, q := range x.Quotes {
			gauge(r.quote, number(q.USD.String()), x.Coin, q.Source)
			gauge(r.quoteAt, unix(q.At), x.Coin, q.Source)
			if x.Median.Units != 0 && x.Median.Scale == q.USD.Scale {
				gauge(r.deviation, float64(q.USD.Units-x.Median.Units)/float64(x.Median.Units), x.Coin, q.Source)
			}
		}
	}
}
