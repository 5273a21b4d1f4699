package app

import (
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// WebhookConfig configures webhooks.
type WebhookConfig struct {
	Insecure  bool          `name:"webhook-insecure" env:"CARDMINT_WEBHOOK_INSECURE" help:"Allow webhooks with http:// URLs and with loopback and private addresses. Only in test mode; set it alike for api and worker."`
	Timeout   time.Duration `name:"webhook-timeout" env:"CARDMINT_WEBHOOK_TIMEOUT" default:"15s" placeholder:"DURATION" help:"How long the receiver of a webhook may take to respond, 15s at most (${default})."`
	Retention time.Duration `name:"delivery-retention" env:"CARDMINT_DELIVERY_RETENTION" default:"720h" placeholder:"DURATION" help:"How long deliveries to webhooks are kept. Set it alike for api and worker (${default})."`
}

func (f WebhookConfig) validate(mode string) error {
	// 15 s is what the contract says
	const shortest, longest, leastKept = 100 * time.Millisecond, 15 * time.Second, 7 * 24 * time.Hour
	switch {
	case f.Insecure && mode == card.LiveMode:
		return WithHint(errors.New("--webhook-insecure: not in live mode"),
			"clients could register webhooks that reach servers in your own network")
	case f.Timeout < shortest || f.Timeout > longest:
		return WithHint(errors.New("--webhook-timeout: out of bounds"), "it takes %s to %s", shortest, longest)
	case f.Retention < leastKept:
		return WithHint(errors.New("--delivery-retention: too short"),
			"it takes %s at least, so that failed deliveries can still be sent again", leastKept)
	}
	return nil
}
