package cli

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

// A source of rates that is out of order, or hangs, must not have the next good rate wait for longer than the operator said.
func TestRates_AGoodRateIsBackWithinOneInterval(t *testing.T) {
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
					live, err := rate.New([]rate.Source{good, ill}, slog.New(slog.DiscardHandler), rate.Config{Coins: []string{"monero"}, Timeout: sourceTimeout(every)})
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
