package app

import (
	"time"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/retention"
)

const retainEvery = 10 * time.Minute

// RetentionConfig configures how long unpaid cards and events are kept.
type RetentionConfig struct {
	Expired time.Duration `name:"retain-expired" env:"CARDMINT_RETAIN_EXPIRED" default:"8760h" placeholder:"DURATION" help:"How long unpaid cards are kept after the order, or longer while one of their events is kept; 0 to keep them (${default}). Their addresses stay known. The same for all workers."`
	Events  time.Duration `name:"retain-events" env:"CARDMINT_RETAIN_EVENTS" default:"2160h" placeholder:"DURATION" help:"How long events are kept, at least a day longer than deliveries; 0 to keep them (${default}). Readers of the feed that are behind get feed.reset. The same for all workers."`
}

func (f RetentionConfig) policy(deliveries time.Duration) retention.Policy {
	return retention.Policy{Expired: f.Expired, Events: f.Events, Deliveries: deliveries}
}

func (f RetentionConfig) validate() error {
	return WithHint(f.policy(0).Check(),
		"--retain-expired and --retain-events take a duration of 168h or more, such as 8760h, or 0")
}

// addRetention adds the loop that deletes expired rows.
func (p *process) addRetention() error {
	cfg := retention.Config{Policy: p.cfg.Retention.policy(p.cfg.Webhooks.Retention), Holder: uniqueName()}
	for _, coin := range chain.Currencies() {
		cfg.Currencies = append(cfg.Currencies, coin.Code)
	}
	keeper, err := retention.New(p.dbs.worker, p.Log.With("loop", "retain"), cfg)
	if err != nil {
		return err
	}
	p.add(loop{name: "retain", every: retainEvery, tick: keeper.Tick, close: keeper.Close, grace: closeGrace})
	return nil
}
