package panics_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/panics"
)

var errOrdinary = errors.New("ordinary")

//go:noinline
func index(n int, list []int) int { return list[n] }

func TestCall_Panic_ReturnsErrorWithoutValue(t *testing.T) {
	for name, f := range map[string]func() error{
		"string":  func() error { panic("4111 canary") },
		"error":   func() error { panic(fmt.Errorf("canary: %w", errOrdinary)) },
		"runtime": func() error { return fmt.Errorf("%d", index(5, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			before := panics.Recovered()
			err := fmt.Errorf("watch: %w", panics.Call(f))
			if _, is := errors.AsType[*panics.Error](err); !is || panics.Recovered() != before+1 {
				t.Fatalf("error %v, %d panics", err, panics.Recovered()-before)
			}
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Error("failed", "error", err, panics.Stack(err))
			if text := log.String(); strings.Contains(text, "canary") || !strings.Contains(text, "panics_test.go:") ||
				!strings.Contains(text, " < ") {
				t.Errorf("logged: %s", text)
			}
			if errors.Is(err, errOrdinary) {
				t.Error("the value can be reached by errors.Is")
			}
			if name == "runtime" && !strings.Contains(err.Error(), "boundsError at panics_test.index (panics_test.go:") {
				t.Errorf("the error does not name the place: %v", err)
			}
		})
	}
}

func TestCall_NoPanic_ReturnsError(t *testing.T) {
	before := panics.Recovered()
	if err := panics.Call(func() error { return errOrdinary }); err != errOrdinary { //nolint:errorlint // must not be wrapped
		t.Errorf("error %v", err)
	}
	if err := panics.Call(func() error { return nil }); err != nil {
		t.Errorf("error %v", err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Error("failed", "error", errOrdinary, panics.Stack(errOrdinary))
	if strings.Contains(log.String(), "stack") || panics.Recovered() != before {
		t.Errorf("logged %s, %d panics", log.String(), panics.Recovered()-before)
	}
}
