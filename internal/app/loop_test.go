package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

// A source of rates that fails or hangs does not delay the next good rate
// beyond the configured interval.
func TestRates_SourceRecovers_RateWithinOneInterval(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		for name, hangs := range map[string]bool{"failing": false, "hanging": true} {
			t.Run(every.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					mended := began.Add(10*time.Minute + every/3)
					good := &played{name: "b", fetch: func(context.Context) error { return nil }}
					ill := &played{name: "a", fetch: func(ctx context.Context) error {
						if time.Now().After(mended) {
							return nil
						}
						if hangs {
							<-ctx.Done()
						}
						return errors.New("out of order")
					}}
					live, err := rate.New([]rate.Source{good, ill}, slog.New(slog.DiscardHandler),
						rate.Config{Coins: []string{"monero"}, Timeout: sourceTimeout(every)})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						ratesLoop(live, every, func() {}).run(ctx, slog.New(slog.DiscardHandler))
					}()
					for {
						time.Sleep(every / 100)
						if _, err := live.Rate("monero"); err == nil {
							break
						}
					}
					if late := time.Since(mended); late > every {
						t.Errorf("the rate is back after %s", late)
					}
					cancel()
					<-ended
				})
			})
		}
	}
}

// played is a source that does what a test says.
type played struct {
	name  string
	fetch func(context.Context) error
}

func (p *played) Name() string { return p.name }

func (p *played) Serves(string) bool { return true }

func (p *played) Fetch(ctx context.Context, coins []string) (map[string]rate.Quote, error) {
	return map[string]rate.Quote{"monero": {USD: parse("150"), At: time.Now()}}, p.fetch(ctx)
}

func parse(usd string) card.Decimal {
	d, err := card.ParseDecimal(usd, card.RateScale)
	if err != nil {
		panic(err)
	}
	return d
}

// A process that stops too slowly is killed. Closing takes as long as the
// slowest loop, and again as long for loops that close last.
func TestLoops_Shutdown_ClosesConcurrentlyInTwoSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closing, closed atomic.Int32
		l := loop{every: time.Second, grace: time.Minute, tick: func(context.Context) error {
			return nil
		}, close: func(ctx context.Context) error {
			closing.Add(1)
			defer closed.Add(1)
			time.Sleep(3 * time.Second)
			return ctx.Err()
		}}
		last := l
		last.closeLast = true
		loops := []loop{l, last, l, last}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, l := range loops {
			all.Go(func() { l.runAndClose(ctx, slog.New(slog.DiscardHandler)) })
		}
		time.Sleep(time.Minute)
		want := func(after time.Duration, nowClosing, nowClosed int32) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if closing.Load() != nowClosing || closed.Load() != nowClosed {
				t.Errorf("%d have begun to close and %d are closed, want %d and %d", closing.Load(), closed.Load(), nowClosing,
					nowClosed)
			}
		}
		want(0, 0, 0)
		cancel()
		want(2*time.Second, 2, 0)
		all.Wait()
		want(0, 2, 2)
		all.Go(func() { closeRemaining(ctx, loops, slog.New(slog.DiscardHandler)) })
		want(2*time.Second, 4, 2)
		want(time.Second, 4, 4)
	})
}

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

// spread runs replicas of a loop that start at the same moment and fail for a
// time, and counts, for ten seconds after that, how many ticks there are, and
// how many in the fullest tenth of a second.
func spread(t *testing.T, l loop, replicas int, ill time.Duration) (fullest, all int) {
	t.Helper()
	const while, part = 10 * time.Second, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var mu sync.Mutex
		parts := map[time.Duration]int{}
		l.tick = func(context.Context) error {
			at := time.Since(start) - ill
			if at < 0 {
				return errors.New("the database is away")
			}
			mu.Lock()
			defer mu.Unlock()
			parts[at/part]++
			return nil
		}
		var running sync.WaitGroup
		for range replicas {
			running.Go(func() { l.run(ctx, slog.New(slog.DiscardHandler)) })
		}
		time.Sleep(ill + while)
		cancel()
		running.Wait()
		for _, ticks := range parts {
			fullest, all = max(fullest, ticks), all+ticks
		}
	})
	return fullest, all
}

// Replicas that start together during an outage of the database retry at
// different times, because pauses vary by 10 %.
func TestLoops_ReplicasStartTogether_DoNotTickInStep(t *testing.T) {
	const replicas, ill = 40, 5 * time.Minute
	for name, l := range map[string]loop{
		"whose pauses grow while it fails": {every: time.Second},
		"that asks as often as ever":       {every: time.Second, maxPause: time.Second},
		"that keeps its time":              {every: time.Second, fixedRate: true},
	} {
		t.Run("a loop "+name, func(t *testing.T) {
			fullest, all := spread(t, l, replicas, ill)
			if all < replicas*5 {
				t.Errorf("only %d ticks", all)
			}
			if fullest > replicas/2 {
				t.Errorf("%d of %d replicas tick within a tenth of a second", fullest, replicas)
			}
		})
	}
}

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
			!strings.Contains(text, "loop_test.go:") || !strings.Contains(text, "msg=closing") {
			t.Errorf("logged:\n%s", text)
		}
		if strings.Contains(text, "4111") || strings.Contains(text, "canary") {
			t.Errorf("the value of the panic was logged:\n%s", text)
		}
	})
}
