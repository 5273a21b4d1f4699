package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
)

// coingecko starts a fake CoinGecko that reports usd, or fails while usd is
// empty.
func coingecko(t *testing.T, usd *atomic.Value) string {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		price := usd.Load().(string)
		if price == "" {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"monero":{"usd":%s,"last_updated_at":%d}}`, price, time.Now().Unix())
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// kraken starts a fake Kraken that reports usd.
func kraken(t *testing.T, usd *atomic.Value) string {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"error":[],"result":{"XXMRZUSD":[["%s","0.5",%d.5,"b","m","",1]],"last":"1"}}`, usd.Load(),
			time.Now().Unix())
	}))
	t.Cleanup(web.Close)
	return web.URL
}

func TestRates_NoFreshRate_RefusesOrders(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits until a rate is too old, which takes 6 s")
	}
	var gecko, krak atomic.Value
	gecko.Store("150.5")
	krak.Store("149.5")
	p := newProgram(t, "")
	token := p.account(t)
	flags := []string{"--rate-sources", "coingecko,kraken", "--rate-url", "coingecko=" + coingecko(t, &gecko),
		"--rate-url", "kraken=" + kraken(t, &krak)}
	shown := p.must(t, append([]string{"rate", "show", "monero"}, flags...)...)
	wantOutput(t, shown, "150 USD", "coingecko=150.5", "kraken=149.5")

	s := p.serve(t,
		append([]string{"serve", "--simulated", "--rate-every", "100ms", "--rate-max-age", "5s", "--markup", "20"},
			flags...)...)
	c := newClient(t, s.url, token)
	order := client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"}
	quoted, err := c.CreateCard(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	if quoted.Payment.Amount.String() != "1.2" || quoted.Payment.Rate.String() != "125" {
		t.Errorf("150 dollars at a rate of 150 with 20 %% markup cost %s at %s", quoted.Payment.Amount, quoted.Payment.Rate)
	}
	wantOutput(t, p.must(t, "card", "show", quoted.UUID.String()), "coingecko=150.5 kraken=149.5 markup=20%")

	gecko.Store("")
	s.Ready(t, 20*time.Second, func() error {
		if status, _ := get(t, s.url+"/readyz"); status != http.StatusServiceUnavailable {
			return errors.New("still ready")
		}
		return nil
	})
	_, body := get(t, s.url+"/readyz")
	var why struct {
		Failing []string
		Reasons map[string]string
	}
	if err := json.Unmarshal([]byte(body), &why); err != nil || len(why.Failing) != 1 ||
		why.Reasons["rates"] != "no fresh rate of monero" {
		t.Errorf("readiness: %s", body)
	}
	r, _ := http.NewRequest(http.MethodPost, s.url+"/api/cards",
		strings.NewReader(`{"usd_amount":150,"currency":"monero"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("without a rate: %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	// The earlier quote remains valid.
	paid, err := c.SimulatePayment(t.Context(), quoted.UUID, client.SimulatePaymentRequest{})
	if err != nil || paid.Status != client.CardStatusGenerated {
		t.Errorf("%+v, %v", paid, err)
	}
	wantOutput(t, s.Output(), "coingecko: HTTP status 503")
	gecko.Store("150.5")
	s.Ready(t, 20*time.Second, func() error {
		if status, _ := get(t, s.url+"/readyz"); status != http.StatusOK {
			return errors.New("not ready yet")
		}
		return nil
	})
	if _, err := c.CreateCard(t.Context(), order); err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
