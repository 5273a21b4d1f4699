package keys

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// shortestRetention keeps a slip of the finger from deleting credentials before
// their owners have read them.
const shortestRetention = time.Hour

// Purger deletes credentials for good once they were kept for long enough. The
// cards stay generated.
type Purger struct {
	store     Store
	retention time.Duration
	log       *slog.Logger
}

// CheckRetention returns an error if credentials can't be kept for so long; 0
// is for good.
func CheckRetention(retention time.Duration) error {
	if retention != 0 && retention < shortestRetention {
		return errors.New("credentials are kept for an hour at least, or for good")
	}
	return nil
}

// NewPurger returns a purger of credentials that were issued retention ago.
func NewPurger(store Store, retention time.Duration, log *slog.Logger) (*Purger, error) {
	if err := CheckRetention(retention); err != nil {
		return nil, err
	}
	return &Purger{store: store, retention: retention, log: log}, nil
}

// purgePage is how many cards lose their credentials in one commit.
const purgePage = 500

// Tick purges everything that is due. With a retention of 0 it does nothing.
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
