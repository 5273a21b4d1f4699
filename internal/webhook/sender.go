package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	widest       = 8                      // requests to one webhook at the same time
	largestBatch = 500                    // deliveries that are stored together
	longestBatch = 250 * time.Millisecond // in which they are begun: what the client changes meanwhile has no effect on them
	longestTurn  = 10 * time.Second       // after which others that wait come first
	spare        = 10 * time.Second       // of a claim, in which nothing is stored any more: another process may have it next
)

// Sender sends what is due. Every webhook has its own turn, so that one that does not answer keeps no other waiting: Tick starts the
// turns and does not wait for them. Any number of processes may send; each webhook is claimed by one at a time.
type Sender struct {
	store  Store
	vault  Vault
	poster *HTTPPoster
	wake   func()
	log    *slog.Logger
	cfg    Config
	turns  sync.WaitGroup
	free   chan struct{} // a place for each turn that can be had
}

// NewSender returns a sender. Close it. wake has Tick called soon.
func NewSender(store Store, vault Vault, poster *HTTPPoster, wake func(), log *slog.Logger, cfg Config) (*Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Sender{store: store, vault: vault, poster: poster, wake: wake, log: log, cfg: cfg, free: make(chan struct{}, cfg.AtOnce)}, nil
}

// ttl is for how long a webhook is claimed at a time: longer than a round of attempts and the storing of it, also when the database is
// away for a moment.
func (s *Sender) ttl() time.Duration { return 2*s.poster.client.Timeout() + 30*time.Second }

// Tick starts a turn for every webhook that something is to be sent to.
func (s *Sender) Tick(ctx context.Context) error {
	for ctx.Err() == nil {
		places := cap(s.free) - len(s.free)
		if places == 0 {
			return nil // the end of a turn wakes
		}
		n := min(places, 64)
		claims, err := s.claimWebhooks(ctx, n)
		for _, c := range claims {
			s.free <- struct{}{}
			s.turns.Add(1)
			go func() {
				defer s.turns.Done()
				s.turn(ctx, c)
				<-s.free
				s.wake()
			}()
		}
		if err != nil || len(claims) < n {
			return err
		}
	}
	return nil
}

// Close waits until the attempts under way have ended and are stored, or until ctx ends. Tick must not be called any more, and the
// context of its last call must have ended.
func (s *Sender) Close(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		s.turns.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turn sends what is due at one webhook until nothing is, or the webhook has to be left in peace.
func (s *Sender) turn(ctx context.Context, c *Claim) {
	// What was begun is ended and stored, also when ctx ends.
	working := context.WithoutCancel(ctx)
	limit := rate.NewLimiter(rate.Limit(s.cfg.Rate), int(max(1, s.cfg.Rate)))
	err := func() error {
		most := min(max(widest, int(s.cfg.Rate*longestBatch.Seconds())), largestBatch)
		batch, began := widest, time.Now()
		until := began.Add(s.ttl() - spare)
		for ctx.Err() == nil && !c.Over && time.Since(began) < longestTurn {
			due, err := s.dueDeliveries(working, c, batch)
			if err != nil || len(due) == 0 {
				return err
			}
			started := time.Now()
			done := s.attempt(ctx, working, c, due, limit)
			took := time.Since(started)
			if len(done) == 0 {
				return nil
			}
			saving := time.Now()
			if err := s.save(working, c, done, until); err != nil {
				return err
			}
			until = saving.Add(s.ttl() - spare)
			switch {
			case len(done) < len(due):
				batch = max(batch/2, widest)
			case len(done) == batch && took < longestBatch:
				batch = min(4*batch, most)
			}
		}
		return nil
	}()
	switch {
	case errors.Is(err, card.ErrFenced): // changed or deleted; or another process has it, and releasing does nothing
	case err != nil:
		s.log.ErrorContext(ctx, "sending to a webhook", "webhook", c.Webhook.ID, "error", err)
		return // the end of the claim is the pause
	}
	if err := s.store.ReleaseWebhook(working, c); err != nil {
		s.log.WarnContext(ctx, "releasing a webhook", "webhook", c.Webhook.ID, "error", err)
	}
}

// save stores attempts, and goes on trying until then while the database is out of reach: else all of them would be made again. It does no
// harm if they were stored already.
func (s *Sender) save(ctx context.Context, c *Claim, done []tried, until time.Time) error {
	const first, longest = 100 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		err := s.saveAttempts(ctx, c, done)
		if errors.Is(err, card.ErrUnavailable) && time.Now().Add(wait).Before(until) {
			time.Sleep(wait)
			continue
		}
		if err == nil && wait > first {
			s.log.WarnContext(ctx, "attempts at a webhook were stored late: the database was out of reach", "webhook", c.Webhook.ID, "attempts", len(done))
		}
		return err
	}
}

// attempt makes attempts, several at a time unless the receiver was down at last, in the order of what is due. When it is down or gone, or
// after longestBatch, it begins no more. It returns the attempts in the order in which they ended.
func (s *Sender) attempt(ctx, working context.Context, c *Claim, due []Delivery, limit *rate.Limiter) []tried {
	var (
		mu    sync.Mutex
		next  int
		done  = make([]tried, 0, len(due))
		stop  bool
		group sync.WaitGroup
	)
	began := time.Now()
	width := min(widest, len(due))
	if c.Failures > 0 {
		width = 1
	}
	take := func() (Delivery, bool) {
		mu.Lock()
		defer mu.Unlock()
		if stop || next == len(due) || ctx.Err() != nil || next > 0 && time.Since(began) > longestBatch {
			return Delivery{}, false
		}
		next++
		return due[next-1], true
	}
	for range width {
		group.Go(func() {
			for {
				d, more := take()
				if !more || limit.Wait(ctx) != nil {
					return
				}
				a := s.poster.Post(working, c.Webhook.URL, c.Secrets, d.Event)
				mu.Lock()
				done = append(done, tried{d, a})
				stop = stop || a.Down() || a.Gone()
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return done
}
