package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

const (
	statsTTL    = 5 * time.Second // scrapes within this time share one reading of the database
	readTimeout = 2 * time.Second
	restFactor  = 10 // statsTTL is at least this multiple of the reading's duration, to bound the load of scrapes
)

// Store reads the state of the whole service.
type Store interface {
	Stats(ctx context.Context) (operator.Stats, error)
}

// state exports the state of the whole service.
type state struct {
	store  Store
	now    func() time.Time
	errors prometheus.Counter // exported here, so that a failed scrape shows it

	mu    sync.Mutex // held during a reading: concurrent scrapes share it
	last  *operator.Stats
	until time.Time // when last expires

	free, epoch, unattributed, held, heldCards, reversedCards *prometheus.Desc
	intents, oldestIntent, openQuotes, openCards              *prometheus.Desc
	backlog, oldestDelivery, stock, figuresTimestamp          *prometheus.Desc
	at                                                        time.Time // of last
}

// WatchStore exports the state of the whole service, which is the same in every
// process. Only workers should call it.
func (m *Metrics) WatchStore(store Store) { m.watchStore(store, time.Now) }

func (m *Metrics) watchStore(store Store, now func() time.Time) {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.collect(&state{store: store, now: now,
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "cardmint_scrape_errors_total",
			Help: "Scrapes without the service's state, because the database could not be read in time."}),
		free: describe("cardmint_addresses_free", "Free addresses in the address pool.", "coin"),
		epoch: describe("cardmint_epoch",
			"Epoch attested by the chain's worker. Absent while there is no attestation.", "coin"),
		unattributed: describe("cardmint_unattributed_coins",
			"Coins at addresses of no card that await a decision.", "coin"),
		held: describe("cardmint_held_coins",
			"Coins of late or too small payments that wait for an operator.", "coin"),
		heldCards: describe("cardmint_held_cards", "Cards with a late payment that waits for an operator.", "coin"),
		reversedCards: describe("cardmint_reversed_cards",
			"Cards with a payment that left the chain after issue or refund, not written off.", "coin"),
		intents: describe("cardmint_intents",
			"Paid, unissued cards by state: open, pending (the supplier will issue it), parked or refund_due (an operator decides).", "state"),
		oldestIntent: describe("cardmint_intent_oldest_age_seconds",
			"Age of the oldest open or pending intent to issue a card; 0 if there is none."),
		openQuotes: describe("cardmint_open_quotes_dollars",
			"US dollar value of cards awaiting payment."),
		openCards: describe("cardmint_open_cards", "Cards awaiting payment."),
		backlog: describe("cardmint_webhook_backlog_deliveries",
			"Outstanding deliveries to enabled webhooks, including retries."),
		oldestDelivery: describe("cardmint_webhook_oldest_due_age_seconds",
			"Time since the oldest due delivery became due; 0 if none is due."),
		stock: describe("cardmint_stock_left_cards", "Cards left in a stock, by amount.", "supplier",
			"usd"),
		figuresTimestamp: describe("cardmint_state_timestamp_seconds",
			"Time when the scraped state of the service was read from the database."),
	})
}

// Describe implements prometheus.Collector.
func (s *state) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.free, s.epoch, s.unattributed, s.held, s.heldCards, s.reversedCards, s.intents,
		s.oldestIntent, s.openQuotes, s.openCards,
		s.backlog, s.oldestDelivery, s.stock, s.figuresTimestamp} {
		to <- d
	}
	s.errors.Describe(to)
}

// Collect implements prometheus.Collector. It exports only the error counter if
// the database can't be read in time.
func (s *state) Collect(to chan<- prometheus.Metric) {
	f, at := s.stats()
	s.errors.Collect(to)
	if f == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, c := range f.Coins {
		code := c.Coin.Code
		gauge(s.free, float64(c.FreeAddresses), code)
		if c.Epoch != 0 {
			gauge(s.epoch, float64(c.Epoch), code)
		}
		gauge(s.unattributed, coins(c.Coin, c.Unattributed), code)
		gauge(s.held, coins(c.Coin, c.Held), code)
		gauge(s.heldCards, float64(c.HeldCards), code)
		gauge(s.reversedCards, float64(c.ReversedCards), code)
	}
	for name, n := range f.Intents {
		gauge(s.intents, float64(n), name)
	}
	gauge(s.oldestIntent, f.OldestIntent.Seconds())
	gauge(s.openQuotes, number(f.OpenQuotes.String()))
	gauge(s.openCards, float64(f.OpenCards))
	gauge(s.backlog, float64(f.Backlog))
	gauge(s.oldestDelivery, f.OldestDelivery.Seconds())
	for _, x := range f.Stock {
		gauge(s.stock, float64(x.Left), x.Supplier, x.USD.String())
	}
	gauge(s.figuresTimestamp, unix(at))
}

// stats returns the state, or nil if it can't be read.
func (s *state) stats() (*operator.Stats, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	started := s.now()
	if started.Before(s.until) {
		if s.last == nil {
			s.errors.Inc()
		}
		return s.last, s.at
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	f, err := s.store.Stats(ctx)
	ended := s.now()
	s.last, s.at, s.until = &f, started, ended.Add(max(statsTTL, restFactor*ended.Sub(started)))
	if err != nil {
		s.last = nil
		s.errors.Inc()
	}
	return s.last, s.at
}

// coins returns an amount in coins, rounded to a float64.
func coins(c card.Currency, t card.Total) float64 { return number(c.FormatTotal(t)) }

// number returns a decimal number, rounded to a float64.
func number(decimal string) float64 {
	f, _ := strconv.ParseFloat(decimal, 64) // sums are exact; only the exported value is rounded
	return f
}
