package app

import (
	"context"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/clock"
	"github.com/cardmint/cardmint/internal/settle"
)

// clockEvery is the interval between two comparisons of the clocks.
const clockEvery = 15 * time.Second

// maxClockRead limits how long reading another clock may take. The error of the
// reading is half of that.
const maxClockRead = 10 * time.Second

// clockCheck compares this machine's clock with other clocks.
type clockCheck struct {
	watch *clock.Watch
	now   func() time.Time // the machine's clock
	db    interface {
		Clock(ctx context.Context) (time.Time, error)
	}
	rates  func(time.Duration) map[string]time.Duration // nil if rates are fixed
	export func(ahead map[string]time.Duration, wrong bool)
}

func (p *process) newClockCheck() *clockCheck {
	c := &clockCheck{watch: clock.New(time.Now), now: time.Now, export: p.meter.Clock}
	if p.live != nil {
		c.rates = p.live.ClocksAhead
	}
	return c
}

// addClock adds the loop and the readiness check of the clock.
func (p *process) addClock() {
	c := p.clock
	c.db = p.dbs.api
	p.add(loop{name: "clock", every: clockEvery, tick: c.tick, health: func(context.Context) error { return c.health() }})
}

// tick takes a reading of every clock.
func (c *clockCheck) tick(ctx context.Context) error {
	began := c.now()
	now, err := c.db.Clock(ctx)
	if took := c.now().Sub(began); err == nil && took <= maxClockRead {
		c.watch.Record(clock.Database, "database", began.Add(took/2).Sub(now))
	}
	if c.rates != nil {
		for name, ahead := range c.rates(time.Minute) {
			c.watch.Record(clock.Server, name, ahead)
		}
	}
	ahead := map[string]time.Duration{}
	for _, r := range c.watch.Readings() {
		ahead[r.Name] = r.Ahead
	}
	c.export(ahead, c.watch.Wrong() != "")
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	return nil
}

// block takes a reading of the newest block's time.
func (c *clockCheck) block(coin string, r settle.Report) {
	if r.Applied {
		c.watch.Record(clock.Block, coin+" block", c.now().Sub(r.Tip.Time))
	}
}

// health returns an error if the clock is wrong. The error is a card.Unready.
func (c *clockCheck) health() error {
	if why := c.watch.Wrong(); why != "" {
		return card.Unready(why)
	}
	return nil
}
