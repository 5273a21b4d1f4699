package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is a log that several goroutines write.
type buffer struct {
	sync.Mutex
	strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Builder.Write(p)
}

// A panicking loop backs off like a failing one, and other loops continue.
func TestLoop_Panic_BacksOffAndContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		began, ticks, others := time.Now(), []time.Duration{}, 0
		broken := loop{name: "broken", every: 100 * time.Millisecond, grace: time.Second, tick: func(context.Context) error {
			if ticks = append(ticks, time.Since(began)); time.Since(began) < time.Minute {
				panic("card number 4111 1111 1111 1111")
			}
			return nil
		}, close: func(context.Context) error { panic(errors.New("canary")) }}
		well := loop{name: "well", every: time.Second, tick: func(context.Context) error { others++; return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, l := range []loop{broken, well} {
			all.Go(func() { l.runAndClose(ctx, slog.New(slog.NewTextHandler(&log, nil))) })
		}
		time.Sleep(2 * time.Minute)
		cancel()
		all.Wait()
		failed := 0
		for failed < len(ticks) && ticks[failed] < time.Minute {
			failed++
		}
		if failed < 10 || failed > 30 || len(ticks) < failed+500 {
			t.Errorf("%d ticks in the minute with panics, %d after it", failed, len(ticks)-failed)
		}
		if others < 100 {
			t.Errorf("the other loop had %d ticks in two minutes", others)
		}
		text := log.String()
		if n := strings.Count(text, "msg=failed"); n < 1 || n > 3 ||
			!strings.Contains(text, "loop_panic_test.go:") || !strings.Contains(text, "msg=closing") {
			t.Errorf("logged:\n%s", text)
		}
		if strings.Contains(text, "4111") || strings.Contains(text, "canary") {
			t.Errorf("the value of the panic was logged:\n%s", text)
		}
	})
}
