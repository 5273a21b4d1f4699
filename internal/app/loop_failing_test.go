package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// runFor runs a loop for a time, while it is woken 200 times a second.
func runFor(t *testing.T, l loop, long time.Duration) (log string) {
	t.Helper()
	var text strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	l.wake = make(wake, 1)
	go func() {
		defer close(ended)
		l.run(ctx, slog.New(slog.NewTextHandler(&text, nil)))
	}()
	for range long / (5 * time.Millisecond) {
		l.wake.notify()
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	<-ended
	return text.String()
}

func TestLoop_WokenWhileItFails_KeepsItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks := 0
		log := runFor(t,
			loop{name: "watch", every: 2 * time.Second, maxPause: 2 * time.Second, tick: func(context.Context) error {
				ticks++
				return card.Unready("monerod: connection lost").Wrap(fmt.Errorf("read 127.0.0.1:%d: reset", 40000+ticks))
			}}, 5*time.Minute)
		if most := 5*60/2*10/9 + 1; ticks > most || ticks < 5*60/2*9/11 {
			t.Errorf("%d ticks, want up to %d", ticks, most)
		}
		if n := strings.Count(log, "\n"); n < 4 || n > 6 || !strings.Contains(log, `cause="monerod: connection lost"`) {
			t.Errorf("%d lines for one cause in five minutes:\n%s", n, log)
		}
	})
}

// A wake-up during the pause is not lost.
func TestLoop_WokenDuringPause_RunsAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks := 0
		runFor(t, loop{name: "watch", every: time.Second, tick: func(context.Context) error {
			if ticks++; ticks == 1 {
				return errors.New("away")
			}
			return nil
		}}, 4*time.Second)
		if ticks < 300 { // after at most 2.2 s, one every 5 ms
			t.Errorf("%d ticks", ticks)
		}
	})
}
