package metrics

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/webhook"
)

var at = time.Date(2026, 11, 20, 14, 46, 0, 0, time.UTC)

// database is a store whose statistics can't be read while err is set.
type database struct {
	err   error
	reads int
	takes func()
}

func (d *database) Stats(ctx context.Context) (operator.Stats, error) {
	d.reads++
	if _, limited := ctx.Deadline(); !limited {
		return operator.Stats{}, errors.New("the query has no deadline")
	}
	if d.takes != nil {
		d.takes()
	}
	monero := card.Currency{Code: "monero", Decimals: 12}
	return operator.Stats{
		Coins: []operator.CoinStats{
			{Coin: monero, FreeAddresses: 200, Epoch: 1, Unattributed: card.TotalOf(1_500000000000),
				Held: card.TotalOf(250000000000), HeldCards: 1, ReversedCards: 2}},
		Intents: map[string]int64{"open": 2, "parked": 0}, OldestIntent: 1500 * time.Millisecond, OpenQuotes: 150_50,
		OpenCards: 1,
		Backlog:   3, OldestDelivery: time.Minute, Stock: []operator.StockStats{{Supplier: "shelf", USD: 100_00, Left: 7}},
	}, d.err
}

// filled returns metrics that all have a value.
func filled(t testing.TB, db *database, now func() time.Time) *Metrics {
	t.Helper()
	m := New("v1.2.3")
	m.watchStore(db, now)
	m.WatchPools(func() map[string]sql.DBStats {
		return map[string]sql.DBStats{
			"api": {MaxOpenConnections: 16, OpenConnections: 3, InUse: 2, WaitCount: 5, WaitDuration: time.Second}}
	})
	m.WatchRates(func() []Rate {
		usd := func(units int64) card.Decimal { return card.Decimal{Units: units, Scale: card.RateScale} }
		return []Rate{
			{Coin: "monero", USD: usd(150_00000000), At: at, Median: usd(150_00000000),
				Quotes: []Quote{{"kraken", usd(153_00000000), at}}, Agreeing: 1, Quorum: 2}}
	})
	m.Started()
	m.Ended("createCard", 201, 3*time.Millisecond)
	m.Limited("token")
	m.Shed("create")
	m.TokenChanged()
	m.Pass("monero", at,
		settle.Report{Leads: true, Applied: true, Took: time.Second, Tip: card.Tip{Height: 100, Time: at}, Behind: 2,
			Transfers: 3})
	m.Pass("litecoin", at, settle.Report{Err: errors.New("away"), Cause: "litecoind: timeout"})
	m.Call("shelf", "submit", "issued", time.Second)
	m.Issued(time.Second)
	m.Attempt(webhook.Attempt{Status: 200})
	m.LowStock("shelf", 20)
	m.Clock(map[string]time.Duration{"database": -90 * time.Second}, true)
	m.Books(2, at)
	m.KeyFile(true)
	return m
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func want(t *testing.T, scraped string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(scraped, "\n"+line+"\n") {
			t.Errorf("no %q in\n%s", line, scraped)
		}
	}
}

func TestMetrics_AreExported(t *testing.T) {
	want(t, scrape(t, filled(t, &database{}, time.Now)),
		`cardmint_requests_total{operation="createCard",status="201"} 1`, "cardmint_requests_in_flight 0",
		`cardmint_requests_refused_total{limit="token"} 1`, "cardmint_tokens_changed_total 1",
		`cardmint_request_duration_seconds_bucket{operation="createCard",le="0.0025"} 0`,
		`cardmint_request_duration_seconds_bucket{operation="createCard",le="0.005"} 1`,
		`cardmint_chain_leading{coin="monero"} 1`, `cardmint_chain_passes_total{coin="monero",outcome="ok"} 1`,
		`cardmint_chain_lag_blocks{coin="monero"} 2`,
		`cardmint_chain_transfers_total{coin="monero"} 3`,
		fmt.Sprintf(`cardmint_chain_tip_timestamp_seconds{coin="monero"} %v`, float64(at.Unix())),
		`cardmint_supplier_calls_total{call="submit",outcome="issued",supplier="shelf"} 1`,
		"cardmint_issue_duration_seconds_count 1",
		`cardmint_webhook_attempts_total{outcome="delivered"} 1`, `cardmint_webhook_attempts_total{outcome="gone"} 0`,
		`cardmint_addresses_free{coin="monero"} 200`, `cardmint_unattributed_coins{coin="monero"} 1.5`,
		`cardmint_held_coins{coin="monero"} 0.25`, `cardmint_reversed_cards{coin="monero"} 2`,
		`cardmint_intents{state="open"} 2`, "cardmint_intent_oldest_age_seconds 1.5", "cardmint_open_quotes_dollars 150.5",
		"cardmint_webhook_backlog_deliveries 3",
		"cardmint_webhook_oldest_due_age_seconds 60", `cardmint_stock_left_cards{supplier="shelf",usd="100"} 7`,
		`cardmint_db_waits_total{pool="api"} 5`, `cardmint_db_wait_seconds_total{pool="api"} 1`,
		`cardmint_clock_ahead_seconds{other="database"} -90`, "cardmint_clock_wrong 1",
		`cardmint_stock_low_cards{supplier="shelf"} 20`, "cardmint_reconcile_doubts 2",
		fmt.Sprintf("cardmint_reconcile_timestamp_seconds %v", float64(at.Unix())),
		`cardmint_rate_sources_agreeing{coin="monero"} 1`, `cardmint_rate_quorum_sources{coin="monero"} 2`,
		`cardmint_rate_dollars{coin="monero"} 150`, `cardmint_rate_source_spread_ratio{coin="monero",source="kraken"} 0.02`)
}

func TestMetrics_FollowConventions(t *testing.T) {
	problems, err := testutil.GatherAndLint(filled(t, &database{}, time.Now).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A value that can't be read is absent: an old value, or 0, would be wrong.
func TestState_UnknownIsAbsent(t *testing.T) {
	now := at
	db := &database{}
	m := filled(t, db, func() time.Time { return now })
	if s := scrape(t, m); !strings.Contains(s, "cardmint_intents{") {
		t.Fatalf("no state in\n%s", s)
	}
	db.err, now = errors.New("away"), now.Add(statsTTL)
	for failed := range 2 { // the second scrape repeats the error without a query
		s := scrape(t, m)
		want(t, s, fmt.Sprintf("cardmint_scrape_errors_total %d", failed+1), `cardmint_db_waits_total{pool="api"} 5`)
		for _, line := range strings.Split(s, "\n") {
			if strings.HasPrefix(line, "cardmint_intents") || strings.HasPrefix(line, "cardmint_unattributed") ||
				strings.HasPrefix(line, "cardmint_state_") {
				t.Errorf("exported although unknown: %s", line)
			}
		}
	}
	if db.reads != 2 {
		t.Errorf("the database was read %d times, want 2", db.reads)
	}
	db.err, now = nil, now.Add(statsTTL)
	want(t, scrape(t, m), "cardmint_webhook_backlog_deliveries 3")
}

func TestMetrics_CollectorPanics_OthersAreExported(t *testing.T) {
	db := &database{takes: func() { panic("canary") }}
	m := filled(t, db, time.Now)
	before := panics.Recovered()
	for range 2 {
		s := scrape(t, m)
		if want(t, s, `cardmint_db_waits_total{pool="api"} 5`); !strings.Contains(s, "\ncardmint_panics_total ") {
			t.Errorf("panics are not exported in\n%s", s)
		}
	}
	if n := panics.Recovered() - before; n != 2 {
		t.Errorf("%d panics were counted", n)
	}
}

func TestState_ManyScrapes_ReadOnce(t *testing.T) {
	now := at
	db := &database{takes: func() { now = now.Add(time.Second) }}
	m := filled(t, db, func() time.Time { return now })
	for range 5 {
		scrape(t, m)
	}
	now = now.Add(9 * time.Second)
	scrape(t, m)
	if db.reads != 1 {
		t.Errorf("a database that takes a second was read %d times within 10 s", db.reads)
	}
	now = now.Add(time.Second)
	if scrape(t, m); db.reads != 2 {
		t.Errorf("it was read %d times, want 2", db.reads)
	}
}

func TestPass_Standby_RecordsNoPass(t *testing.T) {
	m := New("")
	m.Pass("monero", at, settle.Report{})
	m.Pass("bitcoin", at, settle.Report{Err: errors.New("away")})
	s := scrape(t, m)
	want(t, s, `cardmint_chain_leading{coin="monero"} 0`, `cardmint_chain_passes_total{coin="bitcoin",outcome="failed"} 1`)
	want(t, s, `cardmint_chain_trouble{cause="not known",coin="bitcoin"} 1`)
	if strings.Contains(s, `passes_total{coin="monero"`) || strings.Contains(s, "last_good_pass_timestamp_seconds{") {
		t.Errorf("a standby or failed pass counts as successful:\n%s", s)
	}
}

func TestPass_Trouble_HasLastCause(t *testing.T) {
	m := New("")
	m.Pass("bitcoin", at, settle.Report{Leads: true, Err: errors.New("away"), Cause: "bitcoind: timeout"})
	m.Pass("monero", at, settle.Report{Leads: true, Err: errors.New("away"), Cause: "monerod: timeout"})
	m.Pass("monero", at, settle.Report{Leads: true, Err: errors.New("away"), Cause: "monerod: connection refused"})
	s := scrape(t, m)
	want(t, s, `cardmint_chain_trouble{cause="monerod: connection refused",coin="monero"} 1`,
		`cardmint_chain_trouble{cause="bitcoind: timeout",coin="bitcoin"} 1`)
	if strings.Count(s, "cardmint_chain_trouble{") != 2 {
		t.Errorf("a cause that has passed is exported:\n%s", s)
	}
	m.Pass("monero", at, settle.Report{Leads: true})
	if s := scrape(t, m); strings.Contains(s, `cardmint_chain_trouble{cause="monerod`) {
		t.Errorf("the cause is exported although the pass succeeded:\n%s", s)
	}
}

func TestRates_UnknownIsAbsent(t *testing.T) {
	m := New("")
	m.WatchRates(func() []Rate { return []Rate{{Coin: "monero", Quorum: 2}} })
	s := scrape(t, m)
	want(t, s, `cardmint_rate_sources_agreeing{coin="monero"} 0`, `cardmint_rate_quorum_sources{coin="monero"} 2`)
	for _, name := range []string{"cardmint_rate_dollars", "cardmint_rate_timestamp", "cardmint_rate_source_"} {
		if strings.Contains(s, name) {
			t.Errorf("an unknown rate is exported:\n%s", s)
		}
	}
}

func TestBooks_Forgotten_AreAbsent(t *testing.T) {
	m := New("")
	if s := scrape(t, m); strings.Contains(s, "cardmint_reconcile_") {
		t.Errorf("books are exported before they were read:\n%s", s)
	}
	m.Books(0, at)
	m.KeyFile(true)
	want(t, scrape(t, m), "cardmint_reconcile_doubts 0")
	m.ForgetBooks()
	if s := scrape(t, m); strings.Contains(s, "cardmint_reconcile_") {
		t.Errorf("books are exported after another process took over:\n%s", s)
	}
}

func TestAttempt_Outcomes(t *testing.T) {
	m := New("")
	for _, status := range []int{204, 404, 301, 429, 503, 410, 0} {
		m.Attempt(webhook.Attempt{Status: status})
	}
	for outcome, n := range map[string]float64{"delivered": 1, "refused": 2, "overloaded": 2, "gone": 1,
		"unreachable": 1} {
		if got := testutil.ToFloat64(m.attempts.WithLabelValues(outcome)); got != n {
			t.Errorf("%s: %v, want %v", outcome, got, n)
		}
	}
}

// The table in docs/metrics.md lists exactly the existing metrics.
func TestDocs_ListAllMetrics(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) == 7 && strings.HasPrefix(cells[1], " `cardmint_") {
			documented = append(documented, strings.Join(cells[1:4], "|")+"|"+cells[5])
		}
	}
	families, err := filled(t, &database{}, time.Now).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "cardmint_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		exported = append(exported,
			fmt.Sprintf(" `%s` | %s | %s | %s ", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, " "),
				f.GetHelp()))
	}
	squeeze := func(all []string) []string {
		for i, s := range all {
			all[i] = strings.Join(strings.Fields(s), " ")
		}
		slices.Sort(all)
		return all
	}
	if diff := cmp.Diff(squeeze(exported), squeeze(documented)); diff != "" {
		t.Errorf("docs/metrics.md (-exported +documented):\n%s", diff)
	}
}

// meterOnce records one request.
func meterOnce(m *Metrics) {
	m.Started()
	m.Ended("getCard", 200, 3*time.Millisecond)
}

func TestEnded_AllocatesAtMostTwice(t *testing.T) {
	m := New("")
	if n := testing.AllocsPerRun(100, func() { meterOnce(m) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := New("")
	b.ReportAllocs()
	for b.Loop() {
		meterOnce(m)
	}
}

// The number of labels is bounded, even for invalid statuses.
func TestEnded_InvalidStatus_IsNone(t *testing.T) {
	for status, want := range map[int]string{-1: none, 0: none, 99: none, 100: "100", 404: "404", 599: "599", 600: none,
		1000: none} {
		m := New("v1")
		m.Started()
		m.Ended("getCard", status, time.Millisecond)
		if n := testutil.ToFloat64(m.requests.WithLabelValues("getCard", want)); n != 1 {
			t.Errorf("status %d: %v requests with the label %q, want 1", status, n, want)
		}
	}
}

// A pool without a limit exports no maximum. An alarm would compare 0 with the
// connections in use.
func TestWatchPools_NoLimit_IsAbsent(t *testing.T) {
	m := New("v1")
	m.WatchPools(func() map[string]sql.DBStats {
		return map[string]sql.DBStats{"limited": {MaxOpenConnections: 1}, "not limited": {OpenConnections: 3}}
	})
	text := scrape(t, m)
	for name, want := range map[string]bool{"limited": true, "not limited": false} {
		if got := strings.Contains(text, `cardmint_db_connections_max{pool="`+name+`"}`); got != want {
			t.Errorf("the maximum of pool %q is exported: %t, want %t", name, got, want)
		}
	}
}
