package app

import (
	"context"
	"errors"
	"log/slog"
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
