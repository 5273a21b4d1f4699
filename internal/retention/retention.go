// Package retention deletes old events and unpaid cards.
//
// It may import package card only. Rows are deleted in pages, each in one
// commit: after a crash the next Tick continues. Nothing that involved money is
// deleted.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// Store deletes rows. Every method is harmless when it runs twice. The error is
// card.ErrUnavailable if the database can't be reached.
type Store interface {
	// AcquireRetention acquires or prolongs the lease for deleting, by the
	// database's clock. It returns false if another process holds it.
	AcquireRetention(ctx context.Context, holder string, ttl time.Duration) (bool, error)
	// ReleaseRetention releases the lease; a no-op if another process holds it.
	ReleaseRetention(ctx context.Context, holder string) error
	// AccountIDs returns all accounts.
	AccountIDs(ctx context.Context) ([]uuid.UUID, error)
	// PruneEvents deletes up to n of an account's oldest events, with their
	// deliveries. They happened at least age ago by the database's clock. It
	// stops before the first event with a pending delivery. The newest deleted
	// event is replaced by an event feed.reset, whose since is the creation of
	// the account: readers at an earlier position receive that first. It
	// returns the number of events it examined, which is less than n at the
	// end.
	PruneEvents(ctx context.Context, account uuid.UUID, age time.Duration, n int) (pruned int, err error)
	// RetireCards deletes an account's cards of a currency that meet all of
	// these conditions:
	//   - their creation and the end of their quotes are at least age ago, by
	//     the database's clock and by the newest applied block
	//   - they expired or were canceled
	//   - their addresses never received a transfer
	//   - no operator decided about them
	//   - none of their events is left
	//
	// Their addresses stay known. It examines up to n cards whose uuid is
	// greater than after, and returns the number of deleted cards and the last
	// examined one: uuid.Nil at the end.
	RetireCards(ctx context.Context, account uuid.UUID, currency string, age time.Duration, after uuid.UUID,
		n int) (retired int64, last uuid.UUID, err error)
}

// minRetention keeps a mistyped flag from deleting much, and lets a payment
// that takes days find its card.
const minRetention = 7 * 24 * time.Hour

// Policy sets retention periods.
type Policy struct {
	// Expired is how long unpaid cards are kept after their creation and the
	// end of their quotes; 0 is forever. A card is kept at least as long as its
	// events.
	Expired time.Duration
	// Events is how long events are kept; 0 is forever. They are kept for at
	// least a day longer than Deliveries.
	Events time.Duration
	// Deliveries is the retention of deliveries to webhooks, which another loop
	// deletes.
	Deliveries time.Duration
}

// Check returns an error if a period is too short.
func (p Policy) Check() error {
	if p.Expired != 0 && p.Expired < minRetention || p.Events != 0 && p.Events < minRetention {
		return errors.New("cards and events are kept for at least seven days, or forever")
	}
	return nil
}

// events returns the retention of events; 0 is forever. The extra day lets all
// kept deliveries be repeated.
func (p Policy) events() time.Duration {
	if p.Events == 0 {
		return 0
	}
	return max(p.Events, p.Deliveries+24*time.Hour)
}

const (
	page     = 200             // events or cards in one commit
	leaseTTL = 2 * time.Minute // prolonged after each page
	// share limits the load: deleting takes 1/share of the time of one
	// connection.
	share = 10
)

// Config configures a Keeper.
type Config struct {
	Policy     Policy
	Currencies []string // of all cards
	Holder     string   // name of this process in the lease
	// Pause waits for length, or until ctx is canceled. Defaults to a timer.
	Pause func(ctx context.Context, length time.Duration)
}

// Keeper enforces a Policy.
type Keeper struct {
	store Store
	log   *slog.Logger
	cfg   Config
}

// New returns a keeper, or the error of Policy.Check.
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
// on purpose, so that requests are not.
func (k *Keeper) Tick(ctx context.Context) error {
	if k.cfg.Policy.Events == 0 && k.cfg.Policy.Expired == 0 {
		return nil
	}
	if held, err := k.store.AcquireRetention(ctx, k.cfg.Holder, leaseTTL); err != nil || !held {
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
			k.log.InfoContext(ctx, "deleted old events and unpaid cards", "events", events, "expired_cards", cards)
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

// Close releases the lease.
func (k *Keeper) Close(ctx context.Context) error {
	return k.store.ReleaseRetention(ctx, k.cfg.Holder)
}

// errLost means that another process has acquired the lease.
var errLost = errors.New("another process holds the lease of retention")

func unlessLost(err error) error {
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}

// paged calls f until it returns false, with pauses.
func (k *Keeper) paged(ctx context.Context, f func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := f()
		if err != nil || !more {
			return err
		}
		k.cfg.Pause(ctx, (share-1)*time.Since(began))
		held, err := k.store.AcquireRetention(ctx, k.cfg.Holder, leaseTTL)
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
