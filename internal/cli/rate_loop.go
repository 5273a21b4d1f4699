package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/server"
)

// followEvery is how often at least a process looks for what operators have
// accepted.
const followEvery = 2 * time.Second

// addRates adds the loops of live rates, which are compared with those in the
// database, and a readiness check for each coin.
func (w *wired) addRates(ctx context.Context, p plan, book rate.Book) {
	p.live.UseBook(book, processName())
	_ = p.live.Follow(ctx) // so that the first round of the sources can be compared; the loop tells of errors
	news := make(wake, 1)
	w.add(loop{name: "accepted rates", every: followEvery, woken: news, steady: true, tick: p.live.Follow,
		close: p.live.Follow, grace: closeGrace})
	w.add(ratesLoop(p.live, p.ratesEvery, news.up))
	for _, coin := range p.orders.Currencies {
		check := server.Check{Name: "rates", Coin: coin.Code, Run: func(context.Context) error {
			return freshRate(p.live, coin.Code)
		}}
		if len(p.orders.Currencies) > 1 { // where there is one coin, alerts know the short name
			check.Name += " " + coin.Code
		}
		w.config.Checks = append(w.config.Checks, check)
	}
}

// processName names this process for operators.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// freshRate fails if there is no fresh rate of a coin. The cause may name
// addresses and limits of the operator, so it is for the log only.
func freshRate(live *rate.Live, coin string) error {
	_, err := live.Rate(coin)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rate.ErrParked):
		return fmt.Errorf("%w: %w", card.Unready("the rate of "+coin+" has moved too far; an operator must accept it"), err)
	}
	return fmt.Errorf("%w: %w", card.Unready("no fresh rate of "+coin), cmp.Or[error](live.Health(), card.ErrNoRate))
}

// ratesLoop keeps rates fresh, and calls asked after each round of the sources.
// After an outage the next good rate is there within one interval.
func ratesLoop(live *rate.Live, every time.Duration, asked func()) loop {
	return loop{name: "rates", every: every, steady: true, tick: func(ctx context.Context) error {
		defer asked()
		return live.Tick(ctx)
	}}
}
