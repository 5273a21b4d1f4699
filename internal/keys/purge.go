package keys

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// shortestRetention keeps a mistyped flag from deleting credentials before
// clients have read them.
const shortestRetention = time.Hour

// Purger permanently deletes the credentials of cards after their retention.
// The cards keep the status generated.
type Purger struct {
	store     Store
	retention time.Duration
	log       *slog.Logger
}

// CheckRetention returns an error if a retention is too short. 0 keeps
// credentials permanently.
func CheckRetention(retention time.Duration) error {
	if retention != 0 && retention < shortestRetention {
		return errors.New("credentials are kept for at least an hour, or permanently")
	}
	return nil
}

// NewPurger returns a purger of credentials that were issued at least retention
// ago.
func NewPurger(store Store, retention time.Duration, log *slog.Logger) (*Purger, error) {
	if err := CheckRetention(retention); err != nil {
		return nil, err
	}
	return &Purger{store: store, retention: retention, log: log}, nil
}

const purgePage = 500 // cards in one commit

// Tick purges all credentials that are due. With a retention of 0 it does
// nothing.
func (p *Purger) Tick(ctx context.Context) error {
	if p.retention == 0 {
		return nil
	}
	total := int64(0)
	defer func() {
		if total > 0 {
			p.log.InfoContext(ctx, "purged credentials", "cards", total)
		}
	}()
	for ctx.Err() == nil {
		purged, dated, err := p.store.PurgeCredentials(ctx, p.retention, purgePage)
		total += purged
		if err != nil || purged < purgePage && dated < purgePage {
			return err
		}
	}
	return ctx.Err()
}
