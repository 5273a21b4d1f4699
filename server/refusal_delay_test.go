package server_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// A client that retries immediately gets 100 refusals per second over all of
// its connections, and delays no other client.
func TestLimits_ManyRefusals_AreDelayed(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]limit.Config{"a token": {Token: perMinute(1)},
		"an address": {Address: perMinute(1)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config.Now = time.Now
			d := deploy(t, setup{requests: &config})
			token := "nobody's"
			if config.Token.On() {
				token = d.token(t)
			}
			var refused atomic.Int64
			var all sync.WaitGroup
			start := time.Now()
			for range 32 {
				all.Go(func() {
					for time.Since(start) < 2*time.Second {
						if d.send(t, http.MethodGet, "/api/currencies", token, "").status == http.StatusTooManyRequests {
							refused.Add(1)
						}
					}
				})
			}
			all.Wait()
			// A burst of 100, then 100 per second, plus the requests in flight.
			if n := refused.Load(); n < 100 || n > 100+300+32 {
				t.Errorf("%d refusals", n)
			}
		})
	}
}

// durationRecorder is a Metrics that records the durations of refusals.
type durationRecorder struct {
	tally
	took []time.Duration
}

func (m *durationRecorder) Ended(operation string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, took)
}

// exhaust sends requests until the next refusal is delayed by a second.
func (d *deployment) exhaust(t *testing.T) (token string) {
	t.Helper()
	token, account := d.owner(t)
	d.send(t, http.MethodGet, "/api/currencies", token, "").want(t, http.StatusOK)
	for range 300 {
		d.requests.Take(uuid.New(), account, false)
	}
	return token
}

func TestLimits_Delay_IsNotRecordedAsDuration(t *testing.T) {
	t.Parallel()
	m := &durationRecorder{}
	d := deploy(t, setup{meter: m, requests: &limit.Config{Account: perMinute(1), Now: (&manual{}).now}})
	token := d.exhaust(t)
	start := time.Now()
	d.send(t, http.MethodGet, "/api/currencies", token, "").refused(t, http.StatusTooManyRequests, "rate_limited")
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("refused after %s", waited)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if took := m.took[len(m.took)-1]; took >= time.Second {
		t.Errorf("the recorded duration is %s", took)
	}
	entries := d.log.entries(t)
	last := entries[len(entries)-1]
	held, _ := last["held"].(float64)
	if took, _ := last["took"].(float64); held < 1e9 || took >= 1e9 {
		t.Errorf("%v", last)
	}
	if _, told := entries[0]["held"]; told {
		t.Errorf("%v", entries[0])
	}
}
