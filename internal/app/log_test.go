package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/cardmint/cardmint/internal/trace"
)

func TestNewLoggers_Lines_HaveLoopTraceAndUnits(t *testing.T) {
	t.Parallel()
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	for format, want := range map[string][]string{
		"text": {`msg=worked took=1.5s loop=work trace_id=` + traceID, `msg=failed error="out of order" loop=work`,
			`msg=closing error="out of order" loop=work`, `msg=elsewhere a=b` + "\n"},
		"json": {`"msg":"worked","took":"1.5s","loop":"work","trace_id":"` + traceID + `"}`,
			`"msg":"failed","error":"out of order","loop":"work"}`,
			`"msg":"closing","error":"out of order","loop":"work"}`, `"msg":"elsewhere","a":"b"}`},
	} {
		var out strings.Builder
		log, _ := NewLoggers(&out, format, slog.LevelInfo)
		p := sdk.NewTracerProvider()
		defer func() { _ = p.Shutdown(context.Background()) }()
		tracer := trace.New(p.Tracer("test"), nil)
		ctx, cancel := context.WithCancel(t.Context())
		ticks := 0
		l := loop{name: "work", every: time.Millisecond, grace: time.Minute, close: func(context.Context) error {
			return errors.New("out of order")
		},
			tick: func(ctx context.Context) error {
				if ticks++; ticks > 1 {
					cancel()
				}
				ctx, span := tracer.StartServer(ctx, "x", "00-"+traceID+"-b7ad6b7169203331-01")
				defer span.End()
				log.InfoContext(ctx, "worked", "took", 1500*time.Millisecond)
				return errors.New("out of order")
			}}
		l.run(ctx, log)
		l.shutdown(ctx, log)
		log.With("a", "b").Info("elsewhere")
		for _, line := range want {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: no %s in\n%s", format, line, out.String())
			}
		}
	}
}

func TestNewLoggers_AuditLog_HasNoLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{"debug": "debug info error audit", "info": "info error audit",
		"error": "error audit"} {
		for _, format := range []string{"text", "json"} {
			var out strings.Builder
			var lowest slog.Level
			if err := lowest.UnmarshalText([]byte(level)); err != nil {
				t.Fatal(err)
			}
			log, audit := NewLoggers(&out, format, lowest)
			log = log.With("a", 1).WithGroup("b")
			log.Debug("says debug")
			log.Info("says info")
			log.Error("says error")
			audit.Info("says audit")
			var got []string
			for _, word := range []string{"debug", "info", "error", "audit"} {
				if strings.Contains(out.String(), "says "+word) {
					got = append(got, word)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, %s: %q, want %q", format, level, got, want)
			}
		}
	}
}
