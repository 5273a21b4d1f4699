package otlp

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// upload has a client send spans to a collector with these answers, and returns
// how often it was asked, and what the log says.
func upload(t *testing.T, ended bool, answers ...int) (asked int, said string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[asked])
		asked++
	}))
	defer web.Close()
	var log bytes.Buffer
	c := newClient(web.URL+"/SECRET", time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
	c.pause = time.Nanosecond
	if ended {
		c.pause = time.Hour
		close(c.ending)
	}
	spans := []*tracepb.ResourceSpans{
		{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "a"}, {Name: "b"}}}}}}
	for asked < len(answers) {
		before := asked
		if err := c.UploadTraces(t.Context(), spans); err != nil || asked == before {
			t.Fatalf("asked %d times, error %v", asked, err)
		}
	}
	return asked, log.String()
}

func TestClient_TriesAgainWhatMaySucceed(t *testing.T) {
	if _, said := upload(t, false, 503, 429, 200); said != "" {
		t.Errorf("the log is %s", said)
	}
	asked, said := upload(t, false, 502, 504, 503)
	if asked != 3 || !strings.Contains(said, `spans=2 error="the collector answered 503"`) {
		t.Errorf("asked %d times; the log is %s", asked, said)
	}
	if _, said := upload(t, true, 503); !strings.Contains(said, "answered 503") { // a process that ends waits for nobody
		t.Errorf("the log is %s", said)
	}
}

func TestClient_TellsOnceOfMany(t *testing.T) {
	for _, status := range []int{400, 401, 404, 307, 500} {
		asked, said := upload(t, false, status, status, status)
		if n := strings.Count(said, "traces are lost"); asked != 3 || n != 1 || strings.Contains(said, "SECRET") {
			t.Errorf("%d: asked %d times, told %d times: %s", status, asked, n, said)
		}
	}
}

func TestConfig_FollowsTheEnvironment(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoint string
		env      map[string]string
		want     string // the URL, "" if traces are off
		timeout  time.Duration
	}{
		"off":      {"", nil, "", 0},
		"endpoint": {"http://c:4318/", nil, "http://c:4318/v1/traces", defaultTimeout},
		"whole address": {"http://c:4318", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"},
			"https://t/x", defaultTimeout},
		"only that": {"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"}, "https://t/x",
			defaultTimeout},
		"timeout": {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "1500"}, "http://c/v1/traces",
			1500 * time.Millisecond},
		"its timeout": {"http://c",
			map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2"},
			"http://c/v1/traces", 2 * time.Millisecond},
		"disabled":    {"http://c", map[string]string{"OTEL_SDK_DISABLED": "TRUE"}, "", 0},
		"no exporter": {"http://c", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, "", 0},
	} {
		cfg := Config{Endpoint: tt.endpoint, Getenv: func(key string) string { return tt.env[key] }}
		if cfg.On() != (tt.want != "") {
			t.Errorf("%s: on is %t", name, cfg.On())
		}
		if tt.want == "" {
			continue
		}
		if c, err := cfg.client(); err != nil || c.url != tt.want || c.timeout != tt.timeout {
			t.Errorf("%s: %+v, error %v", name, c, err)
		}
	}
	for key, value := range map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "10s",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_HEADERS": "a=%SECRET",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "SECRET"} {
		cfg := Config{Endpoint: "http://c", Getenv: func(k string) string { return map[string]string{key: value}[k] }}
		if _, err := cfg.client(); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s=%s: error %v", key, value, err)
		}
	}
}
