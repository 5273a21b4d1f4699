//go:build alarms

package acceptance_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// exec runs a statement in the service's database.
func (s *alarmFixture) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := rig.OpenSQL(s.t, s.cluster.URL("postgres")).Exec(statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// order orders n cards.
func (s *alarmFixture) order(usd int64, n int) []*client.Card {
	s.t.Helper()
	shop, all := newClient(s.t, s.api.url, s.token), make([]*client.Card, n)
	for i := range all {
		var err error
		if all[i], err = shop.CreateCard(s.t.Context(),
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(usd), Currency: "monero"}); err != nil {
			s.t.Fatal(err)
		}
	}
	return all
}

// pay pays a part of the price of cards, without waiting for them.
func (s *alarmFixture) pay(part string, cards ...*client.Card) {
	s.t.Helper()
	shop := newClient(s.t, s.api.url, s.token)
	var all sync.WaitGroup
	for _, c := range cards {
		all.Go(func() {
			amount := c.Payment.Amount.Mul(decimal.RequireFromString(part)).Truncate(12)
			if _, err := shop.SimulatePayment(s.t.Context(), c.UUID,
				client.SimulatePaymentRequest{Amount: &amount}); err != nil {
				s.t.Error(err)
			}
		})
	}
	all.Wait()
}

// buy orders cards, pays for them and waits until they are issued.
func (s *alarmFixture) buy(usd int64, n int) []*client.Card {
	s.t.Helper()
	cards := s.order(usd, n)
	s.pay("1", cards...)
	shop := newClient(s.t, s.api.url, s.token)
	for _, c := range cards {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		if _, err := shop.WaitForCard(ctx, c.UUID); err != nil {
			s.t.Fatal(err)
		}
		cancel()
	}
	return cards
}

// importStock imports n cards of 500 dollars into the stock.
func (s *alarmFixture) importStock(first, n int) {
	s.t.Helper()
	file, _ := stockFile(s.t, "500", first, n)
	s.program.must(s.t, "stock", "import", file, "--supplier", "shelf", "--suppliers", s.suppliers, "--yes")
}

func (s *alarmFixture) startSupplier() {
	s.t.Helper()
	args := []string{"supplier", "serve", "--listen", s.supplierAddress, "--file", s.ledger}
	for _, r := range s.rules {
		args = append(args, "--be", r)
	}
	cmd := exec.Command(s.program.path, args...)
	cmd.Env = append(s.program.env, "CARDMINT_SUPPLIER_SECRET="+supplierSecret.Reveal())
	s.supplier = rig.Start(s.t, cmd)
	s.supplier.Ready(s.t, 30*time.Second, func() error {
		if !strings.Contains(s.supplier.Output(), "supplier: http") {
			return io.EOF
		}
		return nil
	})
}

// trafficPause lets eight clients send hundreds of requests per second.
const trafficPause = 10 * time.Millisecond

// disk is the mount point of a small file system that a test can fill. Other
// processes do not see it.
const disk = "/srv"

// startNode starts node_exporter in a mount namespace with a 16 MiB disk.
func (s *alarmFixture) startNode() {
	s.t.Helper()
	program := rig.Need(s.t, "prometheus-node-exporter", "prometheus-node-exporter")
	s.nodeMetrics = fmt.Sprintf("127.0.0.1:%d", rig.FreePort(s.t))
	private := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc"} // it reads the mounts of process 1
	if os.Getuid() != 0 {
		private = append(private, "--map-root-user")
	}
	s.node = rig.Start(s.t,
		exec.Command("unshare", append(private, "sh", "-c", `mount -t tmpfs -o size=16m disk `+disk+` && exec "$@"`, "sh",
			program, "--web.listen-address="+s.nodeMetrics, "--collector.disable-defaults", "--collector.filesystem",
			"--collector.filesystem.mount-points-exclude=^/($|[^s]|s[^r])")...)) // ignores the file systems of this machine, which may be full
	s.node.Ready(s.t, 30*time.Second, func() error {
		res, err := http.Get("http://" + s.nodeMetrics + "/metrics")
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	})
}

func (s *alarmFixture) scrapeAll() {
	s.t.Helper()
	s.watch.setTargets(s.t, "cardmint", s.apiMetrics, s.workMetrics)
	s.watch.setTargets(s.t, "node", s.nodeMetrics)
}

// request sends a request and ignores the response.
func (s *alarmFixture) request(method, path, body string) {
	req, err := http.NewRequest(method, s.api.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}

// readCard reads a card.
func (s *alarmFixture) readCard(c *client.Card) {
	s.request(http.MethodGet, "/api/cards/"+c.UUID.String(), "")
}

// traffic runs eight clients that call send, with pauses, until stop is called.
func (s *alarmFixture) traffic(pause time.Duration, send func()) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				send()
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// provokeMoney provokes alarms about unexpected money, sold-out cards, a full
// disk, and a webhook receiver that hangs.
func (s *alarmFixture) provokeMoney() {
	t, w := s.t, s.watch
	bought := s.buy(150, 12) // the first webhooks deliver all their events
	late := s.order(150, 1)[0]
	s.pay("0.5", late)

	const txid = "a3b1c5d7e9f1a3b5c7d9e1f3a5b7c9d1e3f5a7b9c1d3e5f7a9b1c3d5e7f9a1b3"
	w.provoke(t, "0.5 XMR to an address of no card", func() {
		s.exec("INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) SELECT 'monero', $1, 'stranger', 500000000000, height + 1, $2 FROM simulated_chains", txid, time.Now().UnixMilli())
		s.exec("UPDATE simulated_chains SET height = height + 20")
	}, "CardmintUnattributedMoney")
	w.provoke(t, "a payment of half the amount, whose quote was made to have expired", func() {
		s.exec("UPDATE cards SET expires_at = 1 WHERE uuid = $1", late.UUID)
	}, "CardmintMoneyHeld")
	w.provoke(t, "a card in the database that claims to have more than came", func() {
		s.exec("UPDATE cards SET credit_paid = credit_paid + 1 WHERE uuid = $1", bought[0].UUID)
	}, "CardmintDiscrepancy")
	w.provoke(t, "two of three cards in stock, low_stock = 2, are sold", func() { s.buy(500, 2) }, "CardmintStockLow")
	fill := fmt.Sprintf("/proc/%d/root%s/fill", s.node.PID(), disk)
	w.provoke(t, "15 of 16 MiB of a file system are filled", func() {
		if err := os.WriteFile(fill, make([]byte, 15<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}, "CardmintDiskFull")
	s.addHangingWebhooks()
	w.provoke(t, "16 receivers accept requests and do not answer; their events were made 10 minutes older", func() {
		s.pay("1", s.order(150, 25)...)
		s.exec("UPDATE events SET created_at = created_at - 600000")
	}, "CardmintWebhooksLate", "CardmintWebhookBacklog")
	w.awaitFiring(t, "CardmintStockLow")
	w.provoke(t, "the last card in stock is sold", func() { s.buy(500, 1) }, "CardmintStockEmpty")
	w.provoke(t, "the block with the payment of an issued card is replaced by one without", func() {
		s.exec("DELETE FROM simulated_transfers WHERE address = $1", bought[1].Payment.Address)
		s.exec("UPDATE simulated_chains SET height = height + 1, reorgs = reorgs + 1")
	}, "CardmintMoneyReversed")

	w.resolve(t, func() {
		attribute := []string{"transfers", "attribute", txid, "--refunded", "--note", "sent back", "--amount", "0.5", "--yes"}
		s.program.must(t, attribute...)
	}, "CardmintUnattributedMoney")
	w.resolve(t, func() {
		half := late.Payment.Amount.Mul(decimal.RequireFromString("0.5")).Truncate(12).String()
		s.program.must(t, "card", "resolve", late.UUID.String(), "refund", "--note", "sent back", "--amount", half, "--yes")
	}, "CardmintMoneyHeld")
	w.resolve(t, func() {
		amount := bought[1].Payment.Amount.String()
		s.program.must(t, "card", "resolve", bought[1].UUID.String(), "write-off", "--note", "it did not return", "--amount",
			amount, "--yes")
	}, "CardmintMoneyReversed")
	w.resolve(t, func() {
		s.exec("UPDATE cards SET credit_paid = credit_paid - 1 WHERE uuid = $1", bought[0].UUID)
	}, "CardmintDiscrepancy")
	w.resolve(t, func() {
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
	}, "CardmintDiskFull")
	w.resolve(t, func() { s.importStock(1000, 5) }, "CardmintStockLow", "CardmintStockEmpty")
	w.resolve(t, func() { close(s.hang) }, "CardmintWebhooksLate", "CardmintWebhookBacklog")
	w.awaitCleared(t, "CardmintUnattributedMoney", "CardmintMoneyHeld", "CardmintMoneyReversed", "CardmintDiscrepancy",
		"CardmintDiskFull", "CardmintStockLow", "CardmintStockEmpty",
		"CardmintWebhooksLate", "CardmintWebhookBacklog")
}

// addHangingWebhooks registers as many webhooks as an account may have. Their
// receiver answers only after s.hang is closed.
func (s *alarmFixture) addHangingWebhooks() {
	s.t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-s.hang:
		case <-r.Context().Done():
		}
	}))
	s.t.Cleanup(receiver.Close)
	shop := newClient(s.t, s.api.url, s.token)
	for i := range 16 {
		if _, err := shop.CreateWebhook(s.t.Context(),
			client.CreateWebhookRequest{URL: fmt.Sprintf("%s/%d", receiver.URL, i)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// provokeSupplier kills a supplier, and then makes it answer with a wrong
// amount.
func (s *alarmFixture) provokeSupplier() {
	t, w := s.t, s.watch
	w.provoke(t, "the supplier is killed, and twelve cards are paid", func() {
		s.supplier.Kill()
		s.pay("1", s.order(150, 12)...)
	}, "CardmintSupplierFailing")
	w.provoke(t, "likewise, and their payments were made 10 minutes older", func() {
		s.exec("UPDATE intents SET decided_at = decided_at - 600000 WHERE state = 'open'")
	}, "CardmintIntentOld")
	w.awaitFiring(t, "CardmintSupplierFailing", "CardmintIntentOld")
	w.provoke(t, "the supplier is back, and makes the cards that have waited for 10 minutes", func() {
		w.resolve(t, s.startSupplier, "CardmintSupplierFailing", "CardmintIntentOld")
	}, "CardmintIssuingSlow")
	w.resolve(t, func() { s.buy(150, 150) }, "CardmintIssuingSlow")

	var parked *client.Card
	w.provoke(t, "a supplier answers with a card of another amount", func() {
		s.restartSupplier("wrong-amount=1x")
		parked = s.order(150, 1)[0]
		s.pay("1", parked)
	}, "CardmintCardsWait")
	w.resolve(t, func() {
		s.restartSupplier()
		s.program.must(t, "card", "resolve", parked.UUID.String(), "retry", "--note", "the supplier has mended it", "--yes")
	}, "CardmintCardsWait")
	w.awaitCleared(t, "CardmintSupplierFailing", "CardmintIntentOld", "CardmintIssuingSlow", "CardmintCardsWait")
}

// restartSupplier restarts the supplier with the given rules.
func (s *alarmFixture) restartSupplier(rules ...string) {
	s.t.Helper()
	s.supplier.Kill()
	s.rules = rules
	s.startSupplier()
}

// provokeRates makes rate sources fail.
func (s *alarmFixture) provokeRates() {
	t, w := s.t, s.watch
	card := s.order(150, 1)[0]
	w.provoke(t, "one of two sources is out of order", func() { s.gecko.Store("") }, "CardmintRateSources")
	w.provoke(t, "likewise, for longer than --rate-max-age 5s", func() {}, "CardmintNoRate")
	w.awaitFiring(t, "CardmintNoRate")
	var stop func()
	w.provoke(t, "orders without a rate", func() {
		stop = s.traffic(2*time.Second, func() {
			s.request(http.MethodPost, "/api/cards", `{"usd_amount":150,"currency":"monero"}`)
		})
	}, "CardmintErrors")
	w.awaitFiring(t, "CardmintErrors")
	w.provoke(t, "the clocks of both sources are 10 minutes ahead", func() {
		s.skew.Store(int64(10 * time.Minute))
	}, "CardmintClockWrong")
	w.awaitFiring(t, "CardmintClockWrong")
	stop()
	w.resolve(t, func() {
		s.skew.Store(0)
		s.gecko.Store("150.5")
		stop = s.traffic(trafficPause, func() { s.readCard(card) })
	}, "CardmintRateSources", "CardmintNoRate", "CardmintErrors", "CardmintClockWrong")
	w.awaitCleared(t, "CardmintRateSources", "CardmintNoRate", "CardmintErrors", "CardmintClockWrong")
	stop()
}

// provokeToken moves a token to another account in the database.
func (s *alarmFixture) provokeToken() {
	t, w := s.t, s.watch
	s.program.must(t, "account", "create", "mallory")
	text := s.program.must(t, "token", "create", "mallory", "--name", "moved")
	w.provoke(t, "a token is moved to another account in the database, and used", func() {
		s.exec("UPDATE tokens SET account_id = (SELECT id FROM accounts WHERE name = 'shop') WHERE name = 'moved'")
		if status := s.api.useToken(t, text); status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
	}, "CardmintTokenChanged", "CardmintDiscrepancy")
	w.resolve(t, func() {
		s.program.must(t, "token", "revoke", s.program.tokenRows(t, "moved")[0]["ID"])
		w.deleteSeries(t, "cardmint_tokens_changed_total", time.Now())
	}, "CardmintTokenChanged", "CardmintDiscrepancy")
	w.awaitCleared(t, "CardmintTokenChanged", "CardmintDiscrepancy")
}

// skewedSource returns the URL of a proxy of a rate source whose Date header is
// off by s.skew.
func (s *alarmFixture) skewedSource(source string) string {
	s.t.Helper()
	to, err := url.Parse(source)
	if err != nil {
		s.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(time.Duration(s.skew.Load())).UTC().Format(http.TimeFormat))
		return nil
	}
	web := httptest.NewServer(proxy)
	s.t.Cleanup(web.Close)
	return web.URL
}

// checkDashboard runs every query of the dashboard. It comes last, because each
// metric needs at least one event.
func (s *alarmFixture) checkDashboard() {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("../../docs/operate/grafana.json")
	must(s.t, err)
	must(s.t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			s.checkPanel(panel.Title, target.Expr)
		}
	}
}

func (s *alarmFixture) checkPanel(title, query string) {
	if strings.HasPrefix(query, "ALERTS") || strings.Contains(query, "cardmint_chain_trouble") { // there are none
		return
	}
	var answer struct{ Result []json.RawMessage }
	s.watch.call(s.t, "/api/v1/query", url.Values{"query": {strings.ReplaceAll(query, "$__rate_interval", "2m")}},
		&answer)
	if len(answer.Result) == 0 {
		s.t.Errorf("panel %s: no data for %s", title, query)
	}
}

// provokeDatabase makes requests wait for the database.
func (s *alarmFixture) provokeDatabase() {
	t, w := s.t, s.watch
	card := s.order(150, 1)[0]
	db := rig.OpenSQL(t, s.cluster.URL("postgres"))
	w.provoke(t, "600 requests while the cards table is locked for three seconds", func() {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
		if err == nil {
			_, err = tx.Exec("LOCK TABLE cards IN ACCESS EXCLUSIVE MODE")
		}
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 600 {
			all.Go(func() { s.readCard(card) })
		}
		time.Sleep(3 * time.Second)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
	}, "CardmintSlow", "CardmintPoolSaturated", "CardmintOverloaded")
	var stop func()
	w.resolve(t, func() {
		stop = s.traffic(trafficPause, func() { s.readCard(card) })
	}, "CardmintSlow", "CardmintPoolSaturated", "CardmintOverloaded")
	w.awaitCleared(t, "CardmintSlow", "CardmintOverloaded")
	w.awaitNone(t, "CardmintPoolSaturated") // refusals also cause CardmintErrors
	stop()
}

// provokeProcesses stops the worker, the database, and the scrape targets.
func (s *alarmFixture) provokeProcesses() {
	t, w := s.t, s.watch
	w.provoke(t, "the only worker is started again", func() {
		w.provoke(t, "likewise, with --reconcile-every 0", func() {
			s.worker.stop(t)
			s.startWorker("--reconcile-every", "0")
		}, "CardmintBooksUnread")
	}, "CardmintEpochChanged")
	w.awaitFiring(t, "CardmintEpochChanged")
	s.provokePanic("--reconcile-every", "0")
	s.provokeTargets() // the alarm about missing reconciliation needs half a minute
	keys := s.program.setting("CARDMINT_KEYS")
	w.provoke(t, "the key file is moved away", func() { must(t, os.Rename(keys, keys+".away")) }, "CardmintKeyFileLost")
	w.resolve(t, func() { must(t, os.Rename(keys+".away", keys)) }, "CardmintKeyFileLost")
	w.awaitCleared(t, "CardmintKeyFileLost")
	w.awaitFiring(t, "CardmintBooksUnread")
	w.provoke(t, "the only worker is killed", s.worker.Kill, "CardmintNoWorker", "CardmintInstanceDown")
	w.resolve(t, func() { s.startWorker() }, "CardmintNoWorker", "CardmintInstanceDown", "CardmintBooksUnread")
	w.awaitCleared(t, "CardmintNoWorker", "CardmintInstanceDown", "CardmintBooksUnread")
	w.resolve(t, func() { w.deleteSeries(t, "cardmint_epoch", time.Now()) }, "CardmintEpochChanged")
	w.awaitCleared(t, "CardmintEpochChanged")

	w.provoke(t, "PostgreSQL is stopped", s.cluster.Stop, "CardmintStateUnknown")
	w.resolve(t, func() { s.cluster.Start(t) }, "CardmintStateUnknown")
	w.awaitCleared(t, "CardmintStateUnknown")

	w.provoke(t, "Prometheus has no processes to scrape", func() { w.setTargets(t, "cardmint") }, "CardmintAllDown")
	w.resolve(t, s.scrapeAll, "CardmintAllDown")
	w.awaitCleared(t, "CardmintAllDown")
}

// provokePanic replaces the worker by a build that panics at its first supplier
// request, until the alarm fires.
func (s *alarmFixture) provokePanic(args ...string) {
	t, w, path, env := s.t, s.watch, s.program.path, s.program.env
	panicking := path + "-panicking"
	if out, err := exec.Command("go", "build", "-tags", "nomsgpack,failpoints", "-o", panicking,
		"../../cmd/cardmint").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	w.provoke(t, "the first request to a supplier panics, and the card is issued all the same", func() {
		s.worker.stop(t)
		s.program.path, s.program.env = panicking, append(slices.Clone(env), "CARDMINT_FAILPOINT=panic:issue/submitting")
		s.startWorker(args...)
		s.buy(150, 1)
	}, "CardmintPanics")
	w.resolve(t, func() {
		s.worker.stop(t)
		s.program.path, s.program.env = path, env
		s.startWorker(args...)
		w.deleteSeries(t, "cardmint_panics_total", time.Now())
	}, "CardmintPanics")
	w.awaitCleared(t, "CardmintPanics")
}

// provokeTargets removes a scrape target, and then adds the worker of another
// service.
func (s *alarmFixture) provokeTargets() {
	t, w := s.t, s.watch
	other := newProgram(t, "")
	other.account(t)
	var second *server
	w.provoke(t, "Prometheus has no node_exporter to scrape", func() { w.setTargets(t, "node") }, "CardmintDiskUnwatched")
	w.provoke(t, "a second service, with a database of its own, watches the same coin", func() {
		second = other.serve(t, "serve", "--simulated", "--rate", "monero=150", "--metrics-listen", "127.0.0.1:0",
			"--reconcile-every", "0")
		w.setTargets(t, "cardmint", s.apiMetrics, s.workMetrics, second.metricsAddress())
	}, "CardmintTwoWorkers")
	w.awaitFiring(t, "CardmintTwoWorkers", "CardmintDiskUnwatched")
	w.resolve(t, func() {
		second.stop(t)
		s.scrapeAll()
	}, "CardmintTwoWorkers", "CardmintDiskUnwatched")
	w.awaitCleared(t, "CardmintTwoWorkers", "CardmintDiskUnwatched")
}

// provokeChain freezes the node and the wallet of a real chain.
func provokeChain(t *testing.T) *prometheus {
	w, net := startPrometheus(t), rig.Monero(t)
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, "serve", "--rate", "monero=150", "--address-pool", "30", "--metrics-listen", "127.0.0.1:0",
		"--reconcile-every", "1s",
		"--monero-daemon-url", net.DaemonURL, "--monero-wallet-url", net.WalletURL)
	node := &alarmFixture{t: t}
	node.startNode()
	w.setTargets(t, "node", node.nodeMetrics)
	w.setTargets(t, "cardmint", s.metricsAddress())
	const coinbase = "CardmintUnattributedMoney" // the first block of the rig's chain pays the wallet
	w.awaitNone(t, coinbase)
	thaw := func() {
		net.Daemon.Thaw()
		net.Wallet.Thaw()
	}
	t.Cleanup(thaw)
	w.provoke(t, "monerod and its wallet are frozen", func() {
		net.Daemon.Freeze(t)
		net.Wallet.Freeze(t)
	}, "CardmintChainStale")
	w.provoke(t, "likewise, and 15 of 30 addresses are sold", func() {
		shop := newClient(t, s.url, token)
		for range 15 {
			if _, err := shop.CreateCard(t.Context(),
				client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"}); err != nil {
				t.Fatal(err)
			}
		}
	}, "CardmintAddressesLow")
	w.resolve(t, thaw, "CardmintChainStale", "CardmintAddressesLow")
	w.awaitCleared(t, "CardmintChainStale", "CardmintAddressesLow")
	w.awaitNone(t, coinbase)
	return w
}
