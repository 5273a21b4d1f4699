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

// Config is how a Sender works.
type Config struct {
	// Rate is how many attempts a second are made at one webhook, so that a receiver that comes back is not overrun. Defaults to 200.
	Rate float64
	// AtOnce is to how many webhooks something is sent at the same time. Defaults to 512.
	AtOnce int
	// Wake has Tick called soon. Defaults to nothing: what became due while a webhook was worked on waits for the next turn.
	Wake func()
}

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
	service *card.Service
	poster  *Poster
	timeout time.Duration // of an attempt
	cfg     Config
	turns   sync.WaitGroup
	free    chan struct{} // a place for each turn that can be had
}

// NewSender returns a sender. Close it.
func NewSender(service *card.Service, poster *Poster, cfg Config) *Sender {
	if cfg.Rate == 0 {
		cfg.Rate = 200
	}
	if cfg.AtOnce == 0 {
		cfg.AtOnce = 512
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	return &Sender{service: service, poster: poster, timeout: poster.client.Timeout(), cfg: cfg, free: make(chan struct{}, cfg.AtOnce)}
}

// claim is for how long a webhook is claimed at a time: longer than a round of attempts and the storing of it, also when the database is
// away for a moment.
func (s *Sender) claim() time.Duration { return 2*s.timeout + 30*time.Second }

// Tick starts a turn for every webhook that something is to be sent to.
func (s *Sender) Tick(ctx context.Context) error {
	for ctx.Err() == nil {
		places := cap(s.free) - len(s.free)
		if places == 0 {
			return nil // the end of a turn wakes
		}
		n := min(places, 64)
		claims, err := s.service.ClaimWebhooks(ctx, n, s.claim())
		for _, c := range claims {
			s.free <- struct{}{}
			s.turns.Add(1)
			go func() {
				defer s.turns.Done()
				s.turn(ctx, c)
				<-s.free
				s.cfg.Wake()
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
func (s *Sender) turn(ctx context.Context, c *card.WebhookClaim) {
	// What was begun is ended and stored, also when ctx ends.
	working := context.WithoutCancel(ctx)
	limit := rate.NewLimiter(rate.Limit(s.cfg.Rate), int(max(1, s.cfg.Rate)))
	err := func() error {
		most := min(max(widest, int(s.cfg.Rate*longestBatch.Seconds())), largestBatch)
		batch, began := widest, time.Now()
		until := began.Add(s.claim() - spare)
		for ctx.Err() == nil && !c.Over && time.Since(began) < longestTurn {
			due, err := s.service.DueDeliveries(working, c, batch)
			if err != nil || len(due) == 0 {
				return err
			}
			started := time.Now()
			tried := s.attempt(ctx, working, c, due, limit)
			took := time.Since(started)
			if len(tried) == 0 {
				return nil
			}
			saving := time.Now()
			if err := s.save(working, c, tried, until); err != nil {
				return err
			}
			until = saving.Add(s.claim() - spare)
			switch {
			case len(tried) < len(due):
				batch = max(batch/2, widest)
			case len(tried) == batch && took < longestBatch:
				batch = min(4*batch, most)
			}
		}
		return nil
	}()
	switch {
	case errors.Is(err, card.ErrFenced): // changed or deleted; or another process has it, and releasing does nothing
	case err != nil:
		slog.ErrorContext(ctx, "sending to a webhook", "webhook", c.Webhook.ID, "error", err)
		return // the end of the claim is the pause
	}
	if err := s.service.ReleaseWebhook(working, c); err != nil {
		slog.WarnContext(ctx, "releasing a webhook", "webhook", c.Webhook.ID, "error", err)
	}
}

// save stores attempts, and goes on trying until then while the database is out of reach: else all of them would be made again. It does no
// harm if they were stored already.
func (s *Sender) save(ctx context.Context, c *card.WebhookClaim, tried []card.Tried, until time.Time) error {
	const first, longest = 100 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		err := s.service.SaveAttempts(ctx, c, tried, s.claim())
		if errors.Is(err, card.ErrUnavailable) && time.Now().Add(wait).Before(until) {
			time.Sleep(wait)
			continue
		}
		if err == nil && wait > first {
			slog.WarnContext(ctx, "attempts at a webhook were stored late: the database was out of reach", "webhook", c.Webhook.ID, "attempts", len(tried))
		}
		return err
	}
}

// attempt makes attempts, several at a time unless the receiver was down at last, in the order of what is due. When it is down or gone, or
// after longestBatch, it begins no more. It returns the attempts in the order in which they ended.
func (s *Sender) attempt(ctx, working context.Context, c *card.WebhookClaim, due []card.Delivery, limit *rate.Limiter) []card.Tried {
	var (
		mu    sync.Mutex
		next  int
		tried = make([]card.Tried, 0, len(due))
		stop  bool
		group sync.WaitGroup
	)
	began := time.Now()
	width := min(widest, len(due))
	if c.Failures > 0 {
		width = 1
	}
	take := func() (card.Delivery, bool) {
		mu.Lock()
		defer mu.Unlock()
		if stop || next == len(due) || ctx.Err() != nil || next > 0 && time.Since(began) > longestBatch {
			return card.Delivery{}, false
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
				tried = append(tried, card.Tried{Delivery: d, Attempt: a})
				stop = stop || a.Down() || a.Gone()
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return tried
}
