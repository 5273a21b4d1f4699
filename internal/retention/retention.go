// Package retention deletes what was kept for long enough: events by their age,
// and cards that nobody paid for.
//
// It may import package card only. Everything is deleted in pages, each of
// which is one commit: after a crash the next Tick finds what is left. Nothing
// that ever had to do with money is deleted.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// Store deletes. Running any of its methods twice is harmless. The error is
// card.ErrUnavailable if the database can't be reached.
type Store interface {
	// HoldRetention acquires or prolongs the lease of who deletes, by the
	// database's clock. It returns false if another process has it.
	HoldRetention(ctx context.Context, holder string, ttl time.Duration) (bool, error)
	// ReleaseRetention gives the lease back; a no-op if another process has it.
	ReleaseRetention(ctx context.Context, holder string) error
	// AccountIDs returns all accounts.
	AccountIDs(ctx context.Context) ([]uuid.UUID, error)
	// PruneEvents deletes up to n events of an account, the oldest first, that
	// happened at least age ago by the database's clock, with their deliveries.
	// It stops before the first event that has a pending delivery. The newest
	// of what it deletes is replaced by the event feed.reset, whose since is
	// when the account was created: readers who have not come so far get that
	// first. It returns how many events it looked at and may have deleted: less
	// than n if there are no more.
	PruneEvents(ctx context.Context, account uuid.UUID, age time.Duration, n int) (pruned int, err error)
	// RetireCards deletes those of an account's cards of a currency of which
	// nothing but the order is left: they were created, and their quotes were
	// over, at least age ago, both by the database's clock and by the newest
	// block that was applied; they expired or were canceled; no transfer ever
	// came to their addresses; no operator decided anything about them; and
	// none of their events is kept. Their addresses stay known. It looks at up
	// to n cards that follow after in the order of their uuids, and returns how
	// many it deleted, and the last one it looked at: uuid.Nil if there are no
	// more.
	RetireCards(ctx context.Context, account uuid.UUID, currency string, age time.Duration, after uuid.UUID,
		n int) (retired int64, last uuid.UUID, err error)
}

// The least that can be kept, so that a slip of the finger deletes little, and
// a payment that was on its way for days finds its card.
const shortest = 7 * 24 * time.Hour

// Policy says for how long what is kept.
type Policy struct {
	// Expired is how long cards are kept for which nobody paid, from their
	// creation and the end of their quotes on; 0 for good. A card is kept as
	// long as its events at least.
	Expired time.Duration
	// Events is how long events are kept; 0 for good. They are kept for a day
	// longer than Deliveries at least.
	Events time.Duration
	// Deliveries is how long deliveries to webhooks are kept, by whoever
	// deletes those.
	Deliveries time.Duration
}

// Check returns an error if something would be kept for too short a time.
func (p Policy) Check() error {
	if p.Expired != 0 && p.Expired < shortest || p.Events != 0 && p.Events < shortest {
		return errors.New("cards and events are kept for seven days at least, or for good")
	}
	return nil
}

// events returns how long events are kept; 0 for good. With an event that is
// younger by a day than the oldest, deliveries can be made again.
func (p Policy) events() time.Duration {
	if p.Events == 0 {
		return 0
	}
	return max(p.Events, p.Deliveries+24*time.Hour)
}

const (
	page  = 200             // events or cards in one commit
	lasts = 2 * time.Minute // the lease, from a page to the next
	// share is how much of the time is spent on deleting: a share of 1/10 of
	// one connection.
	share = 10
)

// Config is how a Keeper works.
type Config struct {
	Policy     Policy
	Currencies []string // of all cards that there may be
	Holder     string   // of the lease: this process
	// Pause waits for so long, or until ctx ends. Defaults to a timer.
	Pause func(ctx context.Context, length time.Duration)
}

// Keeper deletes what was kept for long enough.
type Keeper struct {
	store Store
	log   *slog.Logger
	cfg   Config
}

// New returns a keeper. The error is that of Policy.Check.
func New(store Store, log *slog.Logger, cfg Config) (*Keeper, error) {
	if err := cfg.Policy.Check(); err != nil {
		return nil, err
	}
	if cfg.Pause == nil {
		cfg.Pause = pause
	}
	return &Keeper{store: store, log: log, cfg: cfg}, nil
}

func pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Tick deletes everything that is due, unless another process does. It is slow
// on purpose: requests come first.
func (k *Keeper) Tick(ctx context.Context) error {
	if k.cfg.Policy.Events == 0 && k.cfg.Policy.Expired == 0 {
		return nil
	}
	if held, err := k.store.HoldRetention(ctx, k.cfg.Holder, lasts); err != nil || !held {
		return err
	}
	accounts, err := k.store.AccountIDs(ctx)
	if err != nil {
		return err
	}
	var events int
	var cards int64
	defer func() {
		if events > 0 || cards > 0 {
			k.log.InfoContext(ctx, "deleted what was kept for long enough", "events", events, "expired_cards", cards)
		}
	}()
	for _, account := range accounts {
		n, err := k.prune(ctx, account)
		events += n
		if err != nil {
			return unlessLost(err)
		}
		for _, currency := range k.cfg.Currencies {
			n, err := k.retire(ctx, account, currency)
			cards += n
			if err != nil {
				return unlessLost(err)
			}
		}
	}
	return nil
}

// Close lets another process begin at once.
func (k *Keeper) Close(ctx context.Context) error {
	return k.store.ReleaseRetention(ctx, k.cfg.Holder)
}

// errLost means that another process has begun to delete, and goes on with it.
var errLost = errors.New("another process holds the lease of retention")

func unlessLost(err error) error {
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}

// paged calls f until it returns false, at a pace that leaves the database to
// others.
func (k *Keeper) paged(ctx context.Context, f func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := f()
		if err != nil || !more {
			return err
		}
		k.cfg.Pause(ctx, (share-1)*time.Since(began))
		held, err := k.store.HoldRetention(ctx, k.cfg.Holder, lasts)
		switch {
		case err != nil:
			return err
		case !held:
			return errLost
		}
	}
}

func (k *Keeper) prune(ctx context.Context, account uuid.UUID) (all int, err error) {
	age := k.cfg.Policy.events()
	if age == 0 {
		return 0, nil
	}
	err = k.paged(ctx, func() (bool, error) {
		n, err := k.store.PruneEvents(ctx, account, age, page)
		all += n
		return n == page, err
	})
	return all, err
}

func (k *Keeper) retire(ctx context.Context, account uuid.UUID, currency string) (all int64, err error) {
	age := k.cfg.Policy.Expired
	if age == 0 {
		return 0, nil
	}
	after := uuid.Nil
	err = k.paged(ctx, func() (bool, error) {
		n, last, err := k.store.RetireCards(ctx, account, currency, age, after, page)
		all, after = all+n, last
		return last != uuid.Nil, err
	})
	return all, err
}
