package acceptance_test

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
)

var metricsLine = regexp.MustCompile(`address=(http://\S+/metrics)`)

// scrape returns the metrics of a process.
func (s *server) scrape(tb testing.TB) string {
	tb.Helper()
	found := metricsLine.FindStringSubmatch(s.Output())
	if found == nil {
		tb.Fatal("the log has no address of the metrics")
	}
	res, err := http.Get(found[1])
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		tb.Fatalf("metrics: %s, %v", res.Status, err)
	}
	return string(text)
}

// metricValue returns the value of a series as it is exported, or "".
func metricValue(scraped, series string) string {
	_, rest, _ := strings.Cut("\n"+scraped, "\n"+series+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// awaitMetric scrapes until a series has a value.
func (s *server) awaitMetric(t *testing.T, series, value string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		scraped := s.scrape(t)
		if metricValue(scraped, series) == value {
			return scraped
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %q, want %q:\n%s", series, metricValue(scraped, series), value, scraped)
		}
	}
}

func TestMetrics_SoldCard_IsCounted(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--coins", "monero", "--reconcile-every", "1s")
	shop := newClient(t, s.url, token)
	order := func() *client.Card {
		t.Helper()
		c, err := shop.CreateCard(t.Context(),
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(100), Currency: "monero"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	paid, open := order(), order()
	if _, err := shop.SimulatePayment(t.Context(), paid.UUID, client.SimulatePaymentRequest{}); err != nil {
		t.Fatal(err)
	}
	issued, err := shop.WaitForCard(t.Context(), paid.UUID)
	if err != nil {
		t.Fatal(err)
	}
	s.awaitMetric(t, "cardmint_reconcile_doubts", "0")
	scraped := s.awaitMetric(t, "cardmint_open_cards", "1")
	for series, want := range map[string]string{
		`cardmint_requests_total{operation="createCard",status="201"}`:                     "2",
		`cardmint_request_duration_seconds_count{operation="createCard"}`:                  "2",
		`cardmint_requests_in_flight`:                                                      "0",
		`cardmint_issue_duration_seconds_count`:                                            "1",
		`cardmint_supplier_calls_total{call="submit",outcome="issued",supplier="sandbox"}`: "1",
		`cardmint_chain_transfers_total{coin="monero"}`:                                    "1",
		`cardmint_chain_leading{coin="monero"}`:                                            "1",
		`cardmint_open_quotes_dollars`:                                                     "100",
		`cardmint_intents{state="open"}`:                                                   "0",
		`cardmint_unattributed_coins{coin="monero"}`:                                       "0",
		`cardmint_scrape_errors_total`:                                                     "0",
		`cardmint_webhook_backlog_deliveries`:                                              "0",
	} {
		if got := metricValue(scraped, series); got != want {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
	for _, some := range []string{`cardmint_chain_last_good_pass_timestamp_seconds{coin="monero"}`,
		`cardmint_addresses_free{coin="monero"}`, `cardmint_epoch{coin="monero"}`,
		`cardmint_db_connections_max{pool="write"}`, `cardmint_chain_pass_duration_seconds_count{coin="monero"}`,
		"go_goroutines", "process_start_time_seconds"} {
		if got := metricValue(scraped, some); got == "" || got == "0" {
			t.Errorf("%s is %q", some, got)
		}
	}
	for what, secret := range map[string]string{"token": token, "card number": issued.Credentials.CardNumber,
		"password": issued.Credentials.URLPassword,
		"card":     paid.UUID.String(), "address": open.Payment.Address} {
		if secret == "" || strings.Contains(scraped, secret) {
			t.Errorf("the %s is empty, or in the metrics", what)
		}
	}
	s.stop(t)
}

func TestMetrics_APIRole_ExportsNoServiceState(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.account(t)
	s := p.launch(t, "serve", "--role", "api", "--simulated", "--rate", "monero=150", "--coins", "monero")
	s.Ready(t, 30*time.Second, func() error {
		if s.address() == "" {
			return io.EOF
		}
		return nil
	})
	scraped := s.scrape(t)
	for _, name := range []string{"cardmint_intents", "cardmint_open_cards", "cardmint_addresses_free",
		"cardmint_reconcile_doubts"} {
		if strings.Contains(scraped, name) {
			t.Errorf("%s is exported by a process without a worker", name)
		}
	}
	if metricValue(scraped, `cardmint_requests_in_flight`) == "" {
		t.Errorf("no metrics of the API:\n%s", scraped)
	}
	s.stop(t)
}

func TestMetrics_AddressInUse_IsReported(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := newProgram(t, "")
	p.account(t)
	_, stderr, code := p.run("serve", "--simulated", "--rate", "monero=150", "--metrics-listen", l.Addr().String())
	if code != 1 || !strings.Contains(stderr, "--metrics-listen") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--metrics-listen", "off")
	if strings.Contains(s.Output(), "/metrics") {
		t.Error("metrics are served with --metrics-listen off")
	}
	s.stop(t)
	for range 2 { // the second process takes another port than the default
		p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--metrics-listen", "127.0.0.1:9464")
	}
}
