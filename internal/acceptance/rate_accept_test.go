package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// rateFlags returns the flags of a service with two sources that both report
// usd.
func rateFlags(t *testing.T, usd *atomic.Value) []string {
	return []string{"--rate-sources", "coingecko,kraken", "--rate-url", "coingecko=" + coingecko(t, usd), "--rate-url",
		"kraken=" + kraken(t, usd)}
}

// ratesReady returns the status of /readyz, and the reason why no rate is
// available.
func ratesReady(t *testing.T, s *server) (status int, reason string) {
	t.Helper()
	status, body := get(t, s.url+"/readyz")
	var why struct{ Reasons map[string]string }
	if err := json.Unmarshal([]byte(body), &why); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return status, why.Reasons["rates"]
}

// The service must not accept ten times the price, although both sources agree
// on it, repeat it, and the service is restarted.
func TestRates_LargeMove_WaitsForOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a simulated service waits 5 s for a rate before it listens")
	}
	t.Parallel()
	var usd atomic.Value
	usd.Store("150")
	p := newProgram(t, "")
	token := p.account(t)
	sources := rateFlags(t, &usd)
	serve := append([]string{"serve", "--simulated", "--rate-every", "200ms", "--rate-max-age", "6s"}, sources...)
	s := p.serve(t, serve...)
	order := client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"}
	if _, err := newClient(t, s.url, token).CreateCard(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := p.run("rate", "accept", "--note", "why not")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stderr, "no rate of monero waits for an operator", "hint: ")

	const parked = "the rate of monero has moved too far; an operator must accept it"
	waits := func() {
		t.Helper()
		s.Ready(t, 20*time.Second, func() error {
			if status, reason := ratesReady(t, s); status != http.StatusServiceUnavailable || reason != parked {
				return fmt.Errorf("%d, %q", status, reason)
			}
			return nil
		})
		if status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, ""); status != http.StatusServiceUnavailable ||
			!strings.Contains(body, "rate_unavailable") {
			t.Errorf("create: %d %s", status, body)
		}
		s.Ready(t, 20*time.Second, func() error {
			if stdout, stderr, _ := p.run("rate", "accept", "--note", "x"); !strings.Contains(stdout, "would accept 1500 USD") {
				return errors.New(stdout + stderr)
			}
			return nil
		})
	}
	usd.Store("1500")
	waits()
	wantOutput(t, s.Output(), "level=ERROR", "1500 is more than 30 percent from 150")
	// After a restart, the service must still reject the rate.
	s.stop(t)
	restarted := time.Now()
	s = p.startListening(t, serve...)
	for range 10 {
		if status, _ := ratesReady(t, s); status == http.StatusOK {
			t.Fatalf("ready %s after the restart", time.Since(restarted))
		}
		time.Sleep(20 * time.Millisecond)
	}
	waits()

	shown, stderr, code := p.run(append([]string{"rate", "show", "monero"}, sources...)...)
	if code != 1 {
		t.Errorf("rate show: exit code %d", code)
	}
	wantOutput(t, shown, "accepted: 150 USD", "by ", "coingecko=150 kraken=150", "waits for an operator: 1500 USD")
	wantOutput(t, stderr, "cardmint rate accept monero")

	for _, tt := range []struct{ args, want string }{
		{"rate accept", "--note"},
		{"rate accept --note x --yes", "--yes needs --usd"},
		{"rate accept doge --note x", `"doge" is not the code of a currency`},
		{"rate accept --note x --usd 1e3", `--usd: "1e3"`},
		{"rate accept --note x --usd 150 --yes", "the sources do not say 150 USD for monero, but 1500"},
		{"rate accept --note x --usd 15000 --yes", "the sources do not say 15000 USD"},
	} {
		stdout, stderr, code := p.run(strings.Fields(tt.args)...)
		if code == 0 || stdout != "" {
			t.Errorf("%s: exit code %d, printed %q", tt.args, code, stdout)
		}
		wantOutput(t, stderr, tt.want, "hint: ")
	}
	dry := p.must(t, "rate", "accept", "--note", "the market says so too")
	wantOutput(t, dry, "1500 is more than 30 percent from 150", "would accept 1500 USD for monero", "Nothing was changed",
		"--usd 1500 --yes")
	wantOutput(t, p.must(t, "rate", "accept", "--note", "x", "--usd", "1500"), "Nothing was changed")
	if status, _ := ratesReady(t, s); status == http.StatusOK {
		t.Error("accepted without --yes")
	}

	done := p.must(t, "rate", "accept", "--note", "the market says so too", "--operator", "alice", "--usd", "1500",
		"--yes")
	wantOutput(t, done, "recorded: alice accepts 1500 USD for monero")
	decided := time.Now()
	s.Ready(t, 20*time.Second, func() error {
		if status, reason := ratesReady(t, s); status != http.StatusOK {
			return errors.New(reason)
		}
		return nil
	})
	if took := time.Since(decided); took > 5*time.Second {
		t.Errorf("the service uses the accepted rate after %s", took)
	}
	bought, err := newClient(t, s.url, token).CreateCard(t.Context(), order)
	if err != nil || bought.Payment.Rate.String() != "1500" {
		t.Errorf("%+v, %v", bought, err)
	}
	wantOutput(t, s.Output(), "rate accepted by an operator", "alice", "the market says so too")
	wantOutput(t, p.must(t, "rate", "accept", "--note", "x", "--usd", "1500", "--yes"),
		"nothing left to do: alice accepted 1500 USD")
	shown = p.must(t, append([]string{"rate", "show", "monero"}, sources...)...)
	wantOutput(t, shown, "1500 USD", "accepted: 1500 USD")
}

// startListening starts a command that serves, and waits until it listens.
func (p *program) startListening(t *testing.T, args ...string) *server {
	t.Helper()
	s := p.launch(t, args...)
	s.Ready(t, 30*time.Second, func() error {
		if s.url = s.address(); s.url == "" {
			return errors.New("no address printed yet")
		}
		return nil
	})
	return s
}

// The service must use an accepted rate before it next reads the sources. A
// killed service must have stored its last rate.
func TestRateAccept_RunningService_TakesEffectWithinSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for three rounds of 6 s")
	}
	t.Parallel()
	var usd atomic.Value
	usd.Store("150")
	p := newProgram(t, "")
	p.account(t)
	sources := rateFlags(t, &usd)
	serve := append([]string{"serve", "--simulated", "--rate-every", "200ms", "--rate-max-age", "30s"}, sources...)
	s := p.serve(t, serve...)
	s.Ready(t, 20*time.Second, func() error {
		if shown := p.must(t, append([]string{"rate", "show"}, sources...)...); !strings.Contains(shown,
			"accepted: 150 USD") {
			return errors.New(shown)
		}
		return nil
	})
	s.Signal(t, syscall.SIGKILL)
	usd.Store("300")
	serve[3] = "6s"
	s = p.startListening(t, serve...)
	s.Ready(t, 30*time.Second, func() error {
		if _, reason := ratesReady(t, s); !strings.Contains(reason, "an operator must accept it") {
			return errors.New(reason)
		}
		return nil
	})
	p.must(t, "rate", "accept", "--note", "x", "--usd", "300", "--yes")
	decided := time.Now()
	s.Ready(t, 20*time.Second, func() error {
		if status, reason := ratesReady(t, s); status != http.StatusOK {
			return errors.New(reason)
		}
		return nil
	})
	took := time.Since(decided)
	t.Logf("the service uses the accepted rate after %s", took)
	if took > 5*time.Second {
		t.Error("the service has waited for the next round of its sources")
	}
}

// The service compares rates with those in the database, but must not depend on
// it. Rates stay fresh while the database is frozen, and are stored after the
// thaw.
func TestRates_DatabaseFrozen_StayFresh(t *testing.T) {
	t.Parallel()
	var usd atomic.Value
	usd.Store("150")
	c := rig.NewCluster(t)
	p := newProgram(t, c.URL("postgres"))
	token := p.account(t)
	s := p.serve(t,
		append([]string{"serve", "--simulated", "--rate-every", "200ms", "--rate-max-age", "5s"}, rateFlags(t, &usd)...)...)
	c.Freeze()
	for frozen := time.Now(); time.Since(frozen) < 8*time.Second; time.Sleep(100 * time.Millisecond) {
		if _, reason := ratesReady(t, s); reason != "" {
			t.Fatalf("after %s: %s", time.Since(frozen), reason)
		}
	}
	usd.Store("151")
	c.Thaw()
	awaitStatus(t, s.url+"/readyz", http.StatusOK, 10*time.Second)
	if status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, ""); status != http.StatusCreated {
		t.Errorf("%d %s", status, body)
	}
	s.Ready(t, 20*time.Second, func() error {
		if last := c.Value(t, "SELECT usd FROM accepted_rates ORDER BY accepted_at DESC LIMIT 1"); last != "15100000000" {
			return fmt.Errorf("stored rate is %s", last)
		}
		return nil
	})
	if n := c.Value(t, "SELECT COUNT(*) FROM accepted_rates"); n != "2" {
		t.Errorf("%s rates are stored, want 2", n)
	}
}
