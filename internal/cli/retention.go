package cli

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/retention"
)

// retainEvery is how often a worker looks for what was kept for long enough.
const retainEvery = 10 * time.Minute

// retentionFlags say how long is kept what nobody paid for, and what happened.
type retentionFlags struct {
	Expired time.Duration `name:"retain-expired" env:"CARDMINT_RETAIN_EXPIRED" default:"8760h" placeholder:"DURATION" help:"Delete cards that nobody paid for so long after they were ordered, unless one of their events is still kept; 0 to keep them for good (${default}). Their addresses stay known. The same for all workers."`
	Events  time.Duration `name:"retain-events" env:"CARDMINT_RETAIN_EVENTS" default:"2160h" placeholder:"DURATION" help:"Delete events so long after they happened, a day after their deliveries at the earliest; 0 to keep them for good (${default}). Readers of the feed that are older get feed.reset. The same for all workers."`
}

func (f retentionFlags) policy(deliveries time.Duration) retention.Policy {
	return retention.Policy{Expired: f.Expired, Events: f.Events, Deliveries: deliveries}
}

func (f retentionFlags) check() error {
	return hint(f.policy(0).Check(),
		"--retain-expired and --retain-events take a duration of 168h or more, such as 8760h, or 0")
}

// addRetention adds the loop that deletes what was kept for long enough.
func (g *globals) addRetention(w *wired, dbs stores, p plan) error {
	cfg := retention.Config{Policy: p.retention.policy(p.webhooks.Retention),
		Holder: fmt.Sprintf("%s#%06x", processName(), rand.Uint32N(1<<24))}
	for _, coin := range chain.Currencies() {
		cfg.Currencies = append(cfg.Currencies, coin.Code)
	}
	keeper, err := retention.New(dbs.worker, g.log.With("loop", "retain"), cfg)
	if err != nil {
		return err
	}
	w.add(loop{name: "retain", every: retainEvery, tick: keeper.Tick, close: keeper.Close, grace: closeGrace})
	return nil
}
