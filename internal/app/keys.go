package app

import (
	"context"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/server"
)

const (
	keysEvery   = 2 * time.Second
	rotateEvery = 5 * time.Second
	purgeEvery  = time.Minute
)

// addKeys adds the loops that report keys, encrypt rows again after a rotation,
// and delete credentials.
func (p *process) addKeys() error {
	v := p.vault
	reporter := keys.NewReporter(p.dbs.api, v, uniqueName(), p.Log, nil)
	p.meter.KeyFile(v.FileError() == nil)
	tick := func(ctx context.Context) error {
		err := reporter.Tick(ctx)
		p.meter.KeyFile(v.FileError() == nil)
		return err
	}
	p.server.Checks = append(p.server.Checks,
		server.Check{Name: "key file", Warning: true, Run: func(context.Context) error {
			if err := v.FileError(); err != nil {
				return fmt.Errorf("%w: %w", card.Unready("lost or damaged: restore its copy before a restart"), err)
			}
			return nil
		}})
	p.add(loop{name: "keys", every: keysEvery, maxPause: keysEvery, tick: tick, close: reporter.Close, grace: closeGrace,
		closeLast: true})
	if !p.worker() {
		return nil
	}
	rotator := keys.NewRotator(p.dbs.worker, v, p.Log)
	p.add(loop{name: "rotate", every: rotateEvery, tick: rotator.Tick})
	purger, err := keys.NewPurger(p.dbs.worker, p.cfg.Credentials.Retention, p.Log)
	if err != nil {
		return err
	}
	p.add(loop{name: "purge", every: purgeEvery, tick: purger.Tick})
	return nil
}
