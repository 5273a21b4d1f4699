package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/limit"
)

// tally is a Metrics that records its calls.
type tally struct {
	mu     sync.Mutex
	begun  int
	ended  []string
	refuse []string
	sheds  []string
}

func (m *tally) Started() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun++
}

func (m *tally) Ended(operation string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if took < 0 {
		operation += " took less than no time"
	}
	m.ended = append(m.ended, fmt.Sprint(operation, " ", status))
}

func (m *tally) Limited(limit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = append(m.refuse, limit)
}

func (m *tally) Shed(kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sheds = append(m.sheds, kind)
}

// The recorded operations are operationIds of the contract, or none.
func TestMetrics_RecordOperations(t *testing.T) {
	t.Parallel()
	now, m := &manual{}, &tally{}
	d := deploy(t, setup{meter: m, requests: &limit.Config{Token: perMinute(3), Address: perMinute(1), Now: now.now}})
	token := d.token(t)
	d.send(t, http.MethodGet, "/api/currencies", token, "").want(t, http.StatusOK)
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	d.send(t, http.MethodGet, "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", token, "").want(t, http.StatusNotFound)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusTooManyRequests)
	d.send(t, http.MethodGet, "/api/cards", "nobody's", "").want(t, http.StatusUnauthorized)
	d.send(t, http.MethodGet, "/api/cards", "nobody's", "").want(t, http.StatusTooManyRequests)
	d.send(t, http.MethodGet, "/livez", "", "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/nothing/4111111111111111", token, "").want(t, http.StatusNotFound)
	m.mu.Lock()
	defer m.mu.Unlock()
	want := []string{"listCurrencies 200", "createCard 201", "getCard 404", "listCards 429", "listCards 401",
		"listCards 429", "none 404"}
	if !slices.Equal(m.ended, want) || m.begun != len(want) {
		t.Errorf("%d started, ended %q, want %q", m.begun, m.ended, want)
	}
	if want := []string{"token", "address"}; !slices.Equal(m.refuse, want) {
		t.Errorf("refused by %q, want %q", m.refuse, want)
	}
}
