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

// followEvery is how often a process looks for what operators have accepted.
const followEvery = 2 * time.Second

// addRates adds the loops of live rates, which are compared with those in the database, and a readiness check for each coin.
func (w *wired) addRates(p plan, book rate.Book) {
	p.live.UseBook(book, processName())
	w.add(ratesLoop(p.live, p.ratesEvery))
	w.add(loop{name: "accepted rates", every: followEvery, steady: true, tick: p.live.Follow})
	for _, coin := range p.orders.Currencies {
		check := server.Check{Name: "rates", Coin: coin.Code, Ask: func(context.Context) error { return freshRate(p.live, coin.Code) }}
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

// freshRate fails if there is no fresh rate of a coin. The cause may name addresses and limits of the operator, so it is for the log only.
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

// ratesLoop keeps rates fresh. After an outage the next good rate is there within one interval.
func ratesLoop(live *rate.Live, every time.Duration) loop {
	return loop{name: "rates", every: every, steady: true, tick: live.Tick}
}
