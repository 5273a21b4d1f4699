package acceptance_test

import (
	"flag"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

var payments = flag.Int("payments", 450, "number of payments of BenchmarkMoneroPass, 15 per transaction")

// BenchmarkMoneroPass compares a pass over a real wallet with few payments to a
// pass over a wallet with many. The wallet reads all of its payments; the
// service should not.
func BenchmarkMoneroPass(b *testing.B) {
	net := rig.Monero(b)
	url := "sqlite:" + filepath.Join(b.TempDir(), "x.db")
	// One address is enough, because the creation of addresses is not measured.
	s := newBench(b, url, 1)
	for _, table := range []string{"chains", "addresses", "address_pools"} { // of the simulated chain
		_, err := rig.OpenSQL(b, url).Exec("DELETE FROM " + table)
		must(b, err)
	}
	node, err := monero.New(monero.Config{DaemonURL: net.DaemonURL, WalletURL: net.WalletURL, MaxTipAge: -1})
	must(b, err)
	must(b, s.watcher.Close(b.Context()))
	var whole, scans [2]time.Duration
	measure := func(i int) {
		const passes = 10
		w, err := settle.New(s.store, s.rates, node, quietWake(), slog.New(slog.DiscardHandler),
			settle.Config{FillBatch: 1})
		must(b, err)
		must(b, w.Tick(b.Context()))
		cursor, err := s.store.Cursor(b.Context(), chain.Currencies()[0])
		must(b, err)
		for range passes {
			net.Mine(b, 1)
			start := time.Now()
			must(b, w.Tick(b.Context()))
			whole[i] += time.Since(start) / passes
			start = time.Now()
			_, err := node.Scan(b.Context(), settle.Query{Since: cursor.Tip.Height, Newest: settle.NoPosition})
			must(b, err)
			scans[i] += time.Since(start) / passes
		}
		must(b, w.Close(b.Context()))
	}
	measure(0)
	var outputs []rig.MoneroOutput
	for range 15 {
		made, err := node.NewAddresses(b.Context(), settle.NoPosition, 1)
		must(b, err)
		outputs = append(outputs, rig.MoneroOutput{Address: made[0].Address, Amount: 1_000_000_000})
	}
	start := time.Now()
	for paid := 0; paid < *payments; {
		for range 30 { // then the payer must wait until its change is mined
			net.PayMany(b, outputs...)
			if paid += len(outputs); paid >= *payments {
				break
			}
		}
		net.Mine(b, 12)
		b.Logf("%d of %d payments, %s", paid, *payments, time.Since(start).Round(time.Second))
	}
	net.Mine(b, 150) // moves the payments below the blocks that passes read again
	measure(1)
	b.ReportMetric(float64(whole[0].Microseconds())/1000, "ms/new-wallet")
	b.ReportMetric(float64(whole[1].Microseconds())/1000, "ms/many-payments")
	b.ReportMetric(float64(scans[1].Microseconds())/1000, "ms/of-it-node-and-wallet")
	b.ReportMetric(float64(*payments), "payments")
	b.ReportMetric(0, "ns/op")
}
