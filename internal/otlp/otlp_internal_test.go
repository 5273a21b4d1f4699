package otlp

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// open returns a provider that sends to an endpoint, and its log.
func open(t *testing.T, endpoint string) (*Provider, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	p, err := New(t.Context(), Config{Endpoint: endpoint, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return p, &log
}

// send sends two spans in a batch of their own.
func send(t *testing.T, p *Provider) {
	t.Helper()
	for range 2 {
		_, span := p.Tracer().Start(t.Context(), "a")
		span.End()
	}
	if err := p.provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestProvider_CollectorRejects_LogsOnceWithoutURL(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=SECRET%20KEY")
	for _, status := range []int{307, 400, 401, 404, 500} {
		asked := 0
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if r.Header.Get("X-Key") != "SECRET KEY" || r.URL.Path != "/SECRET/v1/traces" {
				t.Errorf("%s with key %q", r.URL, r.Header.Get("X-Key"))
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1000))
		}))
		p, log := open(t, web.URL+"/SECRET")
		for range 3 {
			send(t, p)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		web.Close()
		text := log.String()
		if asked != 3 || strings.Count(text, "traces lost") != 1 || !strings.Contains(text, "spans=2") ||
			!strings.Contains(text, http.StatusText(status)) || strings.Contains(text, "SECRET") || len(text) > 500 {
			t.Errorf("%d: %d requests; the log is %s", status, asked, text)
		}
	}
}

func TestProvider_CollectorAway_LogsWithoutURL(t *testing.T) {
	web := httptest.NewServer(nil)
	web.Close()
	p, log := open(t, web.URL+"/SECRET")
	send(t, p)
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "connection refused") || strings.Contains(text, "SECRET") {
		t.Errorf("the log is %s", text)
	}
}

func TestProvider_CollectorHangs_DelaysNeitherSpansNorClose(t *testing.T) {
	var asked atomic.Int32
	done := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-done
	}))
	defer web.Close()
	defer close(done)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5000")
	p, _ := open(t, web.URL)
	began := time.Now()
	for range 10_000 { // more than the queue holds
		_, span := p.Tracer().Start(t.Context(), "a")
		span.End()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); err == nil || time.Since(began) > 4*time.Second || asked.Load() == 0 {
		t.Errorf("error %v after %s and %d requests", err, time.Since(began), asked.Load())
	}
}

func TestConfig_Environment(t *testing.T) {
	const traces = "OTEL_EXPORTER_OTLP_TRACES_"
	for name, tt := range map[string]struct {
		endpoint string
		env      map[string]string
		want     string // the URL; "" if traces are off
		timeout  time.Duration
	}{
		"off":      {"", nil, "", 0},
		"endpoint": {"http://c:4318/", nil, "http://c:4318/v1/traces", defaultTimeout},
		"whole URL": {"http://c:4318", map[string]string{traces + "ENDPOINT": "https://t/x"},
			"https://t/x", defaultTimeout},
		"only whole URL": {"", map[string]string{traces + "ENDPOINT": "https://t/x"}, "https://t/x", defaultTimeout},
		"timeout": {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "1500"}, "http://c/v1/traces",
			1500 * time.Millisecond},
		"timeout of traces": {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "1", traces + "TIMEOUT": "2"},
			"http://c/v1/traces", 2 * time.Millisecond},
		"headers":     {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c, d=,"}, "http://c/v1/traces", defaultTimeout},
		"disabled":    {"http://c", map[string]string{"OTEL_SDK_DISABLED": "TRUE"}, "", 0},
		"no exporter": {"http://c", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range tt.env {
				t.Setenv(key, value)
			}
			cfg := Config{Endpoint: tt.endpoint}
			if cfg.On() != (tt.want != "") {
				t.Errorf("on is %t", cfg.On())
			}
			if tt.want == "" {
				return
			}
			if timeout, err := cfg.validate(); err != nil || cfg.url() != tt.want || timeout != tt.timeout {
				t.Errorf("%s, %s, error %v", cfg.url(), timeout, err)
			}
		})
	}
}

func TestNew_InvalidEnvironment_IsAnErrorWithoutSecrets(t *testing.T) {
	for _, tt := range []struct{ key, value string }{
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=%SECRET"}, {"OTEL_EXPORTER_OTLP_HEADERS", "SECRET"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "SECRET"}, {"OTEL_RESOURCE_ATTRIBUTES", "SECRET"}} {
		t.Run(tt.key, func(t *testing.T) {
			t.Setenv(tt.key, tt.value)
			_, err := New(t.Context(), Config{Endpoint: "http://c", Log: slog.New(slog.DiscardHandler)})
			if err == nil || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %v", err)
			}
		})
	}
}
