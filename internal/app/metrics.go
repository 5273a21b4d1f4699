package app

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"syscall"

	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/server"
)

// DefaultMetrics is the default address of metrics.
const DefaultMetrics = "127.0.0.1:9464"

// Listen listens at address.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	return listener, WithHint(err, "choose another address with --listen, for example 127.0.0.1:8081")
}

// listen listens for the API and for metrics. If the default address of metrics
// is in use, it logs a warning: another process on this machine serves metrics.
func (p *process) listen() (err error) {
	if p.listener, err = Listen(p.cfg.Listen); err != nil {
		return err
	}
	if p.cfg.Dev {
		p.cfg.Web.PublicURL = p.url()
	}
	if p.cfg.Metrics == "off" {
		return nil
	}
	p.metricsServer, err = net.Listen("tcp", p.cfg.Metrics)
	if errors.Is(err, syscall.EADDRINUSE) && p.cfg.Metrics == DefaultMetrics {
		p.Log.Warn("metrics are not served: another process uses the address; choose another one with --metrics-listen",
			"address", p.cfg.Metrics)
		p.metricsServer = nil
		return nil
	}
	if err != nil {
		p.metricsServer = nil
		p.closeListeners()
		return WithHint(err, "choose another address with --metrics-listen, for example 127.0.0.1:9465, or off")
	}
	return nil
}

func (p *process) closeListeners() {
	_ = p.listener.Close()
	if p.metricsServer != nil {
		_ = p.metricsServer.Close()
	}
}

// serveMetrics serves metrics until ctx ends.
func (p *process) serveMetrics(ctx context.Context) error {
	if p.metricsServer == nil {
		return nil
	}
	p.Log.InfoContext(ctx, "serving metrics", "address", "http://"+p.metricsServer.Addr().String()+"/metrics")
	return server.Serve(ctx, p.metricsServer, p.meter.Handler(p.Log), p.Log, closeGrace)
}

// addMetrics exports the state that is read on each scrape. Only workers export
// the state of the whole service.
func (p *process) addMetrics() {
	p.meter.WatchPools(p.dbs.pools)
	if p.worker() {
		p.meter.WatchStore(p.dbs.api) // the API's connections are nearly idle in a worker
	}
	if p.live != nil {
		p.meter.WatchRates(func() []metrics.Rate { return metricsOf(p.live.Reports()) })
	}
}

// pools returns the statistics of all pools. They are named after the parts of
// the process or, if the parts share one store, after its own pools.
func (s stores) pools() map[string]sql.DBStats {
	if s.worker == s.api {
		all := s.api.Pools()
		if only, one := all["all"]; one {
			return map[string]sql.DBStats{"api": only}
		}
		return all
	}
	all := map[string]sql.DBStats{}
	for name, db := range map[string]*store.Store{"api": s.api, "worker": s.worker, "sender": s.sender} {
		all[name] = db.Pools()["all"]
	}
	return all
}

func metricsOf(reports []rate.Report) []metrics.Rate {
	all := make([]metrics.Rate, len(reports))
	for i, r := range reports {
		all[i] = metrics.Rate{Coin: r.Currency, USD: r.Rate.USD, At: r.Rate.At, Median: r.Median, Agreeing: r.Agreeing,
			Quorum: r.Quorum}
		for _, q := range r.Quotes {
			all[i].Quotes = append(all[i].Quotes, metrics.Quote{Source: q.Source, USD: q.USD, At: q.At})
		}
	}
	return all
}
