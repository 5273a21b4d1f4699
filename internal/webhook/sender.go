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
	maxConcurrency = 8   // the most requests to one webhook at the same time
	maxBatch       = 500 // the most deliveries that are stored together
	// a batch starts no attempt after that; changes to the webhook take effect
	// with the next batch
	maxBatchTime = 250 * time.Millisecond
	maxClaimTime = 10 * time.Second // after which waiting webhooks get their turn
	// the end of a claim, in which nothing is stored: another process may claim
	// the webhook next
	saveMargin = 10 * time.Second
)

// Sender sends due deliveries. Each webhook has its own turn, so that a slow
// receiver delays no other: Tick starts turns and does not wait for them. Any
// number of processes may send; a webhook is claimed by one at a time.
type Sender struct {
	store   Outbox
	vault   Vault
	poster  *HTTPPoster
	wake    func()
	log     *slog.Logger
	cfg     Config
	running sync.WaitGroup
	slots   chan struct{} // holds a token for each running turn
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

// ttl is how long a claim lasts without being prolonged. It is long enough to
// make a round of attempts and store it, even if the database can't be reached
// for a moment.
func (s *Sender) ttl() time.Duration { return 2*s.poster.client.Timeout() + 30*time.Second }

// Tick starts a turn for every webhook that has due deliveries, as far as there
// are free places.
func (s *Sender) Tick(ctx context.Context) error {
	for ctx.Err() == nil {
		places := cap(s.slots) - len(s.slots)
		if places == 0 {
			return nil // a turn calls wake when it ends
		}
		n := min(places, 64)
		claims, err := s.claimWebhooks(ctx, n)
		for _, c := range claims {
			s.slots <- struct{}{}
			s.running.Add(1)
			go func() {
				defer s.running.Done()
				err := panics.Call(func() error { s.deliverTo(ctx, c); return nil })
				if err != nil { // not released: the webhook is attempted again when the claim expires
					s.log.ErrorContext(ctx, "sending to a webhook", "webhook", c.Webhook.ID, "error", err, panics.Stack(err))
				}
				<-s.slots
				s.wake()
			}()
		}
		if err != nil || len(claims) < n {
			return err
		}
	}
	return nil
}

// Close waits until the running attempts have ended and are stored, or until
// ctx ends. Before calling it, the caller must end the context of the last
// Tick, and call Tick no more.
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

// deliverTo sends the due deliveries of one webhook until none is left, the webhook
// is paused or disabled, or maxClaimTime has passed.
func (s *Sender) deliverTo(ctx context.Context, c *Claim) {
	// Attempts that have begun are finished and stored even if ctx ends.
	working := context.WithoutCancel(ctx)
	limit := rate.NewLimiter(rate.Limit(s.cfg.Rate), int(max(1, s.cfg.Rate)))
	err := func() error {
		most := min(max(maxConcurrency, int(s.cfg.Rate*maxBatchTime.Seconds())), maxBatch)
		batch, began := maxConcurrency, time.Now()
		until := began.Add(s.ttl() - saveMargin)
		for ctx.Err() == nil && !c.Ended && time.Since(began) < maxClaimTime {
			due, err := s.dueDeliveries(working, c, batch)
			if err != nil || len(due) == 0 {
				return err
			}
			started := time.Now()
			done, wait := s.attemptBatch(ctx, working, c, due, limit)
			took := time.Since(started)
			switch {
			case len(done) > 0: // what was postponed is due again
			case wait > 0 && pause(ctx, min(wait, time.Second)):
				continue
			default:
				return nil
			}
			saving := time.Now()
			if err := s.save(working, c, done, until); err != nil {
				return err
			}
			until = saving.Add(s.ttl() - saveMargin)
			switch {
			case len(done) < len(due):
				batch = max(batch/2, maxConcurrency)
			case len(done) == batch && took < maxBatchTime:
				batch = min(4*batch, most)
			}
		}
		return nil
	}()
	switch {
	// the webhook changed or was deleted, or the claim was lost; then releasing
	// is a no-op
	case errors.Is(err, card.ErrFenced):
	case err != nil:
		s.log.ErrorContext(ctx, "sending to a webhook", "webhook", c.Webhook.ID, "error", err)
		return // not released: the webhook is attempted again when the claim expires
	}
	if err := s.store.ReleaseWebhook(working, c); err != nil {
		s.log.WarnContext(ctx, "releasing a webhook", "webhook", c.Webhook.ID, "error", err)
	}
}

// save stores attempts. If the database can't be reached, it keeps trying until
// the given time, because attempts that are not stored are made again. Storing
// them twice is harmless.
func (s *Sender) save(ctx context.Context, c *Claim, done []attempted, until time.Time) error {
	const first, longest = 100 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		err := s.saveAttempts(ctx, c, done)
		if errors.Is(err, card.ErrUnavailable) && time.Now().Add(wait).Before(until) {
			time.Sleep(wait)
			continue
		}
		if err == nil && wait > first {
			s.log.WarnContext(ctx, "attempts at a webhook were stored late: the database was out of reach", "webhook",
				c.Webhook.ID, "attempts", len(done))
		}
		return err
	}
}

// attemptBatch attempts deliveries in the order of due, several at a time unless the
// receiver was down in the last round. It starts no more attempts once one
// finds the receiver down or gone, or after maxBatchTime. It returns the
// attempts in the order in which they ended. If an attempt was postponed, wait
// is the time until the destination may get another one.
func (s *Sender) attemptBatch(ctx, working context.Context, c *Claim, due []Delivery, limit *rate.Limiter) (done []attempted,
	wait time.Duration) {
	var (
		mu    sync.Mutex
		next  int
		stop  bool
		group sync.WaitGroup
	)
	causes := s.traceParents(working, due)
	began := time.Now()
	concurrency := min(maxConcurrency, len(due))
	if c.Failures > 0 {
		concurrency = 1
	}
	take := func() (Delivery, bool) {
		mu.Lock()
		defer mu.Unlock()
		if stop || next == len(due) || ctx.Err() != nil || next > 0 && time.Since(began) > maxBatchTime {
			return Delivery{}, false
		}
		next++
		return due[next-1], true
	}
	for range concurrency {
		group.Go(func() {
			for {
				d, more := take()
				if !more || limit.Wait(ctx) != nil {
					return
				}
				failpoint.Hit(failpoint.Delivering)
				a := s.attempt(working, c, d.Event, causes)
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

// pause waits, and returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
