package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/failpoint"
	"github.com/cardmint/cardmint/internal/panics"
)

const (
	maxConcurrency = 8   // requests to one webhook
	maxBatch       = 500 // deliveries that are stored together
	// maxBatchTime is when a batch stops starting attempts. Changes to the
	// webhook take effect in the next batch.
	maxBatchTime = 250 * time.Millisecond
	// maxClaimTime is when the sender releases a webhook, so that waiting ones
	// get its slot.
	maxClaimTime = 10 * time.Second
	// saveMargin is the last part of a claim, during which nothing is stored:
	// another process may claim the webhook next.
	saveMargin = 10 * time.Second
)

// Sender sends due deliveries. It serves each webhook in its own goroutine, so
// that a slow receiver delays no other. Several processes may send at the same
// time; a webhook is claimed by one of them.
type Sender struct {
	store   Outbox
	vault   Vault
	poster  *HTTPPoster
	wake    func()
	log     *slog.Logger
	cfg     Config
	running sync.WaitGroup
	slots   chan struct{} // holds a token for each claimed webhook
}

// NewSender returns a sender. The caller must close it. wake must cause a Tick
// soon.
func NewSender(store Outbox, vault Vault, poster *HTTPPoster, wake func(), log *slog.Logger, cfg Config) (*Sender,
	error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if poster != nil {
		poster.destinations.setRate(cfg.Rate)
	}
	return &Sender{store: store, vault: vault, poster: poster, wake: wake, log: log, cfg: cfg,
		slots: make(chan struct{}, cfg.Concurrency)}, nil
}

// ttl is how long a claim lasts unless it is renewed: long enough for a batch
// of attempts and for storing it, even if the database is unreachable for a few
// seconds.
func (s *Sender) ttl() time.Duration { return 2*s.poster.client.Timeout() + 30*time.Second }

// Tick claims webhooks that have due deliveries, as many as there are free
// slots, and starts to serve them. It does not wait for the deliveries.
func (s *Sender) Tick(ctx context.Context) error {
	for ctx.Err() == nil {
		free := cap(s.slots) - len(s.slots)
		if free == 0 {
			return nil // a claim that ends calls wake
		}
		n := min(free, 64)
		claims, err := s.claimWebhooks(ctx, n)
		for _, c := range claims {
			s.slots <- struct{}{}
			s.running.Go(func() {
				err := panics.Call(func() error { s.deliverTo(ctx, c); return nil })
				if err != nil { // not released: the claim expires, and the webhook is claimed again
					s.log.ErrorContext(ctx, "webhook deliveries failed", "webhook", c.Webhook.ID, "error", err, panics.Stack(err))
				}
				<-s.slots
				s.wake()
			})
		}
		if err != nil || len(claims) < n {
			return err
		}
	}
	return nil
}

// Close waits until all running attempts are stored, or until ctx ends. The
// caller must first end the context of the last Tick, and not call Tick again.
func (s *Sender) Close(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deliverTo sends the due deliveries of a webhook, and releases its claim.
func (s *Sender) deliverTo(ctx context.Context, c *Claim) {
	// Attempts that have begun are finished and stored even if ctx ends.
	working := context.WithoutCancel(ctx)
	err := s.deliverDue(ctx, working, c)
	// If the webhook was changed or deleted, or the claim was lost, saving
	// fails with card.ErrFenced. Releasing a lost claim is a no-op.
	if err != nil && !errors.Is(err, card.ErrFenced) {
		s.log.ErrorContext(ctx, "webhook deliveries failed", "webhook", c.Webhook.ID, "error", err)
		return // not released: the claim expires, and the webhook is claimed again
	}
	if err := s.store.ReleaseWebhook(working, c); err != nil {
		s.log.WarnContext(ctx, "webhook not released", "webhook", c.Webhook.ID, "error", err)
	}
}

// deliverDue sends batches of deliveries until none is due, the webhook is
// paused or disabled, or maxClaimTime has passed. Batches grow while the
// receiver accepts them quickly.
func (s *Sender) deliverDue(ctx, working context.Context, c *Claim) error {
	limit := rate.NewLimiter(rate.Limit(s.cfg.Rate), int(max(1, s.cfg.Rate)))
	most := min(max(maxConcurrency, int(s.cfg.Rate*maxBatchTime.Seconds())), maxBatch)
	size, began := maxConcurrency, time.Now()
	until := began.Add(s.ttl() - saveMargin)
	for ctx.Err() == nil && !c.Ended && time.Since(began) < maxClaimTime {
		due, err := s.dueDeliveries(working, c, size)
		if err != nil || len(due) == 0 {
			return err
		}
		started := time.Now()
		done, wait := s.attemptBatch(ctx, working, c, due, limit)
		took := time.Since(started)
		if len(done) == 0 {
			if wait > 0 && sleep(ctx, min(wait, time.Second)) {
				continue
			}
			return nil
		}
		saving := time.Now()
		if err := s.save(working, c, done, until); err != nil {
			return err
		}
		until = saving.Add(s.ttl() - saveMargin)
		switch {
		case len(done) < len(due):
			size = max(size/2, maxConcurrency)
		case len(done) == size && took < maxBatchTime:
			size = min(4*size, most)
		}
	}
	return nil
}

// save stores attempts. If the database is unreachable, it retries until the
// given time, because attempts that are not stored are repeated. Storing them
// twice is harmless.
func (s *Sender) save(ctx context.Context, c *Claim, done []attempted, until time.Time) error {
	const first, longest = 100 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		err := s.saveAttempts(ctx, c, done)
		if errors.Is(err, card.ErrUnavailable) && time.Now().Add(wait).Before(until) {
			time.Sleep(wait)
			continue
		}
		if err == nil && wait > first {
			s.log.WarnContext(ctx, "webhook attempts stored late: the database was unreachable", "webhook",
				c.Webhook.ID, "attempts", len(done))
		}
		return err
	}
}

// attemptBatch attempts deliveries in order: several concurrently, or one at a
// time if the receiver failed in the last batch. It starts no more attempts
// after maxBatchTime, or once the receiver is unreachable or gone. It returns
// the attempts, ordered by their end. If an attempt was postponed, wait is the
// time until the destination accepts the next one.
func (s *Sender) attemptBatch(ctx, working context.Context, c *Claim, due []Delivery, limit *rate.Limiter) (
	done []attempted, wait time.Duration) {
	var (
		mu    sync.Mutex
		next  int
		stop  bool
		group sync.WaitGroup
	)
	parents, began := s.traceParents(working, due), time.Now()
	take := func() (Delivery, bool) {
		mu.Lock()
		defer mu.Unlock()
		if stop || next == len(due) || ctx.Err() != nil || next > 0 && time.Since(began) > maxBatchTime {
			return Delivery{}, false
		}
		next++
		return due[next-1], true
	}
	concurrency := min(maxConcurrency, len(due))
	if c.Failures > 0 {
		concurrency = 1
	}
	for range concurrency {
		group.Go(func() {
			for {
				d, more := take()
				if !more || limit.Wait(ctx) != nil {
					return
				}
				failpoint.Hit(failpoint.Delivering)
				a := s.attempt(working, c, d.Event, parents)
				mu.Lock()
				if a.Postponed > 0 {
					stop, wait = true, max(wait, a.Postponed)
				} else {
					done = append(done, attempted{d, a})
					stop = stop || a.Unreachable() || a.Gone() || c.Failures > 0 && a.Rejected()
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return done, wait
}

// sleep waits, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
