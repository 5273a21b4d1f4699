package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	disableAfter = 5 * 24 * time.Hour // without a successful attempt
	pauseAfter   = 3                  // failed batches in a row
	maxPause     = time.Minute
)

// Claim is the right to send to a webhook. One process holds it at a time.
type Claim struct {
	Webhook *Webhook
	Secrets []card.Secret // newest first
	// Failures counts consecutive batches with an unreachable or rejecting
	// receiver and no accepted event.
	Failures int
	Fence    int64 // the store rejects writes with an older one
	Ended    bool  // the webhook was disabled or paused
}

// State is what a sender stores about a webhook.
type State struct {
	Failures       int
	FailingSince   *time.Time
	PausedUntil    time.Time      // nothing is sent before; Immediately for no pause
	DisabledReason DisabledReason // "" if the webhook stays enabled
}

// after returns the webhook's state after a batch of deliveries, ordered by the
// end of their last attempts.
func (c Claim) after(batch []Delivery, now time.Time) State {
	s := State{FailingSince: c.Webhook.FailingSince, PausedUntil: Immediately()}
	unreachable, accepted, rejected, exhausted := false, false, len(batch) > 0, false
	for _, d := range batch {
		a := d.Attempts[len(d.Attempts)-1]
		unreachable = unreachable || a.Unreachable()
		rejected = rejected && a.Rejected()
		exhausted = exhausted || d.State == DeliveryFailed
		if a.OK() {
			accepted, s.FailingSince = true, nil
			continue
		}
		if s.FailingSince == nil {
			s.FailingSince = &a.At
		}
		if a.Gone() {
			s.DisabledReason = DisabledGone
		}
	}
	if (unreachable || rejected) && !accepted {
		s.Failures = c.Failures + 1
	}
	if s.Failures >= pauseAfter {
		s.PausedUntil = now.Add(min(time.Second<<min(s.Failures-pauseAfter, 10), maxPause))
	}
	// An event must have exhausted its attempts: after a long time without
	// events, a single failure proves nothing.
	if exhausted && s.FailingSince != nil && now.Sub(*s.FailingSince) > disableAfter && s.DisabledReason == "" {
		s.DisabledReason = DisabledFailing
	}
	return s
}

// attempted is a delivery with its newest attempt.
type attempted struct {
	Delivery Delivery
	Attempt  Attempt
}

// claimWebhooks claims up to n webhooks that have due deliveries, those with
// the fewest failures first.
func (s *Sender) claimWebhooks(ctx context.Context, n int) ([]*Claim, error) {
	claims, err := s.store.ClaimWebhooks(ctx, s.cfg.Now(), n, s.ttl())
	if err != nil {
		return nil, err
	}
	good := claims[:0]
	var failed []error
	for _, c := range claims {
		if c.Secrets, err = secrets(s.vault, c.Webhook, s.cfg.Now()); err != nil {
			failed = append(failed, err) // the claim expires, and the webhook is claimed again
			if errors.Is(err, card.ErrUnavailable) {
				// The key may become available at any moment, here or in
				// another process.
				failed = append(failed, s.store.ReleaseWebhook(ctx, c))
			}
			continue
		}
		good = append(good, c)
	}
	return good, errors.Join(failed...)
}

// dueDeliveries returns up to n due deliveries, the longest due first. If the
// receiver fails, every other batch consists of retries. Otherwise new events
// would take all attempts, no event would ever exhaust its ten, and the webhook
// would never be disabled.
func (s *Sender) dueDeliveries(ctx context.Context, c *Claim, n int) ([]Delivery, error) {
	if c.Failures%2 == 1 {
		if due, err := s.store.DueRetries(ctx, c.Webhook.ID, s.cfg.Now(), n); err != nil || len(due) > 0 {
			return due, err
		}
	}
	return s.store.DueDeliveries(ctx, c.Webhook.ID, s.cfg.Now(), n)
}

// saveAttempts stores a batch of attempts, ordered by their end, with the
// webhook's new state, and renews the claim. A delivery stays due if a client
// requested it again during the attempt.
//
// The error is card.ErrFenced if the claim was lost, or the webhook was changed
// or deleted. The attempts are then repeated. If the webhook was only changed,
// successful attempts are stored and not repeated. After card.ErrUnavailable
// the caller may retry: nothing is counted or inserted twice.
func (s *Sender) saveAttempts(ctx context.Context, c *Claim, attempted []attempted) error {
	now := s.cfg.Now()
	before, after := make([]Delivery, len(attempted)), make([]Delivery, len(attempted))
	for i, t := range attempted {
		before[i], after[i] = t.Delivery, t.Delivery.After(t.Attempt, now, rand.Float64())
	}
	state := c.after(after, now)
	err := s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.SaveWebhookState(ctx, c, state, now, s.ttl()); err != nil {
			return err
		}
		if err := tx.SaveDeliveries(ctx, c.Webhook.ID, before, after); err != nil || state.DisabledReason == "" {
			return err
		}
		id := uuid.Must(uuid.NewV7())
		return tx.InsertEvents(ctx,
			[]card.Event{
				{ID: id, AccountID: c.Webhook.AccountID, Type: card.EventWebhookDisabled, WebhookID: c.Webhook.ID,
					CreatedAt: card.TimeOf(id)}})
	})
	if errors.Is(err, card.ErrFenced) {
		err = s.saveDelivered(ctx, c, before, after)
	}
	if err != nil {
		return fmt.Errorf("save attempts: %w", err)
	}
	c.Failures, c.Webhook.FailingSince = state.Failures, state.FailingSince
	c.Ended = state.DisabledReason != "" || state.PausedUntil.After(now)
	if state.DisabledReason != "" {
		s.log.WarnContext(ctx, "webhook disabled", "webhook", c.Webhook.ID, "account", c.Webhook.AccountID, "reason",
			state.DisabledReason)
		s.wake()
	}
	return nil
}

// saveDelivered stores successful deliveries to a changed webhook, unless the
// claim was lost. On success it returns card.ErrFenced.
func (s *Sender) saveDelivered(ctx context.Context, c *Claim, before, after []Delivery) error {
	var was, is []Delivery
	for i, d := range after {
		if d.State == DeliveryDelivered {
			was, is = append(was, before[i]), append(is, d)
		}
	}
	err := s.store.WebhookTx(ctx, func(tx Tx) error {
		if err := tx.CheckClaim(ctx, c); err != nil {
			return err
		}
		return tx.SaveDeliveries(ctx, c.Webhook.ID, was, is)
	})
	if err == nil {
		err = card.ErrFenced
	}
	return err
}

// Prune deletes deliveries that are not pending and older than
// Config.Retention, and replies older than repliesLast. Call it in a loop.
func (s *Sender) Prune(ctx context.Context) error {
	now := s.cfg.Now()
	return errors.Join(
		inBatches(func(n int) (int64, error) { return s.store.PruneDeliveries(ctx, now.Add(-s.cfg.Retention), n) }),
		inBatches(func(n int) (int64, error) { return s.store.PruneReplies(ctx, now.Add(-repliesLast), n) }))
}
