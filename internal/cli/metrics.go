package cli

import (
	"database/sql"
	"net"

	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
)

// listenAll listens for the API and, unless their address is "off", for metrics; then their listener is nil.
func listenAll(api, metrics string) (serving, metering net.Listener, err error) {
	if serving, err = listen(api); err != nil || metrics == "off" {
		return serving, nil, err
	}
	if metering, err = net.Listen("tcp", metrics); err != nil {
		_ = serving.Close()
		return nil, nil, hint(err, "choose another address with --metrics-listen, for example 127.0.0.1:9465, or off")
	}
	return serving, metering, nil
}

// addMetrics exports what is known when somebody asks. Only workers export the state of the whole service.
func addMetrics(dbs stores, p plan) {
	p.meter.WatchPools(func() map[string]sql.DBStats { return dbs.pools() })
	if p.worker {
		p.meter.WatchStore(dbs.api) // whose connections a worker alone hardly uses
	}
	if p.live != nil {
		p.meter.WatchRates(func() []metrics.Rate { return metricsOf(p.live.Reports()) })
	}
}

// pools returns the statistics of all pools, by name: that of a part of the process, or what the connections do where all parts share them.
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
		all[i] = metrics.Rate{Coin: r.Currency, USD: r.Rate.USD, At: r.Rate.At, Median: r.Median}
		for _, q := range r.Quotes {
			all[i].Quotes = append(all[i].Quotes, metrics.Quote{Source: q.Source, USD: q.USD, At: q.At})
		}
	}
	return all
}
