package cli

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

// metricsAddress is where metrics are unless an operator says otherwise.
const metricsAddress = "127.0.0.1:9464"

// listenAll listens for the API and, unless their address is "off", for
// metrics; then their listener is nil. Of several processes on a machine that
// were not told where, the first one has the metrics, and the others say so and
// go on.
func (g *globals) listenAll(api, metrics string) (serving, metering net.Listener, err error) {
	if serving, err = listen(api); err != nil || metrics == "off" {
		return serving, nil, err
	}
	metering, err = net.Listen("tcp", metrics)
	if errors.Is(err, syscall.EADDRINUSE) && metrics == metricsAddress {
		g.log.Warn("metrics are not served: another process uses the address; choose another one with --metrics-listen",
			"address", metrics)
		return serving, nil, nil
	}
	if err != nil {
		_ = serving.Close()
		return nil, nil, hint(err, "choose another address with --metrics-listen, for example 127.0.0.1:9465, or off")
	}
	return serving, metering, nil
}

// serveMetrics serves metrics until ctx ends, unless none are wanted.
func (g *globals) serveMetrics(ctx context.Context, p plan) error {
	if p.metrics == nil {
		return nil
	}
	defer func() { _ = p.metrics.Close() }()
	g.log.InfoContext(ctx, "serving metrics", "address", "http://"+p.metrics.Addr().String()+"/metrics")
	return server.Serve(ctx, p.metrics, p.meter.Handler(g.log), g.log, closeGrace)
}

// addMetrics exports what is known when somebody asks. Only workers export the
// state of the whole service.
func addMetrics(dbs stores, p plan) {
	p.meter.WatchPools(func() map[string]sql.DBStats { return dbs.pools() })
	if p.worker {
		p.meter.WatchStore(dbs.api) // whose connections a worker alone hardly uses
	}
	if p.live != nil {
		p.meter.WatchRates(func() []metrics.Rate { return metricsOf(p.live.Reports()) })
	}
}

// pools returns the statistics of all pools, by name: that of a part of the
// process, or what the connections do where all parts share them.
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
