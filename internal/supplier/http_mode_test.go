package supplier_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

// modal is a supplier that issues every card immediately. Its offers contain
// mode: a JSON value, or "" to omit it.
type modal struct {
	mu    sync.Mutex
	mode  string
	cards []string // bodies and paths of requests about cards
}

func (m *modal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.URL.Path == "/offers" {
		field := ""
		if m.mode != "" {
			field = `,"mode":` + m.mode
		}
		says(`{"offers":[],"key_retention_seconds":null`+field+`}`)(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	m.cards = append(m.cards, r.Method+" "+string(body))
	says(issuedBody)(w, r)
}

func (m *modal) set(mode string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mode = mode
}

func (m *modal) asked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.cards, "\n")
}

func inMode(mode string) func(*supplier.HTTPConfig) {
	return func(c *supplier.HTTPConfig) { c.Mode = mode }
}

func TestHTTP_OtherMode_SendsNoRequest(t *testing.T) {
	for name, tt := range map[string]struct{ ours, theirs, want string }{
		"test mode, real cards":      {card.TestMode, `"live"`, "the supplier makes real cards"},
		"test mode, mode not stated": {card.TestMode, ``, "the supplier makes real cards"},
		"live mode, test cards":      {card.LiveMode, `"test"`, "the supplier's cards are not real"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &modal{mode: tt.theirs}
			s := connect(t, start(t, m.ServeHTTP), inMode(tt.ours))
			if tt.ours == card.LiveMode { // test mode reads the offers itself
				_, _ = s.Offers(t.Context())
			}
			for _, f := range []call{s.Submit, s.Lookup} {
				a, err := f(t.Context(), asked)
				var busy *issue.BusyError
				if a != (issue.Answer{}) || !errors.As(err, &busy) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s, %v; want the request not accepted, because %s", a.Outcome, err, tt.want)
				}
			}
			if _, err := s.Offers(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("offers: %v", err)
			}
			if m.asked() != "" {
				t.Errorf("requests to the supplier: %s", m.asked())
			}
		})
	}
}

func TestHTTP_SameMode_IsSent(t *testing.T) {
	for name, tt := range map[string]struct{ ours, theirs, want string }{
		"test":                       {card.TestMode, `"test"`, `"mode":"test"`},
		"live":                       {card.LiveMode, `"live"`, `"mode":"live"`},
		"live, and mode not stated":  {card.LiveMode, ``, `"mode":"live"`},
		"live is the default":        {"", `"live"`, `"mode":"live"`},
		"live, and offers not known": {card.LiveMode, `7`, `"mode":"live"`},
	} {
		t.Run(name, func(t *testing.T) {
			m := &modal{mode: tt.theirs}
			s := connect(t, start(t, m.ServeHTTP), inMode(tt.ours))
			if a, err := s.Submit(t.Context(), asked); err != nil || a.Outcome != issue.Issued {
				t.Fatalf("%s, %v", a.Outcome, err)
			}
			if !strings.Contains(m.asked(), tt.want) {
				t.Errorf("sent %s, want %s", m.asked(), tt.want)
			}
		})
	}
}

func TestHTTP_UnknownMode_IsAnError(t *testing.T) {
	for _, mode := range []string{`"LIVE"`, `"sandbox"`, `""`, `7`, `{}`, `null`} {
		m := &modal{mode: mode}
		for _, ours := range []string{card.TestMode, card.LiveMode} {
			s := connect(t, start(t, m.ServeHTTP), inMode(ours))
			if _, err := s.Offers(t.Context()); err == nil {
				t.Errorf("%s mode accepts offers whose mode is %s", ours, mode)
			}
		}
	}
}

func TestHTTP_ModeChanges_LastOffersCount(t *testing.T) {
	m := &modal{mode: `"test"`}
	s := connect(t, start(t, m.ServeHTTP), inMode(card.TestMode))
	if _, err := s.Submit(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	m.set(`"live"`)
	_, _ = s.Offers(t.Context())
	if a, err := s.Submit(t.Context(), asked); err == nil {
		t.Errorf("a test card was requested from a live supplier: %s", a.Outcome)
	}
	m.set(`"test"`)
	if _, err := s.Submit(t.Context(), asked); err == nil {
		t.Error("requested again without new offers")
	}
	_, _ = s.Offers(t.Context())
	if _, err := s.Submit(t.Context(), asked); err != nil {
		t.Error(err)
	}
}

func TestHTTP_WrongModeAnswer_IsBusy(t *testing.T) {
	const body = `{"type":"about:blank","title":"Wrong mode","status":403,"code":"wrong_mode","detail":"` + canary + `"}`
	for name, tt := range map[string]struct {
		says  http.HandlerFunc
		taken bool
	}{
		"by the contract": {gives(403, problem, body), false},
		"another problem": {gives(403, problem, strings.Replace(body, "wrong_mode", "unauthorized", 1)), true},
		"of a proxy":      {gives(403, "text/html", body), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connect(t, start(t, tt.says)).Submit(t.Context(), asked)
			var busy *issue.BusyError
			if err == nil || errors.As(err, &busy) == tt.taken || strings.Contains(err.Error(), canary) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNewHTTP_UnknownMode_IsAnError(t *testing.T) {
	cfg := supplier.HTTPConfig{Name: "acme", URL: "https://cards.example.net", Secret: secret, Mode: "staging"}
	if _, err := supplier.NewHTTP(cfg); err == nil {
		t.Error("accepted")
	}
}
